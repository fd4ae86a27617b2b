//! A machine with two NUMA nodes, for tests of exclusive CPUs and memory.

use model::topology::{MachineTopology, NumaNode, Processor};

/// Two NUMA nodes with two cores of two threads each, and memory of this size: CPUs 0, 1, 4 and 5 are on node 0.
#[must_use]
pub fn two_numa_nodes(memory_bytes: u64) -> MachineTopology {
    let processor = |id: u32| {
        let node = id % 4 / 2;
        Processor { id, core: id % 4, socket: node, numa_node: node, uncore_cache: node }
    };
    let node = |id: u32| NumaNode {
        id,
        memory_bytes,
        distances: if id == 0 { vec![10, 21] } else { vec![21, 10] },
        ..NumaNode::default()
    };
    MachineTopology { processors: (0..8).map(processor).collect(), numa_nodes: vec![node(0), node(1)] }
}
