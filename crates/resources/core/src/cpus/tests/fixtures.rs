//! Machines, pods and policies in short form.

use std::collections::BTreeMap;

use model::cpu_set::CpuSet;
use model::k8s::Pod;
use model::topology::{MachineTopology, NumaNode, Processor};
use serde_json::{Value, json};

use super::super::{CpuOptionGates, CpuPolicySettings, CpuState, CpuTopology, StaticCpuPolicy};

/// The machines of the Go kubelet's tests. Below the name of each, a line has the NUMA node, socket and cache of some cores, and of each core
/// or range of cores how far its CPUs are from its own number.
const MACHINES: &str = include_str!("topologies.txt");

pub(crate) fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

pub(super) fn machine(name: &str) -> MachineTopology {
    let lines = MACHINES.lines().skip_while(|line| *line != name).skip(1);
    let mut processors: Vec<Processor> =
        lines.take_while(|line| line.starts_with(' ')).flat_map(processors_of).collect();
    assert!(!processors.is_empty(), "no machine {name}");
    processors.sort_unstable();
    let mut nodes: Vec<u32> = processors.iter().map(|processor| processor.numa_node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let numa_nodes = nodes.into_iter().map(|id| NumaNode { id, ..NumaNode::default() }).collect();
    MachineTopology { processors, numa_nodes }
}

/// `n0 s0 u0 0-3:0,4`: the cores 0 to 3 of node 0, with the threads 0 and 4, 1 and 5, and so on.
fn processors_of(line: &str) -> Vec<Processor> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let id = |at: usize| words[at][1..].parse().unwrap();
    let (numa_node, socket, uncore_cache) = (id(0), id(1), id(2));
    let mut processors = Vec::new();
    for word in &words[3..] {
        let (cores, offsets) = word.split_once(':').unwrap();
        for core in cpus(cores).iter() {
            for offset in offsets.split(',') {
                let id = core.checked_add_signed(offset.parse().unwrap()).unwrap();
                processors.push(Processor { id, core, socket, numa_node, uncore_cache });
            }
        }
    }
    processors
}

pub(crate) fn topology(name: &str) -> CpuTopology {
    CpuTopology::of(&machine(name))
}

/// `i:4 s:1 c:2 c:1/2 c:-`: an init container with 4 CPUs, a sidecar, a regular container, one with a request of 1 and a limit of 2, and one
/// with neither. Named by kind and position. `pod:3` is a request of the pod. Memory is Guaranteed where CPU is given.
pub(super) fn pod(uid: &str, line: &str) -> Pod {
    let (mut init, mut regular, mut of_pod) = (Vec::new(), Vec::new(), Value::Null);
    for (at, word) in line.split_whitespace().enumerate() {
        let (kind, cpus) = word.split_once(':').unwrap();
        let resources = resources(cpus);
        let mut container = json!({"name": format!("{kind}{at}"), "resources": resources});
        match kind {
            "pod" => of_pod = resources,
            "c" => regular.push(container),
            "i" => init.push(container),
            _ => {
                container["restartPolicy"] = "Always".into();
                init.push(container);
            }
        }
    }
    let spec = json!({"containers": regular, "initContainers": init, "resources": of_pod});
    serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}, "spec": spec})).unwrap()
}

fn resources(cpus: &str) -> Value {
    let (request, limit) = cpus.split_once('/').unwrap_or((cpus, cpus));
    if request == "-" {
        return json!({});
    }
    json!({"requests": {"cpu": request, "memory": "1G"}, "limits": {"cpu": limit, "memory": "1G"}})
}

/// `strict-cpu-reservation full-pcpus-only=false`.
pub(super) fn options(words: &str) -> BTreeMap<String, String> {
    let option = |word: &str| {
        let (name, value) = word.split_once('=').unwrap_or((word, "true"));
        (name.to_owned(), value.to_owned())
    };
    words.split_whitespace().map(option).collect()
}

/// A static policy with all gates. `reserved` is a number of CPUs, or which ones they are: `=0,6`.
pub(super) fn policy(name: &str, reserved: &str, words: &str) -> StaticCpuPolicy {
    policy_of(topology(name), reserved, words)
}

pub(super) fn policy_of(topology: CpuTopology, reserved: &str, words: &str) -> StaticCpuPolicy {
    let given = reserved.strip_prefix('=').map(cpus).unwrap_or_default();
    let count = if given.is_empty() { reserved.parse().unwrap() } else { given.len() };
    let options = options(words);
    let settings = settings("static", &options, &given);
    StaticCpuPolicy::of(&settings, topology, count).unwrap()
}

pub(super) fn settings<'a>(
    policy: &'a str,
    options: &'a BTreeMap<String, String>,
    reserved_cpus: &'a CpuSet,
) -> CpuPolicySettings<'a> {
    CpuPolicySettings {
        policy,
        options,
        gates: CpuOptionGates { alpha: true, beta: true },
        reserved_cpus,
        reserved: None,
        is_single_numa_node: false,
        pod_level: true,
    }
}

/// `pod.container=1-3 pod.other=4`.
pub(super) fn state(default: &str, assigned: &str) -> CpuState {
    let mut state = CpuState { default: cpus(default), ..CpuState::default() };
    for word in assigned.split_whitespace() {
        let (name, set) = word.split_once('=').unwrap();
        let (pod, container) = name.split_once('.').unwrap();
        state.assigned.entry(pod.into()).or_default().insert(container.to_owned(), cpus(set));
    }
    state
}

/// The assignments, as [`state`] reads them.
pub(super) fn shown(state: &CpuState) -> String {
    let containers = |(pod, containers): (&model::PodUid, &BTreeMap<String, CpuSet>)| {
        containers.iter().map(|(name, cpus)| format!("{pod}.{name}={cpus}")).collect::<Vec<_>>()
    };
    state.assigned.iter().flat_map(containers).collect::<Vec<_>>().join(" ")
}
