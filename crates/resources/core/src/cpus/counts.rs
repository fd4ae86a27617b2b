//! How many CPUs are shared and exclusive, for metrics.

use model::cpu_set::CpuSet;
use model::topology::NumaMask;

use super::policy::StaticCpuPolicy;
use super::state::CpuState;

/// Numbers of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    pub exclusive: usize,
    /// In the shared pool, without reserved ones.
    pub shared: usize,
    /// Exclusive ones of each NUMA node.
    pub exclusive_by_node: Vec<(u32, usize)>,
}

impl StaticCpuPolicy {
    #[must_use]
    pub fn counts(&self, state: &CpuState) -> CpuCounts {
        let containers = state.assigned.values().flat_map(|containers| containers.values());
        let exclusive = containers.fold(CpuSet::new(), |all, cpus| all.union(cpus));
        let of_node = |id| (id, exclusive.intersection_len(&self.topology.cpus_in(NumaMask::of([id]))));
        CpuCounts {
            exclusive: exclusive.len(),
            shared: self.available(state).len(),
            exclusive_by_node: self.topology.numa_mask().ids().map(of_node).collect(),
        }
    }
}
