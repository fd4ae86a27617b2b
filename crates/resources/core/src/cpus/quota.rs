//! Which containers and pods run without a CPU quota, because their CPUs are exclusive (`DisableCPUQuotaWithExclusiveCPUs`).

use model::PodRef;
use model::containers::{ContainerRef, init_containers, regular_containers};
use model::k8s::Pod;

use super::exclusive::{has_pod_level_resources, is_guaranteed};
use super::state::CpuState;

/// What the CPUs of a container are shared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuIsolation {
    /// Everything on the node.
    Host,
    /// Other containers of its pod.
    Pod,
    /// Nothing.
    Container,
}

impl CpuIsolation {
    /// `pod_level`: `PodLevelResourceManagers`.
    #[must_use]
    pub fn of(state: &CpuState, pod: &Pod, container: &ContainerRef<'_>, pod_level: bool) -> Self {
        let Some(_) = state.exclusive(&PodRef::of(pod).uid, container.name()) else { return Self::Host };
        if !pod_level || !has_pod_level_resources(pod) {
            return Self::Container;
        }
        let limit = container.resources().and_then(|resources| model::qos::limit(resources, "cpu"));
        let is_whole = limit.is_some_and(|limit| model::Amount::from_units(limit.units()) == limit);
        if is_whole && is_guaranteed(container.resources()) { Self::Container } else { Self::Pod }
    }
}

/// The container has exclusive CPUs, and needs no quota to keep to its limit.
#[must_use]
pub fn disables_quota_of_container(
    state: &CpuState,
    pod: &Pod,
    container: &ContainerRef<'_>,
    pod_level: bool,
) -> bool {
    let uid = &PodRef::of(pod).uid;
    let has_cpus = state.exclusive(uid, container.name()).is_some_and(|cpus| !cpus.is_empty());
    if pod_level {
        return CpuIsolation::of(state, pod, container, true) == CpuIsolation::Container;
    }
    has_cpus
}

/// A quota of the pod would slow a container with exclusive CPUs down: one of its containers has some. With resources of its own, all
/// containers must.
#[must_use]
pub fn disables_quota_of_pod(state: &CpuState, pod: &Pod, pod_level: bool) -> bool {
    let mut containers = init_containers(pod).chain(regular_containers(pod));
    if pod_level && has_pod_level_resources(pod) {
        return containers.all(|c| CpuIsolation::of(state, pod, &c, true) == CpuIsolation::Container);
    }
    let uid = &PodRef::of(pod).uid;
    containers.any(|c| state.exclusive(uid, c.name()).is_some_and(|cpus| !cpus.is_empty()))
}
