use base_core::node_facts::MemoryQos;
use resources_core::cgroup::{PodRules, compute_pod_numbers};
use serde_json::{Value, json};

use super::*;
use crate::pods::request::tests::node;

/// CPU request and limit, memory request and limit.
type Row = [i64; 4];

fn amounts([cpu_request, cpu_limit, memory_request, memory_limit]: Row) -> Amounts {
    Amounts { cpu_request, cpu_limit, memory_request, memory_limit }
}

fn rules() -> PodRules<'static> {
    PodRules {
        cpu_quota_period: Some(100_000),
        pids_limit: None,
        hugepage_sizes: &[],
        memory_qos: MemoryQos::Off,
    }
}

/// A pod with the container `c`, and perhaps others that request and are limited to 100m and 100M.
fn pod(of_container: Row, others: usize, of_pod: Option<Row>) -> Pod {
    let resources = |row: Row| json!(amounts(row).to_requirements());
    let other = |index| json!({"name": format!("o{index}"), "resources": resources([100, 100, 100_000_000, 100_000_000])});
    let mut containers: Vec<Value> = vec![json!({"name": "c", "resources": resources(of_container)})];
    containers.extend((0..others).map(other));
    if others == 0 {
        containers.push(json!({"name": "unlimited"}));
    }
    let mut spec = json!({"containers": containers});
    if let Some(of_pod) = of_pod {
        spec["resources"] = resources(of_pod);
    }
    serde_json::from_value(json!({"spec": spec})).unwrap()
}

fn limits_of(numbers: &CgroupNumbers) -> PodLimits {
    PodLimits {
        memory: numbers.memory_limit,
        cpu_quota: numbers.cpu_quota.and_then(|quota| quota.micros),
        cpu_period: Some(100_000),
        cpu_shares: numbers.cpu_shares.unwrap_or_default(),
        has_weight: false,
    }
}

fn change(name: &str, from: Amounts, to: Amounts) -> ContainerChange {
    ContainerChange { id: ContainerId::new(name), name: name.into(), from, to }
}

fn shown(step: &ResizeStep) -> String {
    match step {
        ResizeStep::Pod { numbers, .. } => {
            match (numbers.memory_limit, numbers.cpu_quota, numbers.cpu_shares) {
                (Some(bytes), None, None) => format!("pod memory {bytes}"),
                (None, Some(quota), None) => format!("pod quota {}", quota.micros.unwrap_or(-1)),
                (None, None, Some(shares)) => format!("pod shares {shares}"),
                _ => panic!("one value at a time"),
            }
        }
        ResizeStep::Container { name, resources, .. } => format!(
            "{name} memory {} quota {} shares {}",
            resources.memory_limit_bytes.unwrap_or(0),
            resources.cpu_quota.unwrap_or(0),
            resources.cpu_shares.unwrap_or(0)
        ),
    }
}

/// The steps from one version of the pod to another. 10 and 20 bytes are in use.
fn steps(from: (Row, Option<Row>), to: (Row, Option<Row>), others: usize) -> Result<Vec<String>, String> {
    let (before, after) = (pod(from.0, others, from.1), pod(to.0, others, to.1));
    let (now, desired) =
        (limits_of(&compute_pod_numbers(&before, &rules())), compute_pod_numbers(&after, &rules()));
    let containers = match from.0 == to.0 {
        true => Vec::new(),
        false => vec![change("c", amounts(from.0), amounts(to.0))],
    };
    let usage = MemoryUse { pod: Some(20), containers: BTreeMap::from([(ContainerId::new("c"), 10)]) };
    let steps = compute_steps(&ResizeInputs {
        pod: &after,
        resize: &PodResize { containers },
        node: &node(),
        cgroup: Some((&desired, now)),
        usage: &usage,
    })?;
    Ok(steps.iter().map(shown).collect())
}

#[track_caller]
fn check(from: Row, to: Row, others: usize, expected: &[&str]) {
    assert_eq!(steps((from, None), (to, None), others).unwrap(), expected);
}

/// The rows are those of the Go kubelet's table, which has the number of writes to the pod's cgroup.
#[test]
fn limits_of_the_pod_grow_before_those_of_its_containers() {
    check(
        [100, 100, 100, 100],
        [200, 200, 200, 200],
        2,
        &[
            "pod memory 200000200",
            "c memory 200 quota 10000 shares 102",
            "pod quota 40000",
            "pod shares 409",
            "c memory 200 quota 20000 shares 204",
        ],
    );
    // Without a limit of every container the pod has none.
    check(
        [100, 100, 100, 100],
        [200, 200, 200, 200],
        0,
        &["c memory 200 quota 10000 shares 102", "pod shares 204", "c memory 200 quota 20000 shares 204"],
    );
    check(
        [100, 200, 100, 200],
        [150, 200, 100, 200],
        0,
        &["pod shares 153", "c memory 200 quota 20000 shares 153"],
    );
    check([100, 0, 100, 0], [200, 0, 100, 0], 0, &["pod shares 204", "c memory 0 quota 0 shares 204"]);
}

