//! One hint from those of all resources.
//!
//! The result is that of trying every way to take one hint of each resource, and keeping the best: the nodes are those that all
//! taken hints share, and the result is preferred if all taken hints are and name the same nodes. Instead of every way, of which
//! there are exponentially many in the number of resources, this looks at every set of nodes that can result. What is better depends
//! on the resulting hints only and orders them totally, so both find the same (docs/decisions/0073-merge-of-topology-hints.md).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use model::topology::NumaMask;

use super::numa_info::NumaInfo;
use super::{ProviderHints, TopologyHint};

/// With more groups of nodes that are in different hints, results that are not preferred are not looked for, so that the sets of nodes stay
/// few.
const MAX_GROUPS: usize = 16;

/// The hints of each resource; a provider without a resource counts as one whose nodes do not matter.
pub(super) fn hints_of_resources(providers: &[ProviderHints]) -> Vec<Vec<TopologyHint>> {
    let of_resource = |hints: &Option<Vec<TopologyHint>>| match hints {
        None => vec![TopologyHint::ANY],
        Some(hints) if hints.is_empty() => vec![TopologyHint::IMPOSSIBLE],
        Some(hints) => hints.clone(),
    };
    let of_provider = |provider: &ProviderHints| {
        if provider.is_empty() {
            return vec![vec![TopologyHint::ANY]];
        }
        provider.values().map(of_resource).collect()
    };
    providers.iter().flat_map(of_provider).collect()
}

/// How hints are merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge<'a> {
    pub(super) numa: &'a NumaInfo,
    /// Of masks with the same number of nodes, that whose nodes are nearest to each other is the best.
    pub(super) prefers_closest: bool,
}

impl Merge<'_> {
    /// The best hint; all nodes, not preferred, if the resources share no node.
    pub(super) fn best(&self, hints: &[Vec<TopologyHint>]) -> TopologyHint {
        let all = self.numa.all();
        let preferred = self.preferred(hints).into_iter().filter(|mask| !mask.is_empty());
        if let Some(mask) = preferred.min_by_key(|mask| self.rank(*mask)) {
            return TopologyHint { nodes: Some(mask), is_preferred: true };
        }
        let best_count = max_of_min_counts(hints);
        let shared = self.shared(hints).into_iter().filter(|mask| !mask.is_empty());
        let best = shared.min_by_key(|mask| (distance_to(best_count, *mask), self.rank(*mask)));
        TopologyHint { nodes: Some(best.unwrap_or(all)), is_preferred: false }
    }

    /// The smaller, the better: few nodes, near each other if that counts, with small ids.
    fn rank(&self, mask: NumaMask) -> (u32, u64, NumaMask) {
        let distance = if self.prefers_closest { self.numa.total_distance(mask) } else { 0 };
        (mask.count(), distance, mask)
    }

    /// The nodes of every preferred result: each resource has a preferred hint for just these, or for any.
    fn preferred(&self, hints: &[Vec<TopologyHint>]) -> BTreeSet<NumaMask> {
        let all = self.numa.all();
        let resources: Vec<Preferred> = hints.iter().map(|hints| Preferred::of(hints)).collect();
        let has = |mask: &NumaMask| resources.iter().all(|own| own.is_any || own.masks.contains(mask));
        let masks = resources.iter().flat_map(|own| &own.masks).filter(|mask| has(mask));
        let mut results: BTreeSet<NumaMask> = masks.map(|mask| mask.and(all)).collect();
        if resources.iter().all(|own| own.is_any) {
            results.insert(all);
        }
        results
    }

    /// Every set of nodes that one hint of each resource share.
    fn shared(&self, hints: &[Vec<TopologyHint>]) -> Vec<NumaMask> {
        let groups = self.groups(hints);
        if groups.len() > MAX_GROUPS {
            return Vec::new();
        }
        let size = 1_usize << groups.len();
        let index = |nodes: Option<NumaMask>| {
            let has = |group: NumaMask| nodes.is_none_or(|nodes| !nodes.and(group).is_empty());
            groups
                .iter()
                .enumerate()
                .filter(|(_, group)| has(**group))
                .fold(0, |index, (at, _)| index | (1 << at))
        };
        let mut found = vec![false; size];
        found[index(None)] = true;
        for hints in hints {
            let mut own = vec![false; size];
            for hint in hints {
                own[index(hint.nodes)] = true;
            }
            found = intersections(&found, &own);
        }
        let mask = |index: usize| {
            let groups = groups.iter().enumerate().filter(|(at, _)| index & (1 << at) != 0);
            groups.fold(NumaMask::EMPTY, |mask, (_, group)| mask.or(*group))
        };
        (0..size).filter(|index| found[*index]).map(mask).collect()
    }

    /// Nodes that are in the same hints: of a machine with many nodes, few have CPUs or devices.
    fn groups(&self, hints: &[Vec<TopologyHint>]) -> Vec<NumaMask> {
        let masks = || hints.iter().flatten().filter_map(|hint| hint.nodes);
        let mut groups: BTreeMap<Vec<bool>, NumaMask> = BTreeMap::new();
        for id in self.numa.ids() {
            let group = groups.entry(masks().map(|mask| mask.has(*id)).collect()).or_default();
            *group = group.or(NumaMask::of([*id]));
        }
        groups.into_values().collect()
    }
}

