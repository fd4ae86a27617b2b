//! The values of the Go kubelet's table of `qos/policy_test.go` (TestGetContainerOOMScoreAdjust, 1.36).

use model::containers::find_container;
use model::k8s::Pod;
use model::qos::limit;
use serde_json::{Value, json};

use super::super::resources::oom_score_adj;

/// Half of it, an eighth, … are the requests of the table.
const MEMORY: u64 = 8_000_000_000;

/// `cpu request/limit memory request/limit`, `-` for none.
fn resources(text: &str) -> Value {
    let mut all = json!({"requests": {}, "limits": {}});
    for word in text.split_whitespace() {
        let (name, amounts) = word.split_once('=').unwrap();
        let (request, limit) = amounts.split_once('/').unwrap();
        for (kind, amount) in [("requests", request), ("limits", limit)] {
            if amount != "-" {
                all[kind][name] = amount.into();
            }
        }
    }
    all
}

/// Containers are `name: resources`, after `init` or `sidecar`; a line `pod: resources` is about the pod.
fn pod(lines: &[&str]) -> Pod {
    let mut spec = json!({"initContainers": [], "containers": []});
    for line in lines {
        let (who, text) = line.split_once(':').unwrap();
        if who == "pod" {
            spec["resources"] = resources(text);
            continue;
        }
        let (kind, name) = who.split_once(' ').unwrap_or(("", who));
        let mut container = json!({"name": name, "resources": resources(text)});
        if kind == "sidecar" {
            container["restartPolicy"] = "Always".into();
        }
        let list = if kind.is_empty() { "containers" } else { "initContainers" };
        spec[list].as_array_mut().unwrap().push(container);
    }
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

#[track_caller]
fn check(lines: &[&str], capacity: u64, expected: &[(&str, std::ops::RangeInclusive<i64>)]) {
    let pod = pod(lines);
    for (name, range) in expected {
        let found = oom_score_adj(&pod, &find_container(&pod, name).unwrap(), capacity);
        assert!(range.contains(&found), "{lines:?} {name}: {found}, expected {range:?}");
    }
}

const EIGHTH: &str = "memory=1000000000/1000001000";

#[test]
fn get_container_oom_score_adjust_table() {
    // Without a request the limit counts as one, as the API server's defaults have it: the row of the Go kubelet with a
    // limit of memory alone names its request of zero here.
    check(&["a: cpu=-/10"], 4_000_000_000, &[("a", 999..=999)]);
    check(&["a: cpu=0/- memory=0/10G"], MEMORY, &[("a", 999..=999)]);
    check(&["a: memory=-/0"], 7_230_457_451, &[("a", 1000..=1000)]);
    check(&["a:"], 4_000_000_000, &[("a", 1000..=1000)]);
    check(&["a: cpu=5m/5m memory=10G/10G"], 123_456_789, &[("a", -997..=-997)]);
    check(&["a: cpu=5m/- memory=4000000000/10G"], MEMORY, &[("a", 495..=505)]);
    check(&["a: cpu=5m/- memory=7999999999/-"], MEMORY, &[("a", 3..=3)]);
    let main = format!("a: {EIGHTH}");
    check(&[&main], MEMORY, &[("a", 875..=880)]);
    let init = format!("init i: {EIGHTH}");
    check(&[&init, &main], MEMORY, &[("i", 875..=880), ("a", 875..=880)]);
    for (sidecar, score) in [("400000000", 875), ("1000000000", 875), ("4000000000", 500)] {
        let sidecar = format!("sidecar s: memory={sidecar}/1000001000");
        let expected = [("i", 875..=880), ("s", score..=score), ("a", 875..=875)];
        check(&[&init, &sidecar, &main], MEMORY, &expected);
    }
}

#[test]
fn get_container_oom_score_adjust_table_of_critical_pods() {
    for (class, score) in [("system-cluster-critical", 1000), ("system-node-critical", -997)] {
        let mut pod = pod(&["a:"]);
        pod.spec.as_mut().unwrap().priority_class_name = Some(class.to_owned());
        assert_eq!(oom_score_adj(&pod, &find_container(&pod, "a").unwrap(), 4_000_000_000), score, "{class}");
    }
}

#[test]
fn get_container_oom_score_adjust_table_with_pod_level_resources() {
    const CAPACITY: u64 = 4_000_000_000;
    let guaranteed = "pod: cpu=5m/5m memory=2000000000/2000000000";
    let burstable = "pod: cpu=5m/5m memory=2000000000/2000001000";
    let own = "cpu=5m/5m memory=1000000000/1000000000";
    let less = "cpu=3m/5m memory=1000000000/1000000000";
    let all = |score: i64| [("a", score..=score), ("b", score..=score)];
    let (a, b) = (format!("a: {own}"), format!("b: {own}"));
    let (smaller, sidecar) = (format!("a: {less}"), format!("sidecar b: {own}"));
    check(&[guaranteed, "a:", "b:"], CAPACITY, &all(-997));
    check(&[guaranteed, &a, &b], CAPACITY, &all(-997));
    check(&[guaranteed, &smaller, "b:"], CAPACITY, &all(-997));
    check(&[burstable, "a:", "b:"], CAPACITY, &all(750));
    check(&[burstable, &a, &b], CAPACITY, &all(750));
    check(&[burstable, &smaller, "b:"], CAPACITY, &[("a", 625..=625), ("b", 875..=875)]);
    check(&[burstable, "a:", "sidecar b:"], CAPACITY, &all(750));
    check(&[burstable, &a, &sidecar], CAPACITY, &all(750));
    check(
        &[
            burstable,
            "a: cpu=5m/5m memory=1000000000/2000001000",
            "b: cpu=5m/5m memory=500000000/2000001000",
            "sidecar s: cpu=5m/5m memory=200000000/2000001000",
        ],
        CAPACITY,
        &[("a", 725..=725), ("b", 850..=850), ("s", 850..=850)],
    );
}

/// `cm/helpers_linux_test.go`, TestMilliCPUToQuota; a limit of nothing is none, so that its row has no quota here.
#[test]
fn milli_cpu_to_quota_table() {
    for (milli, quota) in
        [(5, 1000), (9, 1000), (10, 1000), (200, 20_000), (500, 50_000), (1000, 100_000), (1500, 150_000)]
    {
        assert_eq!(resources_core::cgroup::convert::cpu_quota(milli, 100_000), quota, "{milli}");
    }
    let none = serde_json::from_value(json!({"limits": {"cpu": "0"}})).unwrap();
    assert_eq!(limit(&none, "cpu"), None);
}
