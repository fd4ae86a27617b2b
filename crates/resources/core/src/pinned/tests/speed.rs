//! The time of one decision on a large node: 256 CPUs on eight NUMA nodes, and 500 pods.

use std::sync::Arc;
use std::time::Duration;

use fixtures::growth::thread_cpu_time;
use fixtures::stretched;
use model::topology::{MachineTopology, NumaNode, Processor};

use super::*;
use crate::admission::fit::FitFacts;
use crate::admission::{Admission, AdmissionFacts, compute_admission};
use crate::allocations::Allocations;

/// With optimisation. The tests are built without it, which takes about ten times as long.
const LIMIT: Duration =
    if cfg!(debug_assertions) { Duration::from_millis(10) } else { Duration::from_millis(1) };
const GIB: u64 = 1 << 30;
const CORES: u32 = 128;
const NODES: u32 = 8;
const PODS: usize = 500;
/// Each has two CPUs for itself.
const EXCLUSIVE: usize = 60;

fn large_machine() -> MachineTopology {
    let processor = |id: u32| {
        let core = id % CORES;
        let node = core / (CORES / NODES);
        Processor { id, core, socket: node / 4, numa_node: node, uncore_cache: core / 8 }
    };
    let distance = |from: u32, to: u32| match (from == to, from / 4 == to / 4) {
        (true, _) => 10,
        (false, true) => 12,
        (false, false) => 32,
    };
    let node = |id: u32| NumaNode {
        id,
        memory_bytes: 64 * GIB,
        distances: (0..NODES).map(|to| distance(id, to)).collect(),
        ..NumaNode::default()
    };
    let processors = (0..2 * CORES).map(processor).collect();
    MachineTopology { processors, numa_nodes: (0..NODES).map(node).collect() }
}

fn large_node() -> PinPolicies {
    let config: KubeletConfiguration = serde_json::from_value(json!({
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "124Mi"}}],
        "topologyManagerPolicy": "restricted",
        "reservedSystemCPUs": "0,128",
        "systemReserved": {"memory": "24Mi"},
    }))
    .unwrap();
    let amounts = [("cpu", "2"), ("memory", "124Mi")];
    let reserved =
        Amounts::from(amounts.map(|(name, amount)| (name.to_owned(), model::Amount::parse(amount).unwrap())));
    let settings = PinSettings { config: &config, features: Features::default(), reserved: &reserved };
    PinPolicies::of(&settings, &large_machine()).unwrap()
}

fn full_table(policies: PinPolicies) -> Allocations {
    let mut table = Allocations::default();
    let idle = policies.start(Pinned::default()).unwrap();
    table.remember_pinned(policies.into(), idle);
    for id in 0..PODS {
        let pod = pod(&format!("pod-{id}"), if id < EXCLUSIVE { "2" } else { "100m" });
        let ticket = table.ask(Arc::new(pod.clone()));
        let others = table.other_pods(ticket).unwrap();
        let placement = place(others.policies, others.pinned, &pod).unwrap();
        table.place(ticket, placement);
        table.admit(ticket);
    }
    table
}

/// What the admission of a pod decides, from the table on.
fn admit(table: &Allocations, ticket: crate::allocations::Ticket, pod: &Pod) -> Admission {
    let others = table.other_pods(ticket).unwrap();
    let refused = place(others.policies, others.pinned, pod).err();
    let node = serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {}})).unwrap();
    let quantity = |text: &str| model::k8s::Quantity(text.to_owned());
    let allocatable = [("cpu", "254"), ("memory", "511Gi"), ("pods", "1000")]
        .map(|(name, amount)| (name.to_owned(), quantity(amount)))
        .into();
    let features = Features::default();
    let active = &others.allocations;
    let fit = FitFacts { may_preempt: true, node: &node, allocatable: &allocatable, active, features };
    let facts = AdmissionFacts { resources: refused, features, ..AdmissionFacts::default() };
    compute_admission(pod, &facts, Some(&fit))
}

#[test]
fn admission_with_256_cpus_and_500_pods_takes_a_millisecond_at_most() {
    let mut table = full_table(large_node());
    let pod = pod("last", "4");
    let ticket = table.ask(Arc::new(pod.clone()));
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..20 {
        let began = thread_cpu_time();
        let admission = admit(&table, ticket, &pod);
        times.push(thread_cpu_time().saturating_sub(began));
        assert!(
            matches!(&admission, Admission::Admitted { victims, .. } if victims.is_empty()),
            "{admission:?}"
        );
    }
    // Programs on the processor's other thread only ever add time.
    let best = times.iter().min().unwrap();
    assert!(*best < stretched(LIMIT), "{best:?} of {times:?}");
}
