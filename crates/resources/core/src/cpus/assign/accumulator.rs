//! CPUs that are taken one group after the other, until there are enough.

use model::cpu_set::CpuSet;

use super::super::topology::{CpuGroups, CpuTopology};
use super::{NotEnoughCpus, Strategy};

#[derive(Clone, Debug)]
pub(super) struct Accumulator<'a> {
    topology: &'a CpuTopology,
    strategy: Strategy,
    free: CpuSet,
    taken: CpuSet,
    needed: usize,
}

impl<'a> Accumulator<'a> {
    pub(super) fn new(
        topology: &'a CpuTopology,
        available: &CpuSet,
        count: usize,
        strategy: Strategy,
    ) -> Result<Self, NotEnoughCpus> {
        let free = available.intersection(topology.cpus());
        if count > free.len() {
            return Err(NotEnoughCpus { requested: count, available: available.len() });
        }
        Ok(Self { topology, strategy, free, taken: CpuSet::new(), needed: count })
    }

    pub(super) fn taken(self) -> CpuSet {
        self.taken
    }

    pub(super) const fn free(&self) -> &CpuSet {
        &self.free
    }

    pub(super) const fn needed(&self) -> usize {
        self.needed
    }

    pub(super) fn take(&mut self, cpus: &CpuSet) {
        self.free = self.free.difference(cpus);
        self.taken = self.taken.union(cpus);
        self.needed = self.needed.saturating_sub(cpus.len());
    }

    /// A machine has at most as many NUMA nodes as sockets, or divides its sockets into NUMA nodes.
    fn numa_nodes_are_above_sockets(&self) -> bool {
        self.topology.sockets.len() >= self.topology.numa_nodes.len()
    }

    pub(super) fn take_sockets_and_numa_nodes(&mut self) {
        if self.numa_nodes_are_above_sockets() {
            self.take_numa_nodes();
            self.take_sockets();
        } else {
            self.take_sockets();
            self.take_numa_nodes();
        }
    }

    fn take_numa_nodes(&mut self) {
        let whole = self.free_numa_nodes();
        self.take_whole(&self.topology.numa_nodes, &whole);
    }

    fn take_sockets(&mut self) {
        let whole = self.free_sockets();
        self.take_whole(&self.topology.sockets, &whole);
    }

    pub(super) fn take_cores(&mut self) {
        let whole = self.free_cores();
        self.take_whole(&self.topology.cores, &whole);
    }

    /// Takes those groups that are no larger than what is needed.
    fn take_whole(&mut self, groups: &CpuGroups, ids: &[u32]) {
        for cpus in ids.iter().filter_map(|id| groups.get(id)) {
            if self.needed > 0 && self.needed >= cpus.len() {
                self.take(cpus);
            }
        }
    }

    /// Whole caches, or a part of one that has all that is needed.
    pub(super) fn take_uncore_caches(&mut self) {
        for id in self.sorted_uncore_caches() {
            if self.needed >= self.topology.cpus_per_uncore_cache() {
                let whole = self.free_uncore_caches();
                self.take_whole(&self.topology.uncore_caches, &whole);
            }
            if self.needed == 0 {
                return;
            }
            self.take_part_of_uncore_cache(id);
            if self.needed == 0 {
                return;
            }
        }
    }

    /// Takes as many cores of the cache as are needed, or nothing if they have not exactly the needed number of free CPUs. One thread of
    /// the last core may be left out if the number is odd.
    fn take_part_of_uncore_cache(&mut self, id: u32) {
        let Some(cache) = self.topology.uncore_caches.get(&id) else { return };
        let per_core = self.topology.cpus_per_core().max(1);
        let cores = ids_with(&self.topology.cores, &self.free.intersection(cache));
        let mut cpus = CpuSet::new();
        for core in cores.iter().take(self.needed.div_ceil(per_core)) {
            cpus.extend(self.free_of(&self.topology.cores, *core).iter());
        }
        if !self.needed.is_multiple_of(2) && per_core > 1 && cpus.len() > self.needed {
            cpus = cpus.iter().take(cpus.len() - 1).collect();
        }
        if cpus.len() == self.needed {
            self.take(&cpus);
        }
    }

    pub(super) fn take_single_cpus(&mut self) {
        let cpus = self.free_cpus();
        for cpu in cpus.into_iter().take(self.needed) {
            self.take(&CpuSet::from([cpu]));
        }
    }

