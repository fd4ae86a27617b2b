//! Policies and resolv.conf in, servers, searches and options out.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn node() -> NodeDns {
    NodeDns {
        cluster_dns: vec!["10.96.0.10".parse().unwrap()],
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: Some("nameserver 1.1.1.1\nsearch home lan\noptions timeout:2\n".to_owned()),
        node_ips: vec!["192.168.0.1".parse().unwrap()],
    }
}

fn pod(spec: &Value) -> Pod {
    let mut spec = spec.clone();
    spec["containers"] = json!([]);
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}))
        .unwrap()
}

fn show(dns: &DnsRequest) -> String {
    format!("{} | {} | {}", dns.servers.join(" "), dns.searches.join(" "), dns.options.join(" "))
}

/// Servers, searches and options, then what the owner is told.
#[track_caller]
fn check_on(node: &NodeDns, spec: &Value, expected: &str) {
    let found = match compute_pod_dns(&pod(spec), node) {
        Ok(PodDns { dns, warnings }) => {
            let warnings = warnings.iter().map(|w| format!("\n{}: {}", w.reason.as_str(), w.message));
            show(&dns) + &warnings.collect::<String>()
        }
        Err(error) => format!("! {error}"),
    };
    assert_eq!(found, expected);
}

#[track_caller]
fn check(spec: &Value, expected: &str) {
    check_on(&node(), spec, expected);
}

const CLUSTER: &str = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local home lan | ndots:5";
const HOST: &str = "1.1.1.1 | home lan | timeout:2";

#[test]
fn the_policy_chooses_the_servers() {
    check(&json!({"dnsPolicy": "ClusterFirst"}), CLUSTER);
    check(&json!({}), CLUSTER);
    check(&json!({"dnsPolicy": "Default"}), HOST);
    check(&json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), HOST);
    check(&json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}), CLUSTER);
    check(&json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["9.9.9.9"]}}), "9.9.9.9 |  | ");
}

#[test]
fn without_cluster_servers_the_nodes_are_used_and_the_owner_is_told() {
    let node = NodeDns { cluster_dns: Vec::new(), ..node() };
    check_on(
        &node,
        &json!({"dnsPolicy": "ClusterFirst"}),
        "1.1.1.1 | home lan | timeout:2\nMissingClusterDNS: pod: \"p_ns(u)\". kubelet does not have ClusterDNS IP \
         configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
    );
    check_on(&node, &json!({"dnsPolicy": "Default"}), HOST);
}

#[test]
fn without_a_cluster_domain_only_the_nodes_searches_remain() {
    let node = NodeDns { cluster_domain: String::new(), ..node() };
    check_on(&node, &json!({}), "10.96.0.10 | home lan | ndots:5");
}

#[test]
fn without_a_resolv_conf_lookups_are_off() {
    let off = NodeDns { resolv_conf: None, ..node() };
    check_on(&off, &json!({"dnsPolicy": "Default"}), "127.0.0.1 | . | ");
    let six = NodeDns { node_ips: vec!["fd00::1".parse().unwrap()], ..off.clone() };
    check_on(&six, &json!({"dnsPolicy": "Default"}), "::1 | . | ");
    let unknown = NodeDns { node_ips: Vec::new(), ..off };
    check_on(&unknown, &json!({"dnsPolicy": "Default"}), "127.0.0.1 | . | ");
}

#[test]
fn a_pods_own_wishes_are_added_and_its_options_win() {
    let wishes = json!({
        "nameservers": ["9.9.9.9", "10.96.0.10"],
        "searches": ["lan", "mine"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
    });
    check(
        &json!({"dnsConfig": wishes}),
        "10.96.0.10 9.9.9.9 | ns.svc.cluster.local svc.cluster.local cluster.local home lan mine | ndots:2 edns0",
    );
}

#[test]
fn no_more_servers_than_resolvers_ask() {
    check(
        &json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"]}}),
        "1.0.0.1 1.0.0.2 1.0.0.3 |  | \nDNSConfigForming: Nameserver limits were exceeded, some nameservers have been \
         omitted, the applied nameserver line is: 1.0.0.1 1.0.0.2 1.0.0.3",
    );
}

/// What remains of these searches.
fn limited(searches: &[String]) -> (Vec<String>, usize) {
    let wishes =
        json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": searches}});
    let PodDns { dns, warnings } = compute_pod_dns(&pod(&wishes), &node()).unwrap();
    (dns.searches, warnings.len())
}

#[test]
fn searches_are_limited_in_number_in_length_and_together() {
    let many: Vec<_> = (0..40).map(|n| format!("d{n}")).collect();
    assert_eq!(limited(&many), (many[..32].to_vec(), 1));
    let long = vec!["a".repeat(254), "b".to_owned()];
    assert_eq!(limited(&long), (vec!["b".to_owned()], 1));
    let wide: Vec<_> = (0..12).map(|n| format!("{n:0200}")).collect();
    assert_eq!(limited(&wide), (wide[..10].to_vec(), 1));
    let fine = vec!["a".to_owned()];
    assert_eq!(limited(&fine), (fine, 0));
}

#[test]
fn a_resolv_conf_is_read_line_by_line() {
    let check = |text: &str, expected: &str| {
        let found = parse_resolv_conf(text).map_or_else(|e| format!("! {e}"), |dns| show(&dns));
        assert_eq!(found, expected, "{text}");
    };
    check("", " |  | ");
    check("# nameserver 9.9.9.9\n; x\nnameserver 1.1.1.1 # mine\n  nameserver  ::1", "1.1.1.1 ::1 |  | ");
    check("search a. b .\n", " | a b . | ");
    check("search a\nsearch b c", " | b c | ");
    check("domain x\nsortlist 1.2.3.4\n", " |  | ");
    check("options ndots:1 rotate\noptions ndots:3", " |  | ndots:3 rotate");
    check("\nnameserver\n", "! resolv.conf line 2: nameserver without an address");
}

#[test]
fn a_broken_resolv_conf_matters_only_where_it_is_used() {
    let node = NodeDns { resolv_conf: Some("nameserver".to_owned()), ..node() };
    let broken = "! resolv.conf line 1: nameserver without an address";
    check_on(&node, &json!({"dnsPolicy": "Default"}), broken);
    check_on(
        &node,
        &json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["9.9.9.9"]}}),
        "9.9.9.9 |  | ",
    );
}

#[test]
fn the_nodes_own_file_leaves_room_for_the_clusters_domains() {
    let with = |searches: usize| {
        let text = format!("search {}", (0..searches).map(|n| format!("d{n} ")).collect::<String>());
        check_resolv_conf("/etc/resolv.conf", &text, "cluster.local").map(|w| w.message)
    };
    assert_eq!(with(29), None);
    assert_eq!(
        with(30).as_deref(),
        Some("Resolv.conf file '/etc/resolv.conf' contains search line consisting of more than 29 domains!")
    );
}

proptest! {
    #[test]
    fn any_text_is_answered_without_a_panic(text in "[a-z:. \t\n#]{0,80}") {
        let node = NodeDns { resolv_conf: Some(text), ..node() };
        if let Ok(PodDns { dns, .. }) = compute_pod_dns(&pod(&json!({})), &node) {
            prop_assert!(dns.servers.len() <= 3 && dns.searches.len() <= 32);
        }
    }
}
