//! Whether the state that an earlier kubelet left fits the machine.

use model::topology::NumaMask;

use super::nodes::{NodeMap, NodeState, take};
use super::{Block, MemoryPolicy, MemoryState};

/// Why the state cannot be used. The kubelet does not start with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error("[memorymanager] machine state can not be empty when it has memory assignments")]
    NoMachine,
    #[error(
        "[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses the NUMA that does not exist"
    )]
    UnknownNode { pod: String, container: String },
    #[error(
        "[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses memory resource that does not exist"
    )]
    UnknownResource { pod: String, container: String },
    #[error("[memorymanager] the expected machine state is different from the real one")]
    Different,
}

impl MemoryPolicy {
    /// The state to start with: that of an earlier kubelet, or an idle machine if there is none.
    ///
    /// # Errors
    /// The state does not fit the machine, its reserved memory, or its own allocations.
    pub fn restore(&self, mut state: MemoryState) -> Result<MemoryState, StateError> {
        if state.nodes.is_empty() {
            if !state.containers.is_empty() {
                return Err(StateError::NoMachine);
            }
            state.nodes = self.idle_nodes().clone();
            return Ok(state);
        }
        let mut expected = self.idle_nodes().clone();
        for (pod, containers) in &state.containers {
            if let Some(blocks) =
                state.pods.get(pod).filter(|blocks| !blocks.is_empty() && self.gates.managers)
            {
                take_all(&mut expected, blocks, pod.as_str(), "")?;
                continue;
            }
            for (container, blocks) in containers {
                take_all(&mut expected, blocks, pod.as_str(), container)?;
            }
        }
        are_equal(&state.nodes, &expected).then_some(state).ok_or(StateError::Different)
    }
}

fn take_all(nodes: &mut NodeMap, blocks: &[Block], pod: &str, container: &str) -> Result<(), StateError> {
    for block in blocks {
        for id in block.numa.ids() {
            let (pod, container) = (pod.to_owned(), container.to_owned());
            let Some(node) = nodes.get(&id) else { return Err(StateError::UnknownNode { pod, container }) };
            if !node.memory.contains_key(&block.resource) {
                return Err(StateError::UnknownResource { pod, container });
            }
        }
        take(nodes, block, block.bytes);
    }
    Ok(())
}

/// The same nodes with the same memory, groups and numbers of allocations. What is free may be distributed otherwise in a group,
/// because that depends on the order of allocations and releases.
pub(super) fn are_equal(nodes: &NodeMap, others: &NodeMap) -> bool {
    let is_same = |((id, node), (other_id, other)): ((&u32, &NodeState), (&u32, &NodeState))| {
        id == other_id
            && node.assignments == other.assignments
            && node.cells == other.cells
            && node.memory.keys().eq(other.memory.keys())
            && node.memory.iter().zip(&other.memory).all(|((resource, table), (_, other))| {
                let fixed =
                    |table: &super::MemoryTable| (table.total, table.system_reserved, table.allocatable);
                fixed(table) == fixed(other)
                    && used(nodes, node.cells, resource) == used(others, node.cells, resource)
            })
    };
    nodes.len() == others.len() && nodes.iter().zip(others).all(is_same)
}

/// The free and the allocated bytes of a resource on these nodes; `None` if a node or its resource does not exist.
fn used(nodes: &NodeMap, mask: NumaMask, resource: &str) -> Option<(u64, u64)> {
    mask.ids().try_fold((0_u64, 0_u64), |(free, reserved), id| {
        let table = nodes.get(&id)?.memory.get(resource)?;
        Some((free.saturating_add(table.free), reserved.saturating_add(table.reserved)))
    })
}
