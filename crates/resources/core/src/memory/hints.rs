//! Which combinations of NUMA nodes have the requested memory, and which of them is used.

use std::collections::BTreeMap;

use model::topology::NumaMask;

use super::nodes::{could_have, free, have};
use super::reusable::Reusable;
use super::{Block, Bytes, MemoryError, NodeMap};
use crate::topology::{ProviderHints, TopologyHint};

/// The nodes of a machine, and what a pod may use of them besides what is free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply<'a> {
    pub(super) nodes: &'a NodeMap,
    pub(super) reusable: &'a Reusable,
}

impl Supply<'_> {
    /// Every combination of nodes that has all requested resources, the same for each resource. Preferred are those with the smallest
    /// number of nodes that could have as much on an idle machine.
    pub(super) fn hints(&self, requests: &Bytes) -> Vec<TopologyHint> {
        if requests.is_empty() {
            return Vec::new();
        }
        let all = NumaMask::of(self.nodes.keys().copied());
        let possible = all.subsets().into_iter().filter(|mask| could_have(self.nodes, *mask, requests));
        let possible: Vec<NumaMask> = possible.collect();
        let fewest = possible.iter().map(|mask| mask.count()).min().unwrap_or(all.count());
        let usable = possible.into_iter().filter(|mask| self.is_usable(*mask) && self.has(*mask, requests));
        usable.map(|mask| TopologyHint { nodes: Some(mask), is_preferred: mask.count() == fewest }).collect()
    }

    /// A node in a group is not used alone, and one that is used alone or in another group is not used with these.
    fn is_usable(&self, mask: NumaMask) -> bool {
        let mut used = self.nodes.iter().filter(|(id, _)| mask.has(**id)).map(|(_, node)| node);
        used.all(
            |node| {
                if mask.count() == 1 { node.cells.count() <= 1 } else { !node.is_used_otherwise(mask) }
            },
        )
    }

    fn is_part_of_group(&self, mask: NumaMask) -> bool {
        mask.count() == 1 && !self.is_usable(mask)
    }

    fn has(&self, mask: NumaMask, requests: &Bytes) -> bool {
        let available = |resource: &str| {
            free(self.nodes, mask, resource).saturating_add(self.reusable.of(mask, resource))
        };
        requests.iter().all(|(resource, bytes)| available(resource) >= *bytes)
    }

    /// The nodes to allocate from: those of the hint, or the best if it has none; more of them if they have too little.
    pub(super) fn choose(&self, requests: &Bytes, hint: TopologyHint) -> Result<NumaMask, MemoryError> {
        let mut chosen = match hint.nodes {
            Some(nodes) => (nodes, hint.is_preferred),
            None => {
                let default = best(self.hints(requests).into_iter()).ok_or(MemoryError::NoDefault)?;
                if hint.is_preferred && !default.1 {
                    return Err(MemoryError::DefaultNotPreferred);
                }
                default
            }
        };
        // The Go kubelet lets a single node of a group be used alone, and then may refuse its own state after a restart.
        if !have(self.nodes, chosen.0, requests) || self.is_part_of_group(chosen.0) {
            let wider = self.hints(requests).into_iter();
            let wider = wider.filter(|hint| hint.nodes.is_some_and(|nodes| nodes.and(chosen.0) == chosen.0));
            let extended = best(wider).ok_or(MemoryError::NoExtension)?;
            if chosen.1 && !extended.1 {
                return Err(MemoryError::ExtensionNotPreferred);
            }
            chosen = extended;
        }
        if mixes_groups(self.nodes, chosen.0) {
            return Err(MemoryError::MixesGroups);
        }
        Ok(chosen.0)
    }
}

/// Preferred ones first, then those with few nodes. Returns the nodes and whether they are preferred.
fn best(hints: impl Iterator<Item = TopologyHint>) -> Option<(NumaMask, bool)> {
    let chosen = hints.filter_map(|hint| Some((hint.nodes?, hint.is_preferred)));
    chosen.min_by_key(|(nodes, is_preferred)| (!is_preferred, nodes.count(), *nodes))
}

/// Some of these nodes are used alone or in another group.
pub(super) fn mixes_groups(nodes: &NodeMap, mask: NumaMask) -> bool {
    nodes.iter().any(|(id, node)| mask.has(*id) && node.is_used_otherwise(mask))
}

/// The same hint for each resource. Without any hint the provider has no preference, and the allocation fails.
pub(super) fn for_resources(requests: &Bytes, hints: &[TopologyHint]) -> ProviderHints {
    if hints.is_empty() {
        return ProviderHints::new();
    }
    requests.keys().map(|resource| (resource.clone(), Some(hints.to_vec()))).collect()
}

/// The hints for memory that is allocated already, as after a restart; none if other amounts are requested now.
pub(super) fn of_allocated(blocks: &[Block], requests: &Bytes) -> ProviderHints {
    let fits = |block: &Block| requests.get(&block.resource) == Some(&block.bytes);
    if blocks.len() != requests.len() || !blocks.iter().all(fits) {
        return ProviderHints::new();
    }
    let mut hints: BTreeMap<String, Vec<TopologyHint>> =
        requests.keys().map(|resource| (resource.clone(), Vec::new())).collect();
    for block in blocks {
        let hint = TopologyHint { nodes: Some(block.numa), is_preferred: true };
        hints.entry(block.resource.clone()).or_default().push(hint);
    }
    hints.into_iter().map(|(resource, hints)| (resource, Some(hints))).collect()
}
