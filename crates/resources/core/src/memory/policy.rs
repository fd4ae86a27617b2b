//! The policy `Static` on this machine.

use model::quantity::binary_text;
use model::topology::{MachineTopology, NumaMask, NumaNode};

use super::nodes::{MemoryTable, NodeMap, NodeState};
use super::{MEMORY, ReservedMemory};

/// More nodes are refused, because every combination of nodes is considered.
const MAX_NODES: usize = 16;

/// The feature gates that the policy depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodLevelGates {
    /// `PodLevelResources`: pods have resources of their own.
    pub resources: bool,
    /// `PodLevelResourceManagers`: such pods get memory of their own.
    pub managers: bool,
}

/// Why the policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryPolicyError {
    #[error("[memorymanager] you should specify the system reserved memory")]
    NothingReserved,
    #[error("unsupported on machines with more than {MAX_NODES} NUMA Nodes")]
    TooManyNodes,
}

/// What the policy knows of the machine and the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPolicy {
    pub(super) gates: PodLevelGates,
    idle: NodeMap,
}

impl MemoryPolicy {
    /// The name in the configuration and in the state file.
    pub const NAME: &'static str = "Static";

    /// # Errors
    /// No memory is reserved for the system, or the machine has too many nodes.
    pub fn new(
        machine: &MachineTopology,
        reserved: &ReservedMemory,
        gates: PodLevelGates,
    ) -> Result<Self, MemoryPolicyError> {
        if !reserved.is_any(MEMORY) {
            return Err(MemoryPolicyError::NothingReserved);
        }
        if machine.numa_nodes.len() > MAX_NODES {
            return Err(MemoryPolicyError::TooManyNodes);
        }
        let idle = machine.numa_nodes.iter().map(|node| (node.id, idle(node, reserved))).collect();
        Ok(Self { gates, idle })
    }

    /// The nodes without any allocation.
    #[must_use]
    pub const fn idle_nodes(&self) -> &NodeMap {
        &self.idle
    }
}

fn idle(node: &NumaNode, reserved: &ReservedMemory) -> NodeState {
    let table = |resource: &str, total: u64, unusable: u64| {
        let system_reserved = reserved.of(node.id, resource);
        let allocatable = total.saturating_sub(system_reserved).saturating_sub(unusable);
        MemoryTable { total, system_reserved, allocatable, reserved: 0, free: allocatable }
    };
    let huge = |(size, pages): (&u64, &u64)| {
        let (resource, total) =
            (format!("hugepages-{}", binary_text(i128::from(*size))), size.saturating_mul(*pages));
        let table = table(&resource, total, 0);
        (resource, table)
    };
    let mut memory: std::collections::BTreeMap<_, _> = node.huge_pages.iter().map(huge).collect();
    let in_huge_pages = memory.values().map(|table| table.total).fold(0, u64::saturating_add);
    memory.insert(MEMORY.to_owned(), table(MEMORY, node.memory_bytes, in_huge_pages));
    NodeState { assignments: 0, memory, cells: NumaMask::of([node.id]) }
}
