//! What is free on each NUMA node, and which nodes are used together.
//!
//! A node is either used for allocations of its own, or, with all others of a group, for allocations that spread over the group.

use std::collections::BTreeMap;

use model::topology::NumaMask;

use super::{Block, Bytes};

/// The bytes of one resource on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryTable {
    pub total: u64,
    pub system_reserved: u64,
    /// For containers: what is not reserved for the system, and for memory not in huge pages.
    pub allocatable: u64,
    /// Allocated to containers.
    pub reserved: u64,
    pub free: u64,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// A container counts once for each resource that it has of the node.
    pub assignments: i64,
    pub memory: BTreeMap<String, MemoryTable>,
    /// The node, or the group that it is in.
    pub cells: NumaMask,
}

impl NodeState {
    pub(super) fn free(&self, resource: &str) -> u64 {
        self.memory.get(resource).map_or(0, |table| table.free)
    }

    fn allocatable(&self, resource: &str) -> u64 {
        self.memory.get(resource).map_or(0, |table| table.allocatable)
    }

    /// An allocation that spreads over these nodes would share this one with an allocation of another group.
    pub(super) fn is_used_otherwise(&self, nodes: NumaMask) -> bool {
        nodes.count() > 1 && self.assignments > 0 && (self.cells.count() == 1 || self.cells != nodes)
    }
}

/// The nodes by id.
pub type NodeMap = BTreeMap<u32, NodeState>;

fn sum(nodes: &NodeMap, mask: NumaMask, of: impl Fn(&NodeState) -> u64) -> u64 {
    let of_nodes = nodes.iter().filter(|(id, _)| mask.has(**id)).map(|(_, node)| of(node));
    of_nodes.fold(0, u64::saturating_add)
}

/// The free bytes of a resource on these nodes.
pub(super) fn free(nodes: &NodeMap, mask: NumaMask, resource: &str) -> u64 {
    sum(nodes, mask, |node| node.free(resource))
}

/// Whether these nodes could have as much if nothing were allocated.
pub(super) fn could_have(nodes: &NodeMap, mask: NumaMask, requests: &Bytes) -> bool {
    requests.iter().all(|(resource, bytes)| sum(nodes, mask, |node| node.allocatable(resource)) >= *bytes)
}

/// Whether these nodes have as much.
pub(super) fn have(nodes: &NodeMap, mask: NumaMask, requests: &Bytes) -> bool {
    requests.iter().all(|(resource, bytes)| free(nodes, mask, resource) >= *bytes)
}

/// Takes so many bytes of the block's resource from its nodes, as much as possible from each before the next, and makes the nodes a
/// group.
pub(super) fn take(nodes: &mut NodeMap, block: &Block, bytes: u64) {
    let mut left = bytes;
    for id in block.numa.ids() {
        let Some(node) = nodes.get_mut(&id) else { continue };
        node.assignments = node.assignments.saturating_add(1);
        node.cells = block.numa;
        let Some(table) = node.memory.get_mut(&block.resource) else { continue };
        let taken = left.min(table.free);
        table.free -= taken;
        table.reserved = table.reserved.saturating_add(taken);
        left -= taken;
    }
}

/// Gives the bytes of the block back to its nodes. A node without allocations leaves its group.
pub(super) fn give_back(nodes: &mut NodeMap, block: &Block) {
    let mut left = block.bytes;
    for id in block.numa.ids() {
        let Some(node) = nodes.get_mut(&id) else { continue };
        node.assignments = node.assignments.saturating_sub(1);
        if node.assignments == 0 {
            node.cells = NumaMask::of([id]);
        }
        let Some(table) = node.memory.get_mut(&block.resource) else { continue };
        let given = left.min(table.reserved);
        table.reserved -= given;
        table.free = table.free.saturating_add(given);
        left -= given;
    }
}
