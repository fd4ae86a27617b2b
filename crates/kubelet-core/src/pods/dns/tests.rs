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

/// Servers, searches and options, then the events.
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
fn cluster_first_without_cluster_dns_uses_the_node_servers_and_records_an_event() {
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
fn dns_config_of_the_pod_is_added_and_its_options_take_precedence() {
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
fn nameservers_are_limited_to_three() {
    check(
        &json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"]}}),
        "1.0.0.1 1.0.0.2 1.0.0.3 |  | \nDNSConfigForming: Nameserver limits were exceeded, some nameservers have been \
         omitted, the applied nameserver line is: 1.0.0.1 1.0.0.2 1.0.0.3",
    );
}

/// The remaining search domains.
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
    check("search a. b .\n", " | a b | ");
    check("search a\nsearch b c", " | b c | ");
    check("domain x\nsortlist 1.2.3.4\n", " |  | ");
    check("options ndots:1 rotate\noptions ndots:3", " |  | ndots:3 rotate");
    check("\nnameserver\n", "! resolv.conf line 2: nameserver without an address");
}

/// The table of `dns_test.go` (TestParseResolvConf). Options are a set there; ours keep the order of their names.
#[test]
fn resolv_conf_table_of_the_go_kubelet() {
    let table = [
        ("", " |  | "),
        (" ", " |  | "),
        ("\n", " |  | "),
        ("\t\n\t", " |  | "),
        ("#comment\n", " |  | "),
        (" #comment\n", " |  | "),
        ("#comment\n#comment", " |  | "),
        ("#comment\nnameserver", "!"),
        ("#comment\nnameserver\nsearch", "!"),
        ("#comment\nnameserver 1.2.3.4\nsearch", "1.2.3.4 |  | "),
        ("nameserver 1.2.3.4", "1.2.3.4 |  | "),
        (" nameserver 1.2.3.4", "1.2.3.4 |  | "),
        ("\tnameserver 1.2.3.4", "1.2.3.4 |  | "),
        ("nameserver\t1.2.3.4", "1.2.3.4 |  | "),
        ("nameserver \t 1.2.3.4", "1.2.3.4 |  | "),
        ("nameserver 1.2.3.4\nnameserver 5.6.7.8", "1.2.3.4 5.6.7.8 |  | "),
        ("nameserver 1.2.3.4 #comment", "1.2.3.4 |  | "),
        ("search ", " |  | "),
        ("search .", " |  | "),
        ("search . foo", " | foo | "),
        ("search foo .", " | foo | "),
        ("search foo .  bar", " | foo bar | "),
        ("search foo", " | foo | "),
        ("search foo bar", " | foo bar | "),
        ("search foo. bar", " | foo bar | "),
        ("search foo bar bat\n", " | foo bar bat | "),
        ("search foo\nsearch bar", " | bar | "),
        ("nameserver 1.2.3.4\nsearch foo bar", "1.2.3.4 | foo bar | "),
        ("nameserver 1.2.3.4\nsearch foo\nnameserver 5.6.7.8\nsearch bar", "1.2.3.4 5.6.7.8 | bar | "),
        ("#comment\nnameserver 1.2.3.4\n#comment\nsearch foo\ncomment", "1.2.3.4 | foo | "),
        ("options ", " |  | "),
        ("options ndots:5 attempts:2", " |  | ndots:5 attempts:2"),
        ("options ndots:1 ndots:5 attempts:2", " |  | ndots:5 attempts:2"),
        (
            "options ndots:1 edns0 attempts:2 single-request-reopen",
            " |  | ndots:1 edns0 attempts:2 single-request-reopen",
        ),
        ("options ndots:1\noptions ndots:5 attempts:3", " |  | ndots:5 attempts:3"),
        (
            "options ndots:1 timeout:3 timeout:1 attempts:3\noptions ndots:5",
            " |  | ndots:5 timeout:1 attempts:3",
        ),
        ("options ndots:1 attempts:3\noptions ndots:1 attempts:3 ndots:5", " |  | ndots:5 attempts:3"),
        (
            "nameserver 1.2.3.4\nsearch foo\nnameserver 5.6.7.8\nsearch bar\noptions ndots:5 attempts:4",
            "1.2.3.4 5.6.7.8 | bar | ndots:5 attempts:4",
        ),
    ];
    for (text, expected) in table {
        let found = parse_resolv_conf(text).map_or_else(|_| "!".to_owned(), |dns| show(&dns));
        assert_eq!(found, expected, "{text:?}");
    }
}

/// The limits of `dns_test.go` (TestFormDNSSearchFitsLimits, TestFormDNSNameserversFitsLimits).
#[test]
fn search_and_nameserver_limits_of_the_go_kubelet() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let cluster = words("testNS.svc.TEST svc.TEST TEST");
    let with = |more: &[String]| [cluster.clone(), more.to_vec()].concat();
    let numbers = |last: usize| with(&(4..=last).map(|n| n.to_string()).collect::<Vec<_>>());
    let mut full = vec!["A".repeat(128)];
    full.extend((0..15).map(|_| "A".repeat(127)));
    let long = with(&words(&format!("AAA {} BBB", "B".repeat(256))));
    let table = [
        (cluster.clone(), cluster.clone(), false),
        (with(&words("AAA BBB")), with(&words("AAA BBB")), false),
        (long, with(&words("AAA BBB")), true),
        (with(&words("AAA BBB CCC DDD")), with(&words("AAA BBB CCC DDD")), false),
        (numbers(32), numbers(32), false),
        (numbers(33), numbers(32), true),
    ];
    for (searches, expected, is_limited) in table {
        let wishes = json!({"dnsPolicy": "None", "dnsConfig": {"searches": searches}});
        let PodDns { dns, warnings } = compute_pod_dns(&pod(&wishes), &node()).unwrap();
        let text = format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            expected.join(" ")
        );
        assert_eq!(dns.searches, expected);
        let messages: Vec<_> = warnings.into_iter().map(|warning| warning.message).collect();
        assert_eq!(messages, if is_limited { vec![text] } else { Vec::new() });
    }
    // 2048 characters fit and 2050 do not. Equal domains count once in a pod's own list, so that limit is tested alone.
    let mut dns = DnsRequest { searches: full.clone(), ..DnsRequest::default() };
    let mut warnings = Vec::new();
    limit_searches(&mut dns, &mut warnings);
    assert_eq!((&dns.searches, warnings.len()), (&full, 0));
    dns.searches.push("B".to_owned());
    limit_searches(&mut dns, &mut warnings);
    assert_eq!((dns.searches, warnings.len()), (full, 1));
}

