//! How many CPUs of its own a container or pod gets: those of a Guaranteed pod that request whole CPUs.

use model::containers::{ContainerRef, init_containers, regular_containers, spec_of};
use model::k8s::{Pod, ResourceRequirements};
use model::{Amount, ContainerKind, QosClass, qos};

/// The number of exclusive CPUs of a container; 0 if it runs in a shared pool. With `pod_level` (`PodLevelResourceManagers`), a container
/// of a pod with resources of its own must have equal requests and limits of CPU and memory.
#[must_use]
pub fn exclusive_cpus_of_container(pod: &Pod, container: &ContainerRef<'_>, pod_level: bool) -> usize {
    if QosClass::of(pod) != QosClass::Guaranteed {
        return 0;
    }
    if pod_level && has_pod_level_resources(pod) && !is_guaranteed(container.resources()) {
        return 0;
    }
    container.resources().and_then(|resources| qos::request(resources, "cpu")).map_or(0, whole_cpus)
}

/// The number of exclusive CPUs that the containers of a pod need together: regular containers and sidecars run at the same time, and each
/// init container with the sidecars before it. The request of the pod itself counts instead, with `pod_level`.
#[must_use]
pub fn exclusive_cpus_of_pod(pod: &Pod, pod_level: bool) -> usize {
    if pod_level && has_pod_level_resources(pod) {
        let request = spec_of(pod).resources.as_ref().and_then(|resources| qos::request(resources, "cpu"));
        let is_guaranteed = QosClass::of(pod) == QosClass::Guaranteed;
        return request.filter(|_| is_guaranteed).map_or(0, whole_cpus);
    }
    let cpus = |container: &ContainerRef<'_>| exclusive_cpus_of_container(pod, container, pod_level);
    let (mut at_start, mut sidecars) = (0, 0);
    for container in init_containers(pod) {
        if container.kind == ContainerKind::Sidecar {
            sidecars += cpus(&container);
        } else {
            at_start = at_start.max(sidecars + cpus(&container));
        }
    }
    let together: usize = regular_containers(pod).map(|container| cpus(&container)).sum();
    at_start.max(together + sidecars)
}

/// The pod has requests or limits of its own.
pub(super) fn has_pod_level_resources(pod: &Pod) -> bool {
    let is_set = |resources: &ResourceRequirements| {
        let has = |list: &Option<_>| {
            list.as_ref().is_some_and(|list: &std::collections::BTreeMap<_, _>| !list.is_empty())
        };
        has(&resources.requests) || has(&resources.limits)
    };
    spec_of(pod).resources.as_ref().is_some_and(is_set)
}

/// Equal requests and limits of CPU and memory.
pub(super) fn is_guaranteed(resources: Option<&ResourceRequirements>) -> bool {
    let equal = |resources: &ResourceRequirements, name| {
        let request = qos::request(resources, name);
        request.is_some() && request == qos::limit(resources, name)
    };
    resources.is_some_and(|resources| equal(resources, "cpu") && equal(resources, "memory"))
}

fn whole_cpus(amount: Amount) -> usize {
    let is_whole = Amount::from_units(amount.units()) == amount;
    usize::try_from(amount.units()).ok().filter(|_| is_whole).unwrap_or(0)
}
