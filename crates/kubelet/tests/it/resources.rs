//! Effects of requests and limits on the container's cgroup and on its OOM score.

use serde_json::{Value, json};

use crate::node::{Node, container, once_pod};

/// The container's own limits, from the cgroup version of this machine: memory, CPU weight, CPU quota; then its oom_score_adj,
/// and memory plus swap (on version 2, swap alone).
const LIMITS: &str = "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory.max 2>/dev/null; \
                      cat cpu/cpu.shares cpu.weight 2>/dev/null; cat cpu/cpu.cfs_quota_us cpu.max 2>/dev/null; \
                      cat /proc/self/oom_score_adj; cat memory/memory.memsw.limit_in_bytes memory.swap.max 2>/dev/null; true";

/// Version 1 has no value for "no limit".
pub(crate) const UNLIMITED: &str = "9223372036854771712";

fn pod(name: &str, resources: Value) -> Value {
    let mut pod = once_pod(name, LIMITS);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

pub(crate) fn is_v2() -> bool {
    std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

pub(crate) fn memory_bytes() -> i64 {
    kernel_bytes("MemTotal:")
}

/// The value of that name in the kernel's /proc/meminfo.
pub(crate) fn kernel_bytes(name: &str) -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("memory");
    let line = text.lines().find(|line| line.starts_with(name)).expect("a total");
    let kilobytes: i64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kilobytes * 1024
}

#[test]
fn requests_and_limits_set_cgroup_values_and_oom_score_adj() {
    let node = Node::start();
    let limits = json!({"cpu": "500m", "memory": "64Mi"});
    node.apply("guaranteed", &pod("guaranteed", json!({"limits": limits})));
    node.apply("burstable", &pod("burstable", json!({"requests": {"cpu": "250m", "memory": "100Mi"}})));
    node.apply("besteffort", &pod("besteffort", json!({})));
    let [guaranteed, burstable, besteffort] =
        ["guaranteed", "burstable", "besteffort"].map(|name| node.output(name));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<String>>();
    let (guaranteed, burstable, besteffort) = (lines(&guaranteed), lines(&burstable), lines(&besteffort));
    assert_eq!(guaranteed[0], (64 << 20).to_string());
    if is_v2() {
        assert_eq!(guaranteed[2], "50000 100000");
        assert_eq!(burstable[2], "max 100000");
        assert_eq!(besteffort[1], "1");
    } else {
        assert_eq!(&guaranteed[1..3], ["512", "50000"]);
        assert_eq!(&burstable[1..3], ["256", "-1"]);
        assert_eq!(&besteffort[1..3], ["2", "-1"]);
    }
    assert_eq!(besteffort[3], "1000");
    let expected = 1000 - (1000 * (100 << 20)) / memory_bytes();
    assert_eq!(burstable[3], expected.clamp(3, 999).to_string());
    // No container is swapped unless the configuration allows it; version 1 counts swap and memory together.
    let swap = [&guaranteed, &burstable, &besteffort].map(|lines| lines[4].clone());
    match is_v2() {
        true => assert_eq!(swap, ["0"; 3]),
        false => assert_eq!(swap, [(64 << 20).to_string().as_str(), UNLIMITED, UNLIMITED]),
    }
    let shown = node.pod("burstable").expect("it is listed");
    let main = container(&shown, "main");
    let requests = json!({"cpu": "250m", "memory": "100Mi"});
    assert_eq!((&main["resources"]["requests"], &main["allocatedResources"]), (&requests, &requests));
    // The runtime under test may not lower scores below its own.
    let score: i32 = guaranteed[3].parse().expect("a score");
    assert!(score <= 0, "{score}");
}

#[test]
fn container_over_its_memory_limit_is_reported_as_oom_killed() {
    let node = Node::start();
    let mut pod = once_pod("greedy", "x=a; while :; do x=$x$x; done");
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "16Mi"}});
    node.apply("greedy", &pod);
    // The kernel reports the end to the runtime before the reason.
    let pod = node.pod_when("greedy", "has failed for its memory", |pod| {
        let terminated = &container(pod, "main")["state"]["terminated"];
        pod["status"]["phase"] == "Failed" && terminated["reason"] == "OOMKilled"
    });
    assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 137);
}

#[test]
fn cpu_quota_is_unset_without_cpu_cfs_quota() {
    let node = Node::start_with(json!({"cpuCFSQuota": false}));
    node.apply("free", &pod("free", json!({"limits": {"cpu": "500m", "memory": "64Mi"}})));
    let output = node.output("free");
    let quota = output.lines().nth(2).expect("a quota");
    assert!(["-1", "max 100000"].contains(&quota), "{output}");
}
