//! Exclusive CPUs and memory of one NUMA node, in the cgroups of containers and in the state files of both managers.
//!
//! Expected values follow the Go kubelet's policies `static`, `Static` and `single-numa-node`: a container gets the free cores with the
//! smallest ids, of the first NUMA node that has both its CPUs and its memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::guest::cgroups::{cgroup_of, read};
use crate::node::{FOREVER, Node, container, shell_pod, uid};

const MEBIBYTE: u64 = 1 << 20;
/// Memory of each NUMA node that containers cannot have, in MiB. Node 0 keeps 600 MiB for them, node 1 about 870.
const RESERVED: [u64; 2] = [1400, 100];

/// A pod with two exclusive CPUs, and where they are.
#[derive(Clone, Copy, Debug)]
struct Exclusive {
    name: &'static str,
    /// Requested memory in MiB.
    memory: u64,
    cpus: &'static str,
    numa_node: usize,
}

const FIRST: Exclusive = Exclusive { name: "first", memory: 64, cpus: "2-3", numa_node: 0 };
/// Node 0 has no free core while `first` runs.
const SECOND: Exclusive = Exclusive { name: "second", memory: 64, cpus: "4-5", numa_node: 1 };
/// Both nodes have a free core, and only node 1 has so much memory.
const LARGE: Exclusive = Exclusive { name: "large", memory: 700, cpus: "6-7", numa_node: 1 };
const LATE: Exclusive = Exclusive { name: "late", memory: 64, cpus: "2-3", numa_node: 0 };

fn with_resources(name: &str, resources: Value) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

fn guaranteed(name: &str, cpus: u32, memory: u64) -> Value {
    with_resources(name, json!({"limits": {"cpu": cpus, "memory": format!("{memory}Mi")}}))
}

/// The reserved memory of all nodes is `kubeReserved` plus the eviction threshold, as the policy `Static` requires.
fn start() -> Node {
    let limits = |memory: &u64| json!({"memory": format!("{memory}Mi")});
    let nodes = RESERVED.iter().enumerate();
    let reserved: Vec<Value> =
        nodes.map(|(id, memory)| json!({"numaNode": id, "limits": limits(memory)})).collect();
    Node::start_with(json!({
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "cpuManagerReconcilePeriod": "2s",
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "single-numa-node",
        "reservedSystemCPUs": "0-1",
        "kubeReserved": {"memory": "1400Mi"},
        "evictionHard": {"memory.available": "100Mi"},
        "reservedMemory": reserved,
    }))
}

fn container_cgroup(node: &Node, pod: &Value) -> PathBuf {
    cgroup_of(node.container_pid(pod, "main"))
}

fn container_id(pod: &Value) -> Value {
    container(pod, "main")["containerID"].clone()
}

/// The CPUs and memory nodes that processes of the cgroup may use.
fn cpuset(cgroup: &Path) -> [String; 2] {
    ["cpuset.cpus.effective", "cpuset.mems.effective"].map(|file| read(cgroup, file))
}

impl Exclusive {
    fn apply(self, node: &Node) -> Value {
        node.apply(self.name, &guaranteed(self.name, 2, self.memory));
        let pod = node.running(self.name);
        self.check(node, &pod);
        pod
    }

    fn check(self, node: &Node, pod: &Value) {
        let cgroup = container_cgroup(node, pod);
        let numa_node = self.numa_node.to_string();
        assert_eq!(cpuset(&cgroup), [self.cpus, &numa_node], "{}", self.name);
        assert_eq!(read(&cgroup, "cpuset.mems"), numa_node, "{}", self.name);
        for cgroup in [&cgroup, cgroup.parent().expect("the pod's cgroup")] {
            assert_eq!(read(cgroup, "cpu.max"), "max 100000", "{}: {}", self.name, cgroup.display());
        }
    }
}

