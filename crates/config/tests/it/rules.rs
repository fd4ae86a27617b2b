//! Validation: settings, and the exact error lines for them. Most are in the table `rules.tsv`.

use crate::support::{Memory, resolve};
use config::{GoDuration, MachineFacts, NodeFlags};

/// The errors of a file with these lines.
fn errors(body: &str) -> String {
    resolve("--config /k.yaml", &Memory::default().with("/k.yaml", body)).err().unwrap_or_default()
}

/// What a line of the table should say instead, if it is wrong.
fn difference(line: &str) -> Option<String> {
    let (setting, expected) = line.split_once('\t').unwrap_or((line, ""));
    let found = if setting.starts_with("--") {
        resolve(setting, &Memory::default()).err().unwrap_or_default()
    } else {
        errors(&(setting.replace("\\n", "\n") + "\n"))
    };
    let found = found.strip_prefix("invalid configuration: ").unwrap_or(&found).replace('\n', "\\n");
    (found != expected).then(|| format!("{setting}\n  is      {found}\n  must be {expected}"))
}

#[test]
fn each_setting_of_the_table_is_accepted_or_refused_with_its_error_line() {
    let cases = include_str!("rules.tsv").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let differences: Vec<String> = cases.filter_map(difference).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_invalid_setting_has_its_own_error_line() {
    let lines = errors("maxPods: -1\nport: 0\noomScoreAdj: 2000\nhairpinMode: wild\nport: 70000\n");
    assert_eq!(lines.lines().count(), 4, "{lines}");
}

#[test]
fn run_once_is_allowed_without_an_api_server() {
    assert_eq!(errors("runOnce: true\n"), "");
    let files = Memory::default().with("/k.yaml", "runOnce: true\n");
    let wrong = resolve("--config /k.yaml --kubeconfig /x", &files).expect_err("refused");
    assert_eq!(
        wrong,
        "invalid configuration: runOnce (--runonce) true needs a kubelet without an API server, but --kubeconfig is set"
    );
}

#[track_caller]
fn check_flags(line: &str, expected: &str) {
    let found = resolve(line, &Memory::default()).err().unwrap_or_default();
    assert_eq!(found.strip_prefix("invalid configuration: ").unwrap_or(&found), expected, "{line}");
}

#[test]
fn node_labels_that_the_control_plane_trusts_are_rejected() {
    for fine in [
        "color=red",
        "example.com/zone=a",
        "kubelet.kubernetes.io/x=1",
        "a.node.kubernetes.io/x=1",
        "kubernetes.io/hostname=h",
        "kubernetes.io/os=linux",
        "beta.kubernetes.io/instance-type=big",
        "node.kubernetes.io/instance-type=big",
        "failure-domain.beta.kubernetes.io/zone=z",
        "topology.kubernetes.io/region=r",
        "notkubernetes.io/x=1",
    ] {
        check_flags(&format!("--node-labels {fine}"), "");
    }
    for bad in ["kubernetes.io/x=1", "k8s.io/x=1", "foo.kubernetes.io/x=1", "node-role.kubernetes.io/master="]
    {
        let found = resolve(&format!("--node-labels {bad}"), &Memory::default()).expect_err(bad);
        assert!(
            found.contains("--node-labels is") && found.contains("but must be outside kubernetes.io"),
            "{found}"
        );
    }
}

#[test]
fn cgroup_v1_and_swap_are_checked_against_the_machine() {
    let on = |body: &str, cgroup_v1, swap_on| {
        let files = Memory::default().with("/k.yaml", body);
        let resolved = resolve("--config /k.yaml", &files).expect("valid");
        match resolved.check_machine(&MachineFacts { cgroup_v1, swap_on }) {
            Ok(warnings) => warnings.join("\n"),
            Err(errors) => format!("error: {errors}"),
        }
    };
    assert_eq!(on("", false, false), "");
    assert!(on("", true, false).starts_with("error: invalid configuration: this machine uses cgroup v1"));
    assert_eq!(
        on("failCgroupV1: false\n", true, false),
        "cgroup v1 support is in maintenance mode, please migrate to cgroup v2"
    );
    assert!(on("", false, true).contains("failSwapOn (--fail-swap-on)"));
    assert_eq!(on("failSwapOn: false\n", false, true), "");
    let limited = "failCgroupV1: false\nfailSwapOn: false\nmemorySwap: {swapBehavior: LimitedSwap}\n";
    assert!(on(limited, true, true).contains("memorySwap.swapBehavior is LimitedSwap"));
    assert_eq!(on(limited, false, true), "");
    assert!(
        on("failCgroupV1: false\nsingleProcessOOMKill: false\n", true, false)
            .contains("singleProcessOOMKill")
    );
    assert_eq!(on("singleProcessOOMKill: false\n", false, false), "");
}

#[test]
fn node_name_is_the_hostname_override_or_the_host_name_in_lower_case() {
    let named = |hostname_override: &str, hostname: &str| {
        let flags = NodeFlags { hostname_override: hostname_override.to_owned(), ..NodeFlags::default() };
        flags.node_name(hostname).map_err(|error| error.to_string())
    };
    assert_eq!(named("", " Node-1.Example.COM\n"), Ok("node-1.example.com".to_owned()));
    assert_eq!(named("Other", "node"), Ok("other".to_owned()));
    assert!(named("", "").is_err_and(|error| error.contains("the host name is \"\"")));
    assert!(
        named("under_score", "x")
            .is_err_and(|error| error.contains("--hostname-override is \"under_score\""))
    );
    assert!(named("", &"a".repeat(254)).is_err());
}

#[test]
fn node_ips_are_parsed() {
    let flags = resolve("--node-ip 10.0.0.1,fd00::1", &Memory::default()).expect("valid").flags;
    let expected: Vec<std::net::IpAddr> =
        vec!["10.0.0.1".parse().expect("v4"), "fd00::1".parse().expect("v6")];
    assert_eq!(flags.node_ips(), expected);
    assert_eq!(GoDuration::from_secs(10).as_std(), flags.housekeeping_interval.into());
}
