//! The made-up NUMA machine of `scripts/vm`, and what containers get of it.
//!
//! Two sockets of two cores with two threads, each with a NUMA node: processors 0 to 3 and 2 GiB, 4 to 7 and 1 GiB. `scripts/guest/run`
//! runs these tests last, one at a time and with all processors online.

use model::topology::{MachineTopology, Processor};
use ports::Machine;

use crate::resources::memory_bytes;

mod exclusive;

/// Memory of the nodes as qemu makes them.
const NODE_BYTES: [u64; 2] = [2 << 30, 1 << 30];

fn topology() -> MachineTopology {
    let tokio = tokio::runtime::Builder::new_current_thread().build().expect("a tokio runtime");
    tokio.block_on(host::LinuxHost::new().topology()).expect("the kernel describes the machine")
}

#[test]
#[ignore = "needs the NUMA machine of scripts/vm"]
fn numa_topology_from_sysfs_is_that_of_the_emulated_machine() {
    let machine = topology();
    // The last-level cache belongs to the whole socket, so the socket counts as the cache.
    let cpu = |id, core, socket| Processor { id, core, socket, numa_node: socket, uncore_cache: socket };
    let processors = [
        cpu(0, 0, 0),
        cpu(1, 0, 0),
        cpu(2, 2, 0),
        cpu(3, 2, 0),
        cpu(4, 4, 1),
        cpu(5, 4, 1),
        cpu(6, 6, 1),
        cpu(7, 6, 1),
    ];
    assert_eq!(machine.processors, processors);
    let nodes: Vec<_> = machine.numa_nodes.iter().map(|node| (node.id, node.distances.as_slice())).collect();
    assert_eq!(nodes, [(0, [10, 21].as_slice()), (1, &[21, 10])]);
    // The kernel keeps a part of each node to itself.
    for (node, all) in machine.numa_nodes.iter().zip(NODE_BYTES) {
        let memory = node.memory_bytes;
        assert!(memory <= all && memory > all / 100 * 94, "{memory} of the {all} bytes of node {}", node.id);
    }
    let memory: u64 = machine.numa_nodes.iter().map(|node| node.memory_bytes).sum();
    assert_eq!(i64::try_from(memory), Ok(memory_bytes()));
}
