//! Which CPUs a request gets: whole sockets, NUMA nodes, caches and cores first, and those that are already partly in use before others.
//!
//! The order is that of the Go kubelet, CPU for CPU, so that a node gives the same CPUs under both.

mod accumulator;
mod balance;
mod distributed;

#[cfg(test)]
mod tests;

use model::cpu_set::CpuSet;

use accumulator::Accumulator;

use super::options::CpuOptions;
use super::topology::CpuTopology;

/// Why no CPUs are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
pub struct NotEnoughCpus {
    pub requested: usize,
    pub available: usize,
}

/// How single CPUs are picked, after no more whole cores are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// All threads of a core before those of the next; whole cores first.
    Packed,
    /// In the order of their ids, which on most machines is one thread of each core first.
    Spread,
}

/// `count` of the CPUs that are `available`, as the options say.
pub(super) fn assign(
    topology: &CpuTopology,
    options: CpuOptions,
    available: &CpuSet,
    count: usize,
) -> Result<CpuSet, NotEnoughCpus> {
    let strategy = if options.distribute_cpus_across_cores { Strategy::Spread } else { Strategy::Packed };
    if options.distribute_cpus_across_numa {
        let group = if options.full_pcpus_only { topology.cpus_per_core() } else { 1 };
        return distributed::assign(topology, available, count, group, strategy);
    }
    assign_packed(topology, available, count, strategy, options.prefer_align_cpus_by_uncorecache)
}

/// From as few NUMA nodes, sockets and cores as possible.
fn assign_packed(
    topology: &CpuTopology,
    available: &CpuSet,
    count: usize,
    strategy: Strategy,
    prefers_uncore_cache: bool,
) -> Result<CpuSet, NotEnoughCpus> {
    let mut cpus = Accumulator::new(topology, available, count, strategy)?;
    cpus.take_sockets_and_numa_nodes();
    if prefers_uncore_cache {
        cpus.take_uncore_caches();
    }
    if strategy == Strategy::Packed {
        cpus.take_cores();
    }
    cpus.take_single_cpus();
    Ok(cpus.taken())
}