#[test]
fn limits_of_the_pod_shrink_after_those_of_its_containers() {
    check(
        [200, 200, 200, 200],
        [100, 100, 100, 100],
        2,
        &[
            "c memory 100 quota 20000 shares 204",
            "pod memory 200000100",
            "c memory 100 quota 10000 shares 102",
            "pod shares 307",
            "pod quota 30000",
        ],
    );
}

#[test]
fn added_limits_are_set_after_those_of_the_containers_because_they_shrink_what_the_pod_may_use() {
    check(
        [100, 0, 100, 0],
        [100, 100, 100, 100],
        0,
        &["c memory 100 quota 0 shares 102", "c memory 100 quota 10000 shares 102"],
    );
    check(
        [100, 0, 100, 0],
        [100, 100, 100, 100],
        2,
        &[
            "c memory 100 quota 0 shares 102",
            "pod memory 200000100",
            "c memory 100 quota 10000 shares 102",
            "pod quota 30000",
        ],
    );
}

/// The rows are those of the Go kubelet's table.
#[test]
fn resources_of_the_pod_as_a_whole_are_written_to_its_cgroup() {
    let of = |from: Row, to: Row| {
        steps(([100, 100, 100, 100], Some(from)), ([100, 100, 100, 100], Some(to)), 0).unwrap()
    };
    assert!(of([100, 100, 100, 100], [100, 100, 200, 100]).is_empty(), "no cgroup has a memory request");
    assert_eq!(of([100, 100, 100, 100], [100, 100, 100, 200]), ["pod memory 200"]);
    assert_eq!(of([100, 100, 0, 0], [200, 100, 0, 0]), ["pod shares 204"]);
    assert_eq!(of([100, 100, 0, 0], [100, 200, 0, 0]), ["pod quota 20000"]);
    let both =
        steps(([100, 100, 0, 0], Some([100, 100, 0, 0])), ([100, 200, 0, 0], Some([100, 300, 0, 0])), 0);
    assert_eq!(both.unwrap(), ["pod quota 30000", "c memory 0 quota 20000 shares 102"]);
    let both = steps(([0, 0, 0, 200], Some([0, 0, 0, 200])), ([0, 0, 0, 250], Some([0, 0, 0, 300])), 0);
    assert_eq!(both.unwrap(), ["pod memory 300", "c memory 250 quota 0 shares 2"]);
}

#[test]
fn containers_that_shrink_come_before_those_that_grow() {
    let row = |memory| amounts([0, 0, 0, memory]);
    let names = ["a", "b", "c", "d"];
    let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let pod: Pod = serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap();
    let changes = [(100, 200), (200, 100), (100, 300), (300, 100)];
    let containers =
        names.iter().zip(changes).map(|(name, (from, to))| change(name, row(from), row(to))).collect();
    let steps = compute_steps(&ResizeInputs {
        pod: &pod,
        resize: &PodResize { containers },
        node: &node(),
        cgroup: None,
        usage: &MemoryUse {
            pod: None,
            containers: names.iter().map(|name| (ContainerId::new(*name), 1)).collect(),
        },
    });
    let order: Vec<String> =
        steps.unwrap().iter().map(|step| shown(step).chars().take(1).collect()).collect();
    assert_eq!(order, ["d", "b", "a", "c"]);
}

#[test]
fn memory_is_not_limited_to_less_than_what_is_in_use() {
    let refused = |from: Row, to: Row, others| steps((from, None), (to, None), others).unwrap_err();
    assert_eq!(
        refused([0, 0, 0, 100], [0, 0, 0, 10], 0),
        "cannot decrease memory limits: attempting to set container \"c\" memory limit (10) below current usage (10)"
    );
    let small = |limit| Some([0, 0, 0, limit]);
    assert_eq!(
        steps(([0, 0, 0, 100], small(100)), ([0, 0, 0, 5], small(20)), 0).unwrap_err(),
        "cannot decrease memory limits: [attempting to set pod memory limit (20) below current usage (20), attempting \
         to set container \"c\" memory limit (5) below current usage (10)]"
    );
    assert!(steps(([0, 0, 0, 100], None), ([0, 0, 0, 11], None), 0).is_ok());
    assert!(steps(([0, 0, 0, 5], None), ([0, 0, 0, 6], None), 0).is_ok(), "it grows");
}