#[track_caller]
fn wait_for_shared_cpus(node: &Node, cgroup: &Path, cpus: &str) {
    node.eventually(&format!("the shared pool is {cpus}"), |_| {
        let now = cpuset(cgroup);
        if now == [cpus, "0-1"] { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

/// The text of a state file without its checksum, which no state file lacks.
fn without_checksum(node: &Node, name: &str) -> String {
    let text = std::fs::read_to_string(node.path(&format!("root/{name}"))).expect("a state file");
    let (state, checksum) = text.rsplit_once(",\"checksum\":").expect("a checksum at the end");
    let checksum = checksum.strip_suffix('}').expect("nothing behind the checksum");
    assert_ne!(checksum.parse::<u32>().expect("a number"), 0, "{text}");
    format!("{state}}}")
}

/// Both state files have exactly these pods.
fn check_state_files(node: &Node, shared: &str, pods: &[(Exclusive, &Value)]) {
    let entries: BTreeMap<String, Value> =
        pods.iter().map(|(exclusive, pod)| (uid(pod), json!({"main": exclusive.cpus}))).collect();
    let entries = serde_json::to_string(&entries).expect("JSON");
    let expected = format!(r#"{{"policyName":"static","defaultCpuSet":"{shared}","entries":{entries}}}"#);
    assert_eq!(without_checksum(node, "cpu_manager_state"), expected);

    let block = |exclusive: &Exclusive| json!([{"numaAffinity": [exclusive.numa_node], "type": "memory", "size": exclusive.memory * MEBIBYTE}]);
    let entries: Map<String, Value> =
        pods.iter().map(|(exclusive, pod)| (uid(pod), json!({"main": block(exclusive)}))).collect();
    let pods: Vec<Exclusive> = pods.iter().map(|(exclusive, _)| *exclusive).collect();
    let nodes = json!({"0": numa_node_state(0, &pods), "1": numa_node_state(1, &pods)});
    let expected = json!({"policyName": "Static", "machineState": nodes, "entries": entries});
    let state: Value =
        serde_json::from_str(&without_checksum(node, "memory_manager_state")).expect("the state is JSON");
    assert_eq!(state, expected);
}

/// A node of `machineState` in `memory_manager_state`.
fn numa_node_state(id: usize, pods: &[Exclusive]) -> Value {
    let pods = pods.iter().filter(|pod| pod.numa_node == id);
    let used = pods.clone().map(|pod| pod.memory * MEBIBYTE).sum::<u64>();
    let (total, reserved) = (node_memory(id), RESERVED[id] * MEBIBYTE);
    let table = |total: u64, reserved: u64, used: u64| {
        json!({
            "total": total, "systemReserved": reserved, "allocatable": total - reserved,
            "reserved": used, "free": total - reserved - used,
        })
    };
    let mut memory = json!({"memory": table(total, reserved, used)});
    for name in crate::node::names_in(Path::new(&format!("/sys/devices/system/node/node{id}/hugepages"))) {
        let size = match name.as_str() {
            "hugepages-2048kB" => "hugepages-2Mi",
            "hugepages-1048576kB" => "hugepages-1Gi",
            other => panic!("{other}"),
        };
        memory[size] = table(0, 0, 0);
    }
    json!({"numberOfAssignments": pods.count(), "memoryMap": memory, "cells": [id]})
}

fn node_memory(id: usize) -> u64 {
    let path = format!("/sys/devices/system/node/node{id}/meminfo");
    let text = std::fs::read_to_string(path).expect("the memory of the node");
    let line = text.lines().find(|line| line.contains("MemTotal:")).expect("a total");
    line.split_whitespace().nth(3).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// Two nodes have a free core each, so that four CPUs are free and no node has them.
fn pod_without_topology_locality_is_rejected(node: &Node) {
    node.apply("wide", &guaranteed("wide", 4, 64));
    let pod = node.pod_when("wide", "is rejected", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(pod["status"]["reason"], "TopologyAffinityError", "{}", pod["status"]);
    let message = "Pod was rejected: Resources cannot be allocated with Topology locality";
    assert_eq!(pod["status"]["message"], message);
    assert_eq!(node.runtime_ids(&uid(&pod)), Ok(Vec::new()), "nothing of it was ever created");
    node.delete("wide");
    node.wait_until_gone("wide", &uid(&pod));
}

#[test]
#[ignore = "needs the NUMA machine of scripts/vm"]
fn exclusive_cpus_and_numa_memory_survive_a_kubelet_kill_and_a_power_loss() {
    let mut node = start();
    let resources = json!({"requests": {"cpu": "0", "memory": "16Mi"}, "limits": {"cpu": "500m"}});
    node.apply("shared", &with_resources("shared", resources));
    let shared_pod = node.running("shared");
    let shared = container_cgroup(&node, &shared_pod);
    assert_eq!(cpuset(&shared), ["0-7", "0-1"]);
    assert_eq!(read(&shared, "cpu.max"), "50000 100000");

    let first = FIRST.apply(&node);
    let second = SECOND.apply(&node);
    wait_for_shared_cpus(&node, &shared, "0-1,6-7");
    node.delete(FIRST.name);
    node.wait_until_gone(FIRST.name, &uid(&first));
    wait_for_shared_cpus(&node, &shared, "0-3,6-7");
    pod_without_topology_locality_is_rejected(&node);
    let large = LARGE.apply(&node);
    wait_for_shared_cpus(&node, &shared, "0-3");
    check_state_files(&node, "0-3", &[(SECOND, &second), (LARGE, &large)]);

    // The next kubelet knows which CPUs and memory are free.
    node.restart_kubelet();
    let late = LATE.apply(&node);
    wait_for_shared_cpus(&node, &shared, "0-1");
    let pods = [(SECOND, &second), (LARGE, &large), (LATE, &late)];
    for (exclusive, pod) in &pods[..2] {
        let now = node.running(exclusive.name);
        assert_eq!(container_id(&now), container_id(pod), "{} was restarted", exclusive.name);
        exclusive.check(&node, &now);
    }
    check_state_files(&node, "0-1", &pods);

    // If they were admitted again in the order of their names, `large` would get the first core of its node, and `second` the other one.
    node.lose_power();
    node.resume_runtime();
    node.start_kubelet();
    let wait_for_new_container = |name: &str, before: &Value| {
        node.pod_when(name, "runs a new container", |pod| {
            let main = container(pod, "main");
            main["state"]["running"].is_object() && main["containerID"] != container_id(before)
        })
    };
    for (exclusive, pod) in &pods {
        exclusive.check(&node, &wait_for_new_container(exclusive.name, pod));
    }
    let shared = container_cgroup(&node, &wait_for_new_container("shared", &shared_pod));
    wait_for_shared_cpus(&node, &shared, "0-1");
    check_state_files(&node, "0-1", &pods);
}
