//! The memory that containers of a pod reuse of its init containers.

use std::collections::BTreeMap;

use model::topology::NumaMask;

use super::{Blocks, Bytes};

/// What ended init containers leave to the containers after them, by the nodes that it is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reusable(BTreeMap<NumaMask, Bytes>);

impl Reusable {
    pub(super) fn of(&self, nodes: NumaMask, resource: &str) -> u64 {
        self.0.get(&nodes).and_then(|bytes| bytes.get(resource)).copied().unwrap_or(0)
    }

    /// Init containers run one after the other, so that only the largest amount counts.
    pub(super) fn leave(&mut self, blocks: &Blocks) {
        for block in blocks {
            let left = self.0.entry(block.numa).or_default().entry(block.resource.clone()).or_default();
            *left = (*left).max(block.bytes);
        }
    }

    /// Containers that stay take what they reuse.
    pub(super) fn take(&mut self, blocks: &Blocks) {
        for block in blocks {
            let of_nodes = self.0.get_mut(&block.numa);
            if let Some(left) = of_nodes.and_then(|bytes| bytes.get_mut(&block.resource)) {
                *left = left.saturating_sub(block.bytes);
            }
        }
    }
}