#[test]
fn unknown_use_of_memory_refuses_a_smaller_limit() {
    let (before, after) = (pod([0, 0, 0, 100], 1, None), pod([0, 0, 0, 50], 1, None));
    let desired = compute_pod_numbers(&after, &rules());
    let refused = compute_steps(&ResizeInputs {
        pod: &after,
        resize: &PodResize { containers: vec![change("c", amounts([0, 0, 0, 100]), amounts([0, 0, 0, 50]))] },
        node: &node(),
        cgroup: Some((&desired, limits_of(&compute_pod_numbers(&before, &rules())))),
        usage: &MemoryUse::default(),
    });
    assert_eq!(
        refused.unwrap_err(),
        "cannot decrease memory limits: [missing pod memory usage, missing container \"c\" memory usage]"
    );
}

#[test]
fn runtime_learns_the_limits_of_the_pod_without_its_overhead() {
    let mut after = pod([200, 200, 200, 200], 1, None);
    after.spec.as_mut().unwrap().overhead =
        serde_json::from_value(json!({"cpu": "100m", "memory": "1000"})).unwrap();
    let desired = compute_pod_numbers(&after, &rules());
    let now = PodLimits {
        memory: Some(1000),
        cpu_quota: Some(10_000),
        cpu_period: Some(100_000),
        cpu_shares: 204,
        has_weight: false,
    };
    let steps = compute_steps(&ResizeInputs {
        pod: &after,
        resize: &PodResize::default(),
        node: &node(),
        cgroup: Some((&desired, now)),
        usage: &MemoryUse::default(),
    });
    let sandboxes: Vec<_> = steps
        .unwrap()
        .into_iter()
        .map(|step| match step {
            ResizeStep::Pod { before, after, .. } => {
                [before, after].map(|limits| (limits.memory_limit_bytes, limits.cpu_quota, limits.cpu_shares))
            }
            ResizeStep::Container { .. } => panic!("no container is resized"),
        })
        .collect();
    let memory = 100_000_200;
    assert_eq!(
        sandboxes,
        [
            [(Some(0), Some(0), Some(102)), (Some(memory), Some(0), Some(102))],
            [(Some(memory), Some(0), Some(102)), (Some(memory), Some(30_000), Some(102))],
            [(Some(memory), Some(30_000), Some(102)), (Some(memory), Some(30_000), Some(307))],
        ]
    );
}

#[test]
fn limits_are_read_as_the_kernel_writes_them() {
    let read = |version, texts: [&str; 4]| {
        parse_limits(version, &texts.map(|text| (!text.is_empty()).then(|| format!("{text}\n"))))
    };
    let limits = |memory, cpu_quota, cpu_shares| PodLimits {
        memory,
        cpu_quota,
        cpu_period: Some(100_000),
        cpu_shares,
        has_weight: false,
    };
    let of_v2 = |memory, cpu_quota, cpu_shares| PodLimits {
        has_weight: true,
        ..limits(memory, cpu_quota, cpu_shares)
    };
    assert_eq!(
        read(CgroupVersion::V1, ["268435456", "15000", "100000", "30"]),
        limits(Some(268_435_456), Some(15_000), 30)
    );
    assert_eq!(read(CgroupVersion::V1, ["9223372036854771712", "-1", "100000", "2"]), limits(None, None, 2));
    assert_eq!(
        read(CgroupVersion::V2, ["268435456", "15000 100000", "15000 100000", "1"]),
        of_v2(Some(268_435_456), Some(15_000), 2)
    );
    assert_eq!(read(CgroupVersion::V2, ["max", "max 100000", "max 100000", "39"]), of_v2(None, None, 999));
    assert_eq!(
        read(CgroupVersion::V2, ["", "", "", ""]),
        PodLimits { has_weight: true, ..PodLimits::default() }
    );
}

#[test]
fn shares_of_the_same_weight_are_the_same() {
    for weight in 1..10_000 {
        let shares = shares_of_weight(weight);
        assert_eq!(cpu_weight(shares), weight);
        let limits = PodLimits { cpu_shares: shares, has_weight: true, ..PodLimits::default() };
        assert!(limits.has_shares(shares) && !limits.has_shares(shares + 27));
    }
    let exact = PodLimits { cpu_shares: 500, ..PodLimits::default() };
    assert!(exact.has_shares(500) && !exact.has_shares(501));
}