/// The preferred hints of a resource.
struct Preferred {
    /// One is for any node.
    is_any: bool,
    masks: BTreeSet<NumaMask>,
}

impl Preferred {
    fn of(hints: &[TopologyHint]) -> Self {
        let preferred = || hints.iter().filter(|hint| hint.is_preferred).map(|hint| hint.nodes);
        Self { is_any: preferred().any(|nodes| nodes.is_none()), masks: preferred().flatten().collect() }
    }
}

/// The number of nodes of the resource that needs the most, if each gets as few as it can.
fn max_of_min_counts(hints: &[Vec<TopologyHint>]) -> u32 {
    let fewest =
        |hints: &Vec<TopologyHint>| hints.iter().filter_map(|hint| hint.nodes).map(NumaMask::count).min();
    hints.iter().filter_map(fewest).max().unwrap_or(0)
}

/// A result that is not preferred is the better the nearer its number of nodes is to this one: first below, then above.
fn distance_to(best: u32, mask: NumaMask) -> (bool, u32) {
    let count = mask.count();
    (count > best, count.abs_diff(best))
}

/// The sets that are an intersection of one of `left` and one of `right`. Sets are indexed by their bits; both lists have a length
/// that is a power of two.
fn intersections(left: &[bool], right: &[bool]) -> Vec<bool> {
    // The number of pairs whose intersection includes a set is the product of the numbers of sets that include it; from these
    // follow the numbers of pairs whose intersection is that set.
    let (left, right) = (including(left), including(right));
    let mut pairs: Vec<u64> = left.iter().zip(&right).map(|(left, right)| left * right).collect();
    for bit in bits(pairs.len()) {
        for set in (0..pairs.len()).filter(|set| set & bit == 0) {
            pairs[set] = pairs[set].wrapping_sub(pairs[set | bit]);
        }
    }
    pairs.into_iter().map(|count| count > 0).collect()
}

/// For each set, how many of these sets include it.
fn including(sets: &[bool]) -> Vec<u64> {
    let mut counts: Vec<u64> = sets.iter().map(|is_in| u64::from(*is_in)).collect();
    for bit in bits(counts.len()) {
        for set in (0..counts.len()).filter(|set| set & bit == 0) {
            counts[set] += counts[set | bit];
        }
    }
    counts
}

fn bits(size: usize) -> impl Iterator<Item = usize> {
    (0..size.ilog2()).map(|at| 1 << at)
}
