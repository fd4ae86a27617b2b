//! The values of the Go kubelet's tables of `cm/helpers_linux_test.go` (TestResourceConfigForPod, …WithEnforceMemoryQoS and
//! TestHugePageLimits, 1.36). Without CPU limits it writes the period too; here the period stays as it is.

use base_core::node_facts::MemoryQos;
use serde_json::{Value, json};

use super::super::numbers::{CgroupNumbers, CpuQuota};
use super::super::pod::{PodRules, compute_pod_numbers};
use super::{pod, rules};

/// `100m,100Mi/200m,200Mi`: requests and limits of CPU and memory.
fn resources(text: &str) -> Value {
    let (requests, limits) = text.split_once('/').unwrap();
    let list = |text: &str| {
        let mut all = json!({});
        if let Some((cpu, memory)) = text.split_once(',') {
            all = json!({"cpu": cpu, "memory": memory});
        }
        all
    };
    json!({"requests": list(requests), "limits": list(limits)})
}

fn show(numbers: &CgroupNumbers) -> String {
    let mut words = vec![format!("shares={}", numbers.cpu_shares.unwrap())];
    if let Some(CpuQuota { micros, period }) = numbers.cpu_quota {
        words.push(format!("quota={}", micros.map_or_else(|| "max".to_owned(), |micros| micros.to_string())));
        words.extend(period.map(|period| format!("period={period}")));
    }
    let mebibytes = |name: &str, bytes: Option<i64>| bytes.map(|bytes| format!("{name}={}Mi", bytes >> 20));
    words.extend(mebibytes("memory", numbers.memory_limit));
    words.extend(mebibytes("min", numbers.memory_min));
    words.extend(mebibytes("low", numbers.memory_low));
    words.join(" ")
}

/// The pod's own resources (or none), init containers, containers; the period (0: no limits are enforced).
#[track_caller]
fn check(own: Option<&str>, init: &[&str], containers: &[&str], period: i64, expected: &str) {
    let all = |list: &[&str]| {
        let one = |text: &&str| json!({"name": "c", "resources": resources(text)});
        list.iter().map(one).collect::<Vec<_>>()
    };
    let mut spec = json!({"initContainers": all(init), "containers": all(containers)});
    if let Some(own) = own {
        spec["resources"] = resources(own);
    }
    let rules = PodRules { cpu_quota_period: (period > 0).then_some(period), ..rules() };
    let found = compute_pod_numbers(&pod(spec), &rules);
    assert_eq!(show(&found), expected, "{own:?} {init:?} {containers:?} {period}");
}

const LIMITED: &str = "100m,100Mi/200m,200Mi";
const GUARANTEED: &str = "100m,100Mi/100m,100Mi";

#[test]
fn resource_config_for_pod_table() {
    check(None, &[], &["/"], 100_000, "shares=2");
    check(None, &[], &["100m,100Mi/"], 100_000, "shares=102");
    for (period, quota) in [(100_000, "quota=20000 period=100000"), (5000, "quota=1000 period=5000")] {
        check(None, &[], &[LIMITED], period, &format!("shares=102 {quota} memory=200Mi"));
        check(None, &[], &[LIMITED, "100m,100Mi/"], period, "shares=204");
    }
    check(None, &[], &[LIMITED], 0, "shares=102 quota=max memory=200Mi");
    check(None, &[], &[GUARANTEED], 100_000, "shares=102 quota=10000 period=100000 memory=100Mi");
    check(None, &[], &[GUARANTEED], 5000, "shares=102 quota=1000 period=5000 memory=100Mi");
    check(None, &[], &[GUARANTEED], 0, "shares=102 quota=max memory=100Mi");
    let partial = ["100m,100m/100m,100Mi", "100m,100m/"];
    check(None, &partial, &partial, 5000, "shares=204");
}

#[test]
fn resource_config_for_pod_table_with_pod_level_resources() {
    check(Some("/"), &[], &["/"], 100_000, "shares=2");
    check(Some("100m,100Mi/"), &[], &["/"], 100_000, "shares=102");
    check(Some("100m,100Mi/"), &[], &["10m,50Mi/"], 100_000, "shares=102");
    let limited = "shares=102 quota=20000 period=100000 memory=200Mi";
    check(Some(LIMITED), &[], &["/"], 100_000, limited);
    check(Some(LIMITED), &[], &["10m,50Mi/50m,100Mi"], 100_000, limited);
    check(
        Some("200m,300Mi/"),
        &[],
        &["200m,200Mi/200m,200Mi"],
        100_000,
        "shares=204 quota=20000 period=100000 memory=200Mi",
    );
    let guaranteed = "shares=102 quota=10000 period=100000 memory=100Mi";
    check(Some(GUARANTEED), &[], &["/"], 100_000, guaranteed);
    check(Some(GUARANTEED), &[], &["10m,50Mi/50m,100Mi"], 100_000, guaranteed);
    check(Some(GUARANTEED), &["10m,50Mi/50m,50Mi"], &["10m,50Mi/50m,50Mi"], 100_000, guaranteed);
}

#[test]
fn resource_config_for_pod_with_memory_qos_table() {
    let rules = PodRules { memory_qos: MemoryQos::Reservation, ..rules() };
    for (containers, expected) in [
        (vec!["/"], ""),
        (vec!["100m,100Mi/"], "low=100Mi"),
        (vec![LIMITED], "low=100Mi"),
        (vec![LIMITED, "100m,100Mi/"], "low=200Mi"),
        (vec![GUARANTEED], "min=100Mi"),
    ] {
        let all: Vec<_> =
            containers.iter().map(|text| json!({"name": "c", "resources": resources(text)})).collect();
        let found = show(&compute_pod_numbers(&pod(json!({"containers": all})), &rules));
        let protected: Vec<_> =
            found.split(' ').filter(|word| word.starts_with("low") || word.starts_with("min")).collect();
        assert_eq!(protected.join(" "), expected, "{containers:?}");
    }
}

#[test]
fn huge_page_limits_table() {
    let sizes = ["2MB".to_owned(), "4MB".to_owned()];
    let rules = PodRules { hugepage_sizes: &sizes, ..rules() };
    for (name, requests, expected) in [
        ("no valid hugepages", json!({"2Mi": "128"}), [0, 0]),
        ("2Mi only", json!({"hugepages-2Mi": "128"}), [128, 0]),
        (
            "2Mi and 4Mi",
            json!({"hugepages-2Mi": "128", "hugepages-2097152": "256", "hugepages-4Mi": "512", "4Mi": "1024"}),
            [384, 512],
        ),
    ] {
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
        let found = compute_pod_numbers(&pod(spec), &rules).hugepage_limits;
        let bytes: Vec<_> = found.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(bytes, expected, "{name}");
    }
}
