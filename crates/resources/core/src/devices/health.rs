//! The health of the devices that pods have, as `allocatedResourcesStatus` of their containers shows it, and which pods are
//! affected when it changes.

use std::collections::BTreeMap;

use model::PodUid;
use model::containers::{init_containers, regular_containers};
use model::k8s::{Pod, ResourceHealth, ResourceStatus};

use super::{DeviceHealth, PodDevices, Registry};
use crate::quantities::is_extended_resource;

/// What each container of a pod shows, by name; containers without devices are not in it.
pub type ContainerHealth = BTreeMap<String, Vec<ResourceStatus>>;

/// The health of each device of a pod, by resource and id.
pub type PodHealth = BTreeMap<(String, String), DeviceHealth>;

/// Some container of the pod requests a resource that a device plugin may have, or the pod has claims.
#[must_use]
pub fn may_have_devices(pod: &Pod) -> bool {
    if pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.is_some()) {
        return true;
    }
    let containers = init_containers(pod).chain(regular_containers(pod));
    let mut limits = containers.filter_map(|container| container.resources()?.limits.as_ref());
    limits.any(|limits| limits.keys().any(|name| is_extended_resource(name)))
}

/// `allocatedResourcesStatus` of each container, by resource and device id.
#[must_use]
pub fn compute_container_health(devices: &PodDevices, registry: &Registry) -> ContainerHealth {
    let shown = devices.containers.iter().map(|(container, resources)| {
        let with_devices = resources.iter().filter(|(_, given)| !given.devices.is_empty());
        let statuses = with_devices.map(|(resource, given)| ResourceStatus {
            name: resource.clone(),
            resources: Some(given.devices.keys().map(|id| shown_health(registry, resource, id)).collect()),
        });
        (container.clone(), statuses.collect::<Vec<_>>())
    });
    shown.filter(|(_, statuses)| !statuses.is_empty()).collect()
}

fn shown_health(registry: &Registry, resource: &str, id: &str) -> ResourceHealth {
    let health = registry.health(resource, id).as_str().to_owned();
    ResourceHealth { resource_id: id.to_owned(), health: Some(health), message: None }
}

/// The health of the devices of each of these pods.
#[must_use]
pub fn health_of_pods<'a>(
    pods: impl Iterator<Item = (PodUid, &'a PodDevices)>,
    registry: &Registry,
) -> BTreeMap<PodUid, PodHealth> {
    let of_pod = |devices: &PodDevices| {
        let ids = devices.all().flat_map(|(name, given)| given.devices.keys().map(move |id| (name, id)));
        let each = ids.map(|(name, id)| ((name.to_owned(), id.clone()), registry.health(name, id)));
        each.collect::<PodHealth>()
    };
    pods.map(|(uid, devices)| (uid, of_pod(devices))).collect()
}

/// The pods whose devices have another health than before.
#[must_use]
pub fn compute_affected_pods(
    before: &BTreeMap<PodUid, PodHealth>,
    after: &BTreeMap<PodUid, PodHealth>,
) -> Vec<PodUid> {
    let is_affected = |(uid, health): &(&PodUid, &PodHealth)| before.get(*uid) != Some(*health);
    after.iter().filter(is_affected).map(|(uid, _)| uid.clone()).collect()
}

#[cfg(test)]
mod tests;
