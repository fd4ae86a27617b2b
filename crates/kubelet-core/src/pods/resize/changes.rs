//! What of a running pod is not as it is allocated.

use std::sync::Arc;

use config::Features;
use model::containers::{ContainerRef, ContainersByName};
use model::k8s::Pod;
use model::{ContainerId, ContainerObservation, ContainerState, PodObservation};
use resources_core::amounts::{Actuated, Amounts, Resource, is_resizable};

use super::accept::restarts_for;

/// A container whose amounts are changed while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerChange {
    pub id: ContainerId,
    pub name: Arc<str>,
    pub from: Amounts,
    pub to: Amounts,
}

impl ContainerChange {
    /// The new memory limit, if it takes away what the container may use now.
    #[must_use]
    pub const fn smaller_memory_limit(&self) -> Option<i64> {
        let (from, to) = (self.from.memory_limit, self.to.memory_limit);
        if to != 0 && (from == 0 || to < from) { Some(to) } else { None }
    }
}

/// The part of a plan that resizes the pod; without containers only its cgroup is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodResize {
    /// In the order of the plan.
    pub containers: Vec<ContainerChange>,
}

/// How a container gets its amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Update(ContainerChange),
    /// Its policy requires a restart.
    Restart,
}

/// The change that a running container needs, if any.
#[must_use]
pub fn change_of(
    pod: &Pod,
    container: &ContainerRef<'_>,
    instance: &ContainerObservation,
    actuated: &Actuated,
    features: Features,
) -> Option<Change> {
    if instance.state != ContainerState::Running || !is_resizable(container.kind, features) {
        return None;
    }
    let from = actuated.of_container(pod, container, features);
    let to = Amounts::of_container(pod, container, features);
    let differs = |resource| from.differs_in(&to, resource);
    let needs_restart = |resource| differs(resource) && restarts_for(container, resource);
    if needs_restart(Resource::Cpu) || needs_restart(Resource::Memory) {
        return Some(Change::Restart);
    }
    (from != to).then(|| {
        let (id, name) = (instance.id.clone(), instance.name.clone());
        Change::Update(ContainerChange { id, name, from, to })
    })
}

/// The resources of the pod as a whole are not set as they are allocated.
#[must_use]
pub fn is_pod_level_due(pod: &Pod, actuated: &Actuated, features: Features) -> bool {
    features.pod_level_resize && actuated.pod.is_some_and(|set| set != Amounts::of_pod(pod))
}

/// Something that runs has other amounts than are allocated to it.
#[must_use]
pub fn is_in_progress(pod: &Pod, observed: &PodObservation, actuated: &Actuated, features: Features) -> bool {
    let containers = ContainersByName::of(pod);
    let is_changing = |instance: &ContainerObservation| {
        let is_newest = observed.newest(&instance.name).is_some_and(|newest| newest.id == instance.id);
        let container = containers.get(&instance.name).filter(|_| is_newest);
        container.is_some_and(|container| change_of(pod, &container, instance, actuated, features).is_some())
    };
    observed.running().any(is_changing) || is_pod_level_due(pod, actuated, features)
}
