//! The text of a pod's `/etc/hosts` (docs/behaviour/pod-environment.md).

use std::fmt::Write as _;
use std::net::IpAddr;

use model::containers::spec_of;
use model::k8s::{HostAlias, Pod};

use crate::pods::hostname::PodHostname;

const LOCAL_NAMES: &str = "\
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
";

/// The file of a pod with IP addresses of its own.
#[must_use]
pub fn pod_hosts_file(pod: &Pod, hostname: &PodHostname, pod_ips: &[IpAddr]) -> String {
    let mut text = format!("# Kubernetes-managed hosts file.\n{LOCAL_NAMES}");
    let PodHostname { name, domain } = hostname;
    for ip in pod_ips {
        // Writing to a String cannot fail.
        let _ = if domain.is_empty() {
            writeln!(text, "{ip}\t{name}")
        } else {
            writeln!(text, "{ip}\t{name}.{domain}\t{name}")
        };
    }
    text + &alias_lines(pod)
}

/// The file of a pod in the node's network namespace: the node's own.
#[must_use]
pub fn host_network_hosts_file(pod: &Pod, node_file: &str) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{node_file}{}", alias_lines(pod))
}

fn alias_lines(pod: &Pod) -> String {
    let aliases = spec_of(pod).host_aliases.as_deref().unwrap_or_default();
    if aliases.is_empty() {
        return String::new();
    }
    let line = |HostAlias { ip, hostnames }: &HostAlias| {
        format!("{ip}\t{}\n", hostnames.as_deref().unwrap_or_default().join("\t"))
    };
    format!("\n# Entries added by HostAliases.\n{}", aliases.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::hostname::compute_hostname;
    use expect_test::{Expect, expect};

    fn pod(spec: &str) -> Pod {
        let text = format!(r#"{{"metadata": {{"name": "p", "namespace": "ns"}}, "spec": {spec}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "expect! makes values")]
    fn check(spec: &str, ips: &str, expected: Expect) {
        let pod = pod(spec);
        let ips: Vec<IpAddr> = ips.split_whitespace().map(|ip| ip.parse().unwrap()).collect();
        let hostname = compute_hostname(&pod, "cluster.local", config::Features::default()).unwrap();
        expected.assert_eq(&pod_hosts_file(&pod, &hostname, &ips).replace('\t', "|"));
    }

    #[test]
    fn a_pod_finds_itself_by_name() {
        check(
            r#"{"containers": []}"#,
            "10.0.0.7",
            expect![[r#"
                # Kubernetes-managed hosts file.
                127.0.0.1|localhost
                ::1|localhost ip6-localhost ip6-loopback
                fe00::0|ip6-localnet
                fe00::0|ip6-mcastprefix
                fe00::1|ip6-allnodes
                fe00::2|ip6-allrouters
                10.0.0.7|p
            "#]],
        );
    }

    #[test]
    fn every_address_has_the_full_name_first_and_aliases_follow() {
        check(
            r#"{"containers": [], "hostname": "h", "subdomain": "s",
                "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}, {"ip": "::5", "hostnames": ["c"]}]}"#,
            "10.0.0.7 fd00::7",
            expect![[r#"
                # Kubernetes-managed hosts file.
                127.0.0.1|localhost
                ::1|localhost ip6-localhost ip6-loopback
                fe00::0|ip6-localnet
                fe00::0|ip6-mcastprefix
                fe00::1|ip6-allnodes
                fe00::2|ip6-allrouters
                10.0.0.7|h.s.ns.svc.cluster.local|h
                fd00::7|h.s.ns.svc.cluster.local|h

                # Entries added by HostAliases.
                1.2.3.4|a|b
                ::5|c
            "#]],
        );
    }

    #[test]
    fn on_the_nodes_network_the_nodes_file_is_kept() {
        let pod = pod(r#"{"containers": [], "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a"]}]}"#);
        assert_eq!(
            host_network_hosts_file(&pod, "127.0.0.1 localhost node\n"),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost node\n\n\
             # Entries added by HostAliases.\n1.2.3.4\ta\n"
        );
    }
}