/// `dns_test.go`, TestGetPodDNSType and TestGetPodDNSCustom.
#[test]
fn dns_policy_table_of_the_go_kubelet() {
    let node = NodeDns {
        cluster_dns: vec!["10.0.0.10".parse().unwrap()],
        cluster_domain: "kubernetes.io".to_owned(),
        resolv_conf: Some("nameserver 8.8.8.8\nsearch host.domain\n".to_owned()),
        node_ips: Vec::new(),
    };
    let wishes = |servers: &[&str], searches: &[&str]| {
        json!({"nameservers": servers, "searches": searches,
               "options": [{"name": "ndots", "value": "3"}, {"name": "debug"}]})
    };
    let own = wishes(&["10.0.0.11"], &["my.domain"]);
    let cluster = "10.0.0.10 10.0.0.11 | ns.svc.kubernetes.io svc.kubernetes.io kubernetes.io host.domain my.domain | \
                   ndots:3 debug";
    let host = "8.8.8.8 10.0.0.11 | host.domain my.domain | ndots:3 debug";
    check_on(&node, &json!({"dnsPolicy": "None"}), " |  | ");
    check_on(
        &node,
        &json!({"dnsPolicy": "None", "dnsConfig": wishes(&["203.0.113.1"], &["my.domain", "second.domain"])}),
        "203.0.113.1 | my.domain second.domain | ndots:3 debug",
    );
    for (policy, host_network, expected) in [
        ("ClusterFirst", false, cluster),
        ("ClusterFirst", true, host),
        ("ClusterFirstWithHostNet", true, cluster),
        ("ClusterFirstWithHostNet", false, cluster),
        ("Default", false, host),
        ("Default", true, host),
        // A value that the API rejects falls back to ClusterFirst, whatever the network.
        ("invalidPolicy", false, cluster),
        ("invalidPolicy", true, cluster),
    ] {
        let spec = json!({"dnsPolicy": policy, "hostNetwork": host_network, "dnsConfig": own});
        check_on(&node, &spec, expected);
    }
}

#[test]
fn invalid_resolv_conf_is_an_error_only_if_it_is_used() {
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
fn node_resolv_conf_leaves_space_for_the_cluster_domains() {
    let with = |searches: usize| {
        let text = format!("search {}", (0..searches).map(|n| format!("d{n} ")).collect::<String>());
        check_resolv_conf("/etc/resolv.conf", &text, "cluster.local").map(|w| w.message)
    };
    assert_eq!(with(29), None);
    let long = check_resolv_conf("/etc/resolv.conf", &format!("search {}", "a".repeat(254)), "cluster.local");
    assert_eq!(
        long.map(|w| w.message).as_deref(),
        Some(
            "Resolv.conf file \"/etc/resolv.conf\" contains a search path which length is more than allowed 253 chars!"
        )
    );
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

/// The API server takes any number of options, as far as the pod fits into a request. Compared with each other one by one,
/// these would stop the kubelet for minutes.
#[test]
fn dns_config_with_a_hundred_thousand_options_is_merged_at_once() {
    let names = (0..100_000).map(|n| n.to_string());
    let options: Vec<Value> = names.clone().chain(names).map(|name| json!({"name": name})).collect();
    let searches: Vec<String> = (0..100_000).map(|n| format!("d{n}")).collect();
    let spec = json!({"dnsPolicy": "None", "dnsConfig": {"options": options, "searches": searches}});
    let dns = compute_pod_dns(&pod(&spec), &node()).unwrap().dns;
    assert_eq!((dns.options.len(), dns.searches.len()), (100_000, MAX_SEARCHES));
    let file = (0..100_000).map(|n| format!("options a{n}\n")).collect::<String>();
    assert_eq!(parse_resolv_conf(&file).unwrap().options.len(), 100_000);
}
