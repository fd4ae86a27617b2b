//! Addresses of pods and of their node.

use super::super::scenario::play;

/// Address lines: pod addresses, then node addresses.
#[track_caller]
fn check_addresses(script: &str, expected: &str) {
    let (_, played) = play(script);
    let status = played.last().expect("a scenario");
    let pod_ips: Vec<_> = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    let host_ips: Vec<_> = status.host_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    assert_eq!(status.pod_ip, pod_ips.first().cloned(), "{script}");
    assert_eq!(status.host_ip, host_ips.first().cloned(), "{script}");
    assert_eq!(format!("pod {} host {}", pod_ips.join(","), host_ips.join(",")), expected, "{script}");
}

#[test]
fn a_pod_has_one_address_of_each_family_the_nodes_first() {
    check_addresses("pod a | box=none", "pod  host 192.168.0.1");
    check_addresses("pod a | a=running", "pod 10.0.0.1 host 192.168.0.1");
    check_addresses("pod a | a=running ip=fd00::1,10.0.0.1", "pod 10.0.0.1,fd00::1 host 192.168.0.1");
    check_addresses("pod a | a=running ip=10.0.0.1,fd00::1 host=fd::1", "pod fd00::1,10.0.0.1 host fd::1");
    check_addresses(
        "pod a | a=running ip=10.0.0.1,10.0.0.2,fd00::1",
        "pod 10.0.0.1,fd00::1 host 192.168.0.1",
    );
    check_addresses("pod a | a=running ip=fd00::1 host=", "pod fd00::1 host ");
}

#[test]
fn a_stopped_pod_keeps_its_address() {
    check_addresses("pod a | a=running | a=exited(0) box=notready", "pod 10.0.0.1 host 192.168.0.1");
    check_addresses("pod a | a=running | box=none", "pod 10.0.0.1 host 192.168.0.1");
    check_addresses("pod a was=10.9.9.9 | unseen", "pod 10.9.9.9 host 192.168.0.1");
}

#[test]
fn a_new_sandbox_without_address_has_none() {
    check_addresses("pod a | a=running | box=noip", "pod  host 192.168.0.1");
}

#[test]
fn a_host_network_pod_shares_the_nodes_addresses() {
    check_addresses("pod a hostnet | a=running ip=", "pod 192.168.0.1 host 192.168.0.1");
    check_addresses(
        "pod a hostnet | a=running host=10.1.1.1,fd::1",
        "pod 10.1.1.1,fd::1 host 10.1.1.1,fd::1",
    );
    check_addresses(
        "pod a hostnet | a=running host=10.1.1.1 | a=running host=10.2.2.2",
        "pod 10.1.1.1 host 10.2.2.2",
    );
    check_addresses(
        "pod a hostnet | a=running host=10.1.1.1 | a=running host=10.1.1.1,fd::1",
        "pod 10.1.1.1,fd::1 host 10.1.1.1,fd::1",
    );
    check_addresses(
        "pod a hostnet | a=running host=10.1.1.1 | a=running host=fd::1,10.1.1.1",
        "pod 10.1.1.1 host fd::1,10.1.1.1",
    );
    check_addresses("pod a hostnet | a=running | a=running host=", "pod 192.168.0.1 host 192.168.0.1");
}
