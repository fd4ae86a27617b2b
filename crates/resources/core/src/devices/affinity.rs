//! Devices near the NUMA nodes that the topology manager has chosen.

use std::collections::BTreeMap;

use model::topology::NumaMask;

use super::Registry;
use crate::topology::TopologyHint;

/// The hint of the topology manager for each container; one without a hint may use devices of any node.
pub type Hints = BTreeMap<String, TopologyHint>;

/// No container has a hint, as under the policy `none`.
pub static NO_HINTS: Hints = Hints::new();

/// Devices by where they are, each list in the order of ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ByAffinity {
    /// On a node of the hint.
    pub(super) aligned: Vec<String>,
    /// On other nodes only.
    pub(super) unaligned: Vec<String>,
    /// Without a node, or where nodes do not matter.
    pub(super) elsewhere: Vec<String>,
}

impl ByAffinity {
    pub(super) fn of<'a>(
        registry: &Registry,
        resource: &str,
        available: impl IntoIterator<Item = &'a str>,
        hint: Option<TopologyHint>,
    ) -> Self {
        let hint = hint.and_then(|hint| hint.nodes).filter(|_| has_nodes(registry, resource));
        let mut sorted = Self::default();
        for id in available {
            let nodes = registry.numa_nodes(resource, id);
            let list = match hint {
                Some(hint) if !mask(nodes).and(hint).is_empty() => &mut sorted.aligned,
                Some(_) if !nodes.is_empty() => &mut sorted.unaligned,
                Some(_) | None => &mut sorted.elsewhere,
            };
            list.push(id.to_owned());
        }
        sorted
    }

    /// The devices to take first, first.
    pub(super) fn into_ids(self) -> impl Iterator<Item = String> {
        self.aligned.into_iter().chain(self.unaligned).chain(self.elsewhere)
    }
}

/// Some device of the resource has a NUMA node.
pub(super) fn has_nodes(registry: &Registry, resource: &str) -> bool {
    registry.devices(resource).any(|id| !registry.numa_nodes(resource, id).is_empty())
}

/// Without ids that no machine has.
pub(super) fn mask(nodes: &[i64]) -> NumaMask {
    NumaMask::of(nodes.iter().filter_map(|id| u32::try_from(*id).ok()))
}
