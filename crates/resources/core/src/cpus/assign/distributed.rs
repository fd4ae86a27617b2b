//! CPUs spread evenly over as few NUMA nodes as can have an even share each (`distribute-cpus-across-numa`).

use std::cell::Cell;
use std::collections::BTreeMap;

use model::cpu_set::CpuSet;

use super::super::topology::CpuTopology;
use super::accumulator::Accumulator;
use super::balance::deviation;
use super::{NotEnoughCpus, Strategy, assign_packed};

/// How many combinations are looked at: more than ten NUMA nodes have. Of those of larger machines the best of the first ones is taken.
const MAX_COMBINATIONS: u32 = 100_000;

/// NUMA nodes that each give the same number of CPUs, and those that give the rest, one group of CPUs after the other.
#[derive(Clone, Debug)]
struct Share {
    nodes: Vec<u32>,
    rest: Vec<u32>,
    deviation: u64,
}

/// What the search looks at: the free CPUs of each node, the request, and how many CPUs are given together.
struct Request {
    /// In the order in which nodes are preferred.
    nodes: Vec<u32>,
    free: BTreeMap<u32, usize>,
    count: usize,
    group: usize,
    /// Combinations that may still be looked at.
    left: Cell<u32>,
}

/// CPUs in groups of `group`. If no even spread is possible they are packed.
pub(super) fn assign(
    topology: &CpuTopology,
    available: &CpuSet,
    count: usize,
    group: usize,
    strategy: Strategy,
) -> Result<CpuSet, NotEnoughCpus> {
    let packed = || assign_packed(topology, available, count, strategy, false);
    if group == 0 || !count.is_multiple_of(group) {
        return packed();
    }
    let mut cpus = Accumulator::new(topology, available, count, strategy)?;
    if count == 0 {
        return Ok(cpus.taken());
    }
    let nodes = cpus.sorted_numa_nodes();
    let free = nodes.iter().map(|id| (*id, cpus.free_of(&topology.numa_nodes, *id).len())).collect();
    let request = Request { nodes, free, count, group, left: Cell::new(MAX_COMBINATIONS) };
    let (fewest, most) = request.numbers_of_nodes(topology);
    let Some(share) = (fewest..=most).find_map(|size| request.best_share(size)) else { return packed() };
    let from_node = |cpus: &Accumulator<'_>, node: u32, count: usize| {
        assign_packed(topology, &cpus.free_of(&topology.numa_nodes, node), count, strategy, false)
    };
    for node in &share.nodes {
        let part = from_node(&cpus, *node, request.even_share(share.nodes.len()))?;
        cpus.take(&part);
    }
    while cpus.needed() > 0 {
        let needed = cpus.needed();
        for node in &share.rest {
            let is_left =
                topology.numa_nodes.get(node).is_some_and(|n| n.intersection_len(cpus.free()) >= group);
            if cpus.needed() > 0 && is_left {
                let part = from_node(&cpus, *node, group)?;
                cpus.take(&part);
            }
        }
        if cpus.needed() == needed {
            return packed();
        }
    }
    Ok(cpus.taken())
}

impl Request {
    /// The smallest number of nodes that could have the CPUs if all were free, and the largest of which each gives one group.
    fn numbers_of_nodes(&self, topology: &CpuTopology) -> (usize, usize) {
        let groups = topology.cpus().len().div_ceil(self.group);
        let per_node = groups.div_ceil(topology.numa_nodes.len().max(1));
        let needed = self.count.div_ceil(self.group);
        (needed.div_ceil(per_node.max(1)), needed.min(self.nodes.len()))
    }

    /// CPUs from each of so many nodes.
    const fn even_share(&self, nodes: usize) -> usize {
        self.count / nodes / self.group * self.group
    }

    fn may_go_on(&self) -> bool {
        self.left.set(self.left.get().saturating_sub(1));
        self.left.get() > 0
    }

    /// The share of so many nodes that leaves the machine most balanced; the first of equal ones.
    fn best_share(&self, size: usize) -> Option<Share> {
        let mut best: Option<Share> = None;
        each_combination(&self.nodes, size, &mut |nodes| {
            if let Some(share) = self.share_of(nodes)
                && best.as_ref().is_none_or(|best| share.deviation < best.deviation)
            {
                best = Some(share);
            }
            best.as_ref().is_none_or(|best| best.deviation > 0) && self.may_go_on()
        });
        best
    }

    /// How these nodes would give the CPUs; `None` if they cannot.
    fn share_of(&self, nodes: &[u32]) -> Option<Share> {
        let free = |node: &u32| self.free.get(node).copied().unwrap_or_default();
        let groups: usize = nodes.iter().map(|node| free(node) / self.group).sum();
        let even = self.even_share(nodes.len());
        if groups * self.group < self.count || nodes.iter().any(|node| free(node) < even) {
            return None;
        }
        let mut left = self.free.clone();
        for node in nodes {
            left.entry(*node).and_modify(|free| *free -= even);
        }
        let rest = self.count - even * nodes.len();
        if rest == 0 {
            return Some(Share { nodes: nodes.to_vec(), rest: Vec::new(), deviation: deviation_of(&left) });
        }
        let has_group = |node: &&u32| left.get(node).is_some_and(|free| *free >= self.group);
        let candidates: Vec<u32> = nodes.iter().filter(has_group).copied().collect();
        let mut best: Option<Share> = None;
        for size in (1..=candidates.len()).rev() {
            each_combination(&candidates, size, &mut |givers| {
                if let Some(deviation) = self.deviation_after(&left, givers, rest)
                    && best.as_ref().is_none_or(|best| deviation < best.deviation)
                {
                    best = Some(Share { nodes: nodes.to_vec(), rest: givers.to_vec(), deviation });
                }
                self.may_go_on()
            });
        }
        best
    }

    /// The balance of the machine after these nodes gave the rest in turn; `None` if they have too few groups.
    fn deviation_after(&self, left: &BTreeMap<u32, usize>, givers: &[u32], rest: usize) -> Option<u64> {
        let mut left = left.clone();
        let mut rest = rest;
        while rest > 0 {
            let before = rest;
            for node in givers {
                let Some(free) = left.get_mut(node).filter(|free| **free >= self.group) else { continue };
                if rest > 0 {
                    *free -= self.group;
                    rest -= self.group;
                }
            }
            if rest == before {
                return None;
            }
        }
        Some(deviation_of(&left))
    }
}

fn deviation_of(left: &BTreeMap<u32, usize>) -> u64 {
    deviation(&left.values().copied().collect::<Vec<_>>())
}

/// Calls `visit` with each combination of so many of the nodes, in their order, until it returns false.
fn each_combination(nodes: &[u32], size: usize, visit: &mut impl FnMut(&[u32]) -> bool) {
    fn extend(
        nodes: &[u32],
        size: usize,
        chosen: &mut Vec<u32>,
        visit: &mut impl FnMut(&[u32]) -> bool,
    ) -> bool {
        if chosen.len() == size {
            return visit(chosen);
        }
        for (at, node) in nodes.iter().enumerate() {
            chosen.push(*node);
            let goes_on = extend(&nodes[at + 1..], size, chosen, visit);
            chosen.pop();
            if !goes_on {
                return false;
            }
        }
        true
    }
    if size > 0 {
        extend(nodes, size, &mut Vec::with_capacity(size), visit);
    }
}
