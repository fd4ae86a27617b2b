//! The hints of memory for the topology manager, and its allocations as a provider.

use model::containers::ContainerRef;
use model::k8s::Pod;

use super::hints::{for_resources, of_allocated};
use super::pod_memory::{PodMemory, containers, uid_of};
use super::{Blocks, Bytes, MemoryError, requests, shared_pool};
use crate::rejection::Rejection;
use crate::topology::{HintProvider, ProviderHints, TopologyHint};

impl PodMemory<'_> {
    fn hints(&self, allocated: Option<&Blocks>, requests: &Bytes) -> ProviderHints {
        match allocated {
            Some(blocks) => of_allocated(blocks, requests),
            None => for_resources(requests, &self.supply().hints(requests)),
        }
    }

    fn pod_hints_of(&self, pod: &Pod) -> Result<ProviderHints, MemoryError> {
        let requests = requests::of_pod(pod, self.is_pod_level(pod))?;
        if self.is_pod_level(pod) && shared_pool::check(pod, &requests).is_err() {
            let impossible = |resource: &String| (resource.clone(), Some(Vec::new()));
            return Ok(requests.keys().map(impossible).collect());
        }
        if requests.is_empty() {
            return Ok(ProviderHints::new());
        }
        let uid = uid_of(pod);
        let mut containers = containers(pod);
        let allocated = containers.find_map(|container| self.state.of_container(&uid, container.name()));
        Ok(self.hints(allocated, &requests))
    }
}

impl HintProvider for PodMemory<'_> {
    fn container_hints(&self, pod: &Pod, container: &ContainerRef<'_>) -> ProviderHints {
        if !self.is_aligned(pod) {
            return ProviderHints::new();
        }
        // A request that is no whole number of bytes fails in the allocation.
        let Ok(requests) = requests::of_container(container, self.is_pod_level(pod)) else {
            return ProviderHints::new();
        };
        self.hints(self.state.of_container(&uid_of(pod), container.name()), &requests)
    }

    fn pod_hints(&self, pod: &Pod) -> ProviderHints {
        if !self.is_aligned(pod) {
            return ProviderHints::new();
        }
        self.pod_hints_of(pod).unwrap_or_default()
    }

    fn allocate(
        &mut self,
        pod: &Pod,
        container: &ContainerRef<'_>,
        hint: TopologyHint,
    ) -> Result<(), Rejection> {
        self.allocate_container(pod, container, hint).map_err(|error| error.rejection())
    }

    fn allocate_pod(&mut self, pod: &Pod, hint: TopologyHint) -> Result<(), Rejection> {
        self.allocate_to_all(pod, hint).map_err(|error| error.rejection())
    }
}
