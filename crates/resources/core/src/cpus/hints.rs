//! Which NUMA nodes could give a container or pod its CPUs, for the topology manager.

use model::PodRef;
use model::containers::{ContainerRef, init_containers, regular_containers};
use model::cpu_set::CpuSet;
use model::k8s::Pod;
use model::topology::NumaMask;

use super::allocate::reusable_cpus;
use super::exclusive::{exclusive_cpus_of_container, exclusive_cpus_of_pod, has_pod_level_resources};
use super::policy::StaticCpuPolicy;
use super::state::CpuState;
use crate::topology::TopologyHint;

impl StaticCpuPolicy {
    /// `None`: any node will do. An empty list: no node will do. There are 2ⁿ hints for n NUMA nodes; the topology manager limits them.
    #[must_use]
    pub fn hints_of_container(
        &self,
        state: &CpuState,
        pod: &Pod,
        container: &ContainerRef<'_>,
    ) -> Option<Vec<TopologyHint>> {
        let requested = self.exclusive_cpus_of(pod, container);
        if requested == 0 {
            return None;
        }
        let uid = &PodRef::of(pod).uid;
        if let Some(cpus) = state.exclusive(uid, container.name()) {
            return Some(self.hints_again(cpus, requested));
        }
        let reusable = reusable_cpus(state, uid, pod, Some(container.name()));
        Some(self.hints(&self.available(state), &reusable, requested))
    }

    /// The same for all containers of a pod together.
    #[must_use]
    pub fn hints_of_pod(&self, state: &CpuState, pod: &Pod) -> Option<Vec<TopologyHint>> {
        let requested = exclusive_cpus_of_pod(pod, self.pod_level);
        let has_own = has_pod_level_resources(pod);
        if requested == 0 || (has_own && !self.pod_level) {
            return None;
        }
        if has_own && self.check_shared_pool(pod).is_err() {
            return Some(Vec::new());
        }
        let uid = &PodRef::of(pod).uid;
        if let Some(cpus) = state.pods.get(uid) {
            return Some(self.hints_again(cpus, requested));
        }
        let mut assigned = CpuSet::new();
        for container in init_containers(pod).chain(regular_containers(pod)) {
            let Some(cpus) = state.exclusive(uid, container.name()) else { continue };
            if cpus.len() != exclusive_cpus_of_container(pod, &container, self.pod_level) {
                return Some(Vec::new());
            }
            assigned = assigned.union(cpus);
        }
        if assigned.len() == requested {
            return Some(self.hints_again(&assigned, requested));
        }
        let reusable = reusable_cpus(state, uid, pod, None).union(&assigned);
        Some(self.hints(&self.available(state), &reusable, requested))
    }

    /// For CPUs that are allocated already. If the request has changed, no node will do.
    fn hints_again(&self, cpus: &CpuSet, requested: usize) -> Vec<TopologyHint> {
        if cpus.len() == requested { self.hints(cpus, &CpuSet::new(), requested) } else { Vec::new() }
    }

    /// Every combination of nodes that has the reusable CPUs and together with available ones enough. Those with as few nodes as would do
    /// on the empty machine are preferred.
    fn hints(&self, available: &CpuSet, reusable: &CpuSet, requested: usize) -> Vec<TopologyHint> {
        let mut fewest = self.topology.numa_mask().count();
        let mut masks = Vec::new();
        for mask in self.topology.numa_mask().subsets() {
            let cpus = self.topology.cpus_in(mask);
            if cpus.len() >= requested {
                fewest = fewest.min(mask.count());
            }
            let matching = reusable.len() + available.intersection_len(&cpus);
            if reusable.is_subset(&cpus) && matching >= requested {
                masks.push(mask);
            }
        }
        let is_preferred = |mask: NumaMask| mask.count() == fewest || self.is_socket_aligned(mask, fewest);
        let hint = |mask| TopologyHint { nodes: Some(mask), is_preferred: is_preferred(mask) };
        masks.into_iter().map(hint).collect()
    }

    /// With `align-by-socket`: the nodes are of no more sockets than `fewest` nodes could be.
    fn is_socket_aligned(&self, nodes: NumaMask, fewest: u32) -> bool {
        let per_socket = self.topology.numa_nodes.len().checked_div(self.topology.sockets.len()).unwrap_or(0);
        self.options.align_by_socket
            && per_socket > 0
            && self.topology.count_sockets_of(nodes) == (fewest as usize).div_ceil(per_socket)
    }
}
