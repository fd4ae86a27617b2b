//! Exclusive CPUs and memory of a NUMA node on the kernel of this machine: what the kernel lets processes of containers use, before and
//! after a kill of the kubelet. The machine with several NUMA nodes is in [`crate::guest::topology`].
//!
//! Expected values follow the Go kubelet's policies `static` and `Static`: all CPUs but the last are reserved, so that the first
//! container with an exclusive CPU gets the last one.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, shell_pod, uid};
use crate::resources::is_v2;

fn with_resources(name: &str, resources: Value) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

fn guaranteed(name: &str) -> Value {
    with_resources(name, json!({"limits": {"cpu": "1", "memory": "32Mi"}}))
}

/// The CPUs of the machine: all, all but the last, and the last.
#[derive(Debug)]
pub(crate) struct Cpus {
    all: String,
    pub(crate) reserved: String,
    pub(crate) last: String,
}

impl Cpus {
    pub(crate) fn of_machine() -> Self {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("the CPUs");
        let all: model::cpu_set::CpuSet = online.trim().parse().expect("a list of CPUs");
        let last = all.iter().next_back().expect("a CPU");
        assert!(all.len() > 1, "these tests need a machine with two CPUs");
        let last: model::cpu_set::CpuSet = last.to_string().parse().expect("a CPU");
        Self { all: all.to_string(), reserved: all.difference(&last).to_string(), last: last.to_string() }
    }
}

fn start(cpus: &Cpus) -> Node {
    Node::start_with(json!({
        "cpuManagerPolicy": "static",
        "cpuManagerReconcilePeriod": "1s",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": cpus.reserved,
        "kubeReserved": {"memory": "200Mi"},
        "evictionHard": {"memory.available": "100Mi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "300Mi"}}],
    }))
}

/// What the kernel lets the container's first process use: CPUs and memory nodes.
pub(crate) fn allowed(node: &Node, pod: &Value) -> [String; 2] {
    let path = format!("/proc/{}/status", node.container_pid(pod, "main"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    ["Cpus_allowed_list:", "Mems_allowed_list:"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a list");
        line.trim().to_owned()
    })
}

/// A file of the container's cgroup: `controller/file` of version 1, a file of version 2.
fn cgroup_file(node: &Node, pod: &Value, v1: &str, v2: &str) -> String {
    let pid = node.container_pid(pod, "main");
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the cgroups of the process");
    let (controller, file) = v1.split_once('/').expect("a controller and a file");
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let wanted =
            if is_v2() { controllers.is_empty() } else { controllers.split(',').any(|c| c == controller) };
        wanted.then(|| path.trim_start_matches('/').to_owned())
    });
    let root = if is_v2() {
        PathBuf::from("/sys/fs/cgroup")
    } else {
        PathBuf::from("/sys/fs/cgroup").join(controller)
    };
    let path = root.join(path.expect("a cgroup")).join(if is_v2() { v2 } else { file });
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim().to_owned()
}

#[track_caller]
fn wait_for_cpus(node: &Node, pod: &Value, cpus: &str) {
    node.eventually(&format!("the CPUs are {cpus}"), |node| {
        let now = allowed(node, pod);
        if now[0] == cpus { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

#[track_caller]
fn check_exclusive(node: &Node, pod: &Value, cpus: &Cpus) {
    assert_eq!(allowed(node, pod), [cpus.last.as_str(), "0"]);
    assert_eq!(cgroup_file(node, pod, "cpuset/cpuset.cpus", "cpuset.cpus"), cpus.last);
    assert_eq!(cgroup_file(node, pod, "cpuset/cpuset.mems", "cpuset.mems"), "0");
    let quota = cgroup_file(node, pod, "cpu/cpu.cfs_quota_us", "cpu.max");
    assert!(["-1", "max 100000"].contains(&quota.as_str()), "an exclusive CPU needs no quota: {quota}");
}

fn container_id(pod: &Value) -> Value {
    container(pod, "main")["containerID"].clone()
}

#[test]
fn exclusive_cpus_are_set_in_real_cpusets_and_survive_a_kubelet_kill() {
    let cpus = Cpus::of_machine();
    let mut node = start(&cpus);
    node.apply("shared", &with_resources("shared", json!({"requests": {"memory": "16Mi"}})));
    let shared = node.running("shared");
    assert_eq!(allowed(&node, &shared)[0], cpus.all);

    node.apply("exclusive", &guaranteed("exclusive"));
    let exclusive = node.running("exclusive");
    check_exclusive(&node, &exclusive, &cpus);
    wait_for_cpus(&node, &shared, &cpus.reserved);

    node.restart_kubelet();
    // The CPU that is taken stays taken: a second pod finds none.
    node.apply("late", &guaranteed("late"));
    let late = node.pod_when("late", "is rejected", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(late["status"]["reason"], "UnexpectedAdmissionError", "{}", late["status"]);
    for (name, before) in [("exclusive", &exclusive), ("shared", &shared)] {
        assert_eq!(container_id(&node.running(name)), container_id(before), "{name} was restarted");
    }
    check_exclusive(&node, &exclusive, &cpus);
    assert_eq!(allowed(&node, &shared)[0], cpus.reserved);

    node.delete("exclusive");
    node.wait_until_gone("exclusive", &uid(&exclusive));
    wait_for_cpus(&node, &shared, &cpus.all);
}