    /// The free CPUs in the order in which they are taken.
    pub(super) fn free_cpus(&self) -> Vec<u32> {
        match self.strategy {
            Strategy::Packed => {
                let cores = self.sorted_cores().into_iter();
                cores
                    .flat_map(|core| self.free_of(&self.topology.cores, core).iter().collect::<Vec<_>>())
                    .collect()
            }
            Strategy::Spread => {
                let sockets = self.sorted_sockets().into_iter();
                sockets
                    .flat_map(|socket| {
                        self.free_of(&self.topology.sockets, socket).iter().collect::<Vec<_>>()
                    })
                    .collect()
            }
        }
    }

    pub(super) fn free_numa_nodes(&self) -> Vec<u32> {
        self.whole(&self.topology.numa_nodes, self.sorted_numa_nodes(), None)
    }

    pub(super) fn free_sockets(&self) -> Vec<u32> {
        self.whole(&self.topology.sockets, self.sorted_sockets(), Some(self.topology.cpus_per_socket()))
    }

    pub(super) fn free_cores(&self) -> Vec<u32> {
        self.whole(&self.topology.cores, self.sorted_cores(), Some(self.topology.cpus_per_core()))
    }

    fn free_uncore_caches(&self) -> Vec<u32> {
        self.whole(&self.topology.uncore_caches, self.sorted_uncore_caches(), None)
    }

    /// Groups whose CPUs are all free: as many as each group has, or as the mean of all groups if that is given. Machines whose groups
    /// differ have none but those of mean size, as in the Go kubelet.
    fn whole(&self, groups: &CpuGroups, ids: Vec<u32>, size: Option<usize>) -> Vec<u32> {
        let is_free = |id: &u32| {
            groups.get(id).is_some_and(|cpus| {
                let free = cpus.intersection_len(&self.free);
                free == cpus.len() && size.is_none_or(|size| size == free)
            })
        };
        ids.into_iter().filter(is_free).collect()
    }

    /// NUMA nodes with free CPUs: those of sockets with fewer free CPUs first, then those that have fewer themselves.
    pub(super) fn sorted_numa_nodes(&self) -> Vec<u32> {
        let nodes = &self.topology.numa_nodes;
        if self.numa_nodes_are_above_sockets() {
            return self.sorted(nodes, self.topology.cpus());
        }
        self.sorted_within(&self.topology.sockets, &self.sorted_sockets(), nodes)
    }

    fn sorted_sockets(&self) -> Vec<u32> {
        let sockets = &self.topology.sockets;
        if self.numa_nodes_are_above_sockets() {
            return self.sorted_within(&self.topology.numa_nodes, &self.sorted_numa_nodes(), sockets);
        }
        self.sorted(sockets, self.topology.cpus())
    }

    fn sorted_cores(&self) -> Vec<u32> {
        let cores = &self.topology.cores;
        if self.numa_nodes_are_above_sockets() {
            return self.sorted_within(&self.topology.sockets, &self.sorted_sockets(), cores);
        }
        self.sorted_within(&self.topology.numa_nodes, &self.sorted_numa_nodes(), cores)
    }

    fn sorted_uncore_caches(&self) -> Vec<u32> {
        self.sorted_within(&self.topology.numa_nodes, &self.sorted_numa_nodes(), &self.topology.uncore_caches)
    }

    /// The groups within each of the `outer` ones, one after the other; each once.
    fn sorted_within(&self, outer: &CpuGroups, ids: &[u32], groups: &CpuGroups) -> Vec<u32> {
        let mut found = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for cpus in ids.iter().filter_map(|id| outer.get(id)) {
            found.extend(self.sorted(groups, cpus).into_iter().filter(|id| seen.insert(*id)));
        }
        found
    }

    /// Groups with a free CPU of `within`: those with fewer free CPUs first, then those with smaller ids.
    fn sorted(&self, groups: &CpuGroups, within: &CpuSet) -> Vec<u32> {
        let free = self.free.intersection(within);
        let mut found: Vec<(usize, u32)> = groups
            .iter()
            .filter(|(_, cpus)| !cpus.is_disjoint(&free))
            .map(|(id, cpus)| (cpus.intersection_len(&self.free), *id))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn free_of(&self, groups: &CpuGroups, id: u32) -> CpuSet {
        groups.get(&id).map(|cpus| cpus.intersection(&self.free)).unwrap_or_default()
    }
}

/// The ids of groups that have one of the CPUs, smallest first.
fn ids_with(groups: &CpuGroups, cpus: &CpuSet) -> Vec<u32> {
    groups.iter().filter(|(_, group)| !group.is_disjoint(cpus)).map(|(id, _)| *id).collect()
}
