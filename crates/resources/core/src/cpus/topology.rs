//! The topology of a machine, by what CPUs belong to: cores, sockets, NUMA nodes and caches.

use std::collections::BTreeMap;

use model::cpu_set::CpuSet;
use model::topology::{MachineTopology, NumaMask, Processor};

/// The CPUs of each core, socket, NUMA node or cache, by its id.
pub(super) type CpuGroups = BTreeMap<u32, CpuSet>;

/// The CPUs that are online, and what they belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    cpus: CpuSet,
    pub(super) cores: CpuGroups,
    pub(super) sockets: CpuGroups,
    /// Those with CPUs.
    pub(super) numa_nodes: CpuGroups,
    pub(super) uncore_caches: CpuGroups,
}

impl CpuTopology {
    #[must_use]
    pub fn of(machine: &MachineTopology) -> Self {
        let group = |id: fn(&Processor) -> u32| {
            let mut groups = CpuGroups::new();
            for processor in &machine.processors {
                groups.entry(id(processor)).or_default().insert(processor.id);
            }
            groups
        };
        Self {
            cpus: machine.cpus(),
            cores: group(|processor| processor.core),
            sockets: group(|processor| processor.socket),
            numa_nodes: group(|processor| processor.numa_node),
            uncore_caches: group(|processor| processor.uncore_cache),
        }
    }

    #[must_use]
    pub const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// The mean, rounded down: 1 on a machine where some cores have two threads and others one.
    #[must_use]
    pub fn cpus_per_core(&self) -> usize {
        mean(&self.cpus, &self.cores)
    }

    pub(super) fn cpus_per_socket(&self) -> usize {
        mean(&self.cpus, &self.sockets)
    }

    pub(super) fn cpus_per_uncore_cache(&self) -> usize {
        mean(&self.cpus, &self.uncore_caches)
    }

    /// NUMA nodes that have CPUs.
    #[must_use]
    pub fn numa_mask(&self) -> NumaMask {
        NumaMask::of(self.numa_nodes.keys().copied())
    }

    /// The CPUs of the NUMA nodes.
    #[must_use]
    pub fn cpus_in(&self, nodes: NumaMask) -> CpuSet {
        let of_nodes = self.numa_nodes.iter().filter(|(id, _)| nodes.has(**id));
        of_nodes.fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus))
    }

    /// All CPUs of the sockets that the NUMA nodes have a part of.
    pub(super) fn cpus_in_sockets_of(&self, nodes: NumaMask) -> CpuSet {
        let cpus = self.cpus_in(nodes);
        let sockets = self.sockets.values().filter(|socket| !socket.is_disjoint(&cpus));
        sockets.fold(CpuSet::new(), |all, socket| all.union(socket))
    }

    /// How many sockets the NUMA nodes have a part of.
    pub(super) fn count_sockets_of(&self, nodes: NumaMask) -> usize {
        let cpus = self.cpus_in(nodes);
        self.sockets.values().filter(|socket| !socket.is_disjoint(&cpus)).count()
    }

    /// These CPUs and every other thread of their cores.
    pub(super) fn with_siblings(&self, cpus: &CpuSet) -> CpuSet {
        let touched = self.cores.values().filter(|core| !core.is_disjoint(cpus));
        touched.fold(CpuSet::new(), |all, core| all.union(core))
    }

    /// Those of the CPUs whose cores are among them with all threads.
    pub(super) fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let whole = self.cores.values().filter(|core| core.is_subset(cpus));
        whole.fold(CpuSet::new(), |all, core| all.union(core))
    }

    /// Every core has the same number of threads.
    pub(super) fn has_equal_cores(&self) -> bool {
        let per_core = self.cpus_per_core();
        self.cores.values().all(|core| core.len() == per_core)
    }

    /// All CPUs share one last-level cache. True for one CPU or none.
    #[must_use]
    pub fn is_uncore_aligned(&self, cpus: &CpuSet) -> bool {
        cpus.len() <= 1 || self.uncore_caches.values().any(|cache| cpus.is_subset(cache))
    }

    /// How many of the CPUs each NUMA node has; nodes that have none are left out.
    #[must_use]
    pub fn count_per_numa_node(&self, cpus: &CpuSet) -> BTreeMap<u32, usize> {
        let counts = self.numa_nodes.iter().map(|(id, node)| (*id, node.intersection_len(cpus)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

fn mean(cpus: &CpuSet, groups: &CpuGroups) -> usize {
    cpus.len().checked_div(groups.len()).unwrap_or_default()
}
