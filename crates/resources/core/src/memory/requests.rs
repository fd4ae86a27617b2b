//! What containers and pods request of NUMA nodes: memory and huge pages.

use model::ContainerKind;
use model::containers::{ContainerRef, init_containers, regular_containers, spec_of};
use model::k8s::Pod;
use model::qos::{limit, request};

use super::reserved::whole;
use super::{Bytes, MemoryError, is_memory};
use crate::requests::{Requests, container_requests, requests};

/// What a container gets for itself. In a pod with resources of its own a container gets something for itself only if its requests
/// of CPU and memory equal its limits.
pub(super) fn of_container(container: &ContainerRef<'_>, is_pod_level: bool) -> Result<Bytes, MemoryError> {
    if is_pod_level && !is_guaranteed(container) {
        return Ok(Bytes::new());
    }
    bytes(&container_requests(container))
}

fn bytes(requests: &Requests) -> Result<Bytes, MemoryError> {
    let requests = requests.iter().filter(|(resource, _)| is_memory(resource));
    requests
        .map(|(resource, amount)| Ok((resource.clone(), whole(*amount).ok_or(MemoryError::NotAnInteger)?)))
        .collect()
}

fn is_guaranteed(container: &ContainerRef<'_>) -> bool {
    let is_equal =
        |resources, name| request(resources, name).is_some_and(|own| limit(resources, name) == Some(own));
    container.resources().is_some_and(|own| is_equal(own, "cpu") && is_equal(own, "memory"))
}

/// What a pod gets: its own requests, or the largest amount that its containers need at the same time.
pub(super) fn of_pod(pod: &Pod, is_pod_level: bool) -> Result<Bytes, MemoryError> {
    if is_pod_level {
        let mut own = bytes(&requests(spec_of(pod).resources.as_ref()))?;
        own.retain(|_, bytes| *bytes > 0);
        return Ok(own);
    }
    let (mut sidecars, mut most_at_start) = (Bytes::new(), Bytes::new());
    for container in init_containers(pod) {
        for (resource, own) in of_container(&container, is_pod_level)? {
            let before = sidecars.entry(resource.clone()).or_default();
            if container.kind == ContainerKind::Sidecar {
                *before = before.saturating_add(own);
            } else {
                let most = most_at_start.entry(resource).or_default();
                *most = (*most).max(before.saturating_add(own));
            }
        }
    }
    let mut together = Bytes::new();
    for container in regular_containers(pod) {
        for (resource, own) in of_container(&container, is_pod_level)? {
            let sum = together.entry(resource).or_default();
            *sum = sum.saturating_add(own);
        }
    }
    let of = |bytes: &Bytes, resource: &str| bytes.get(resource).copied().unwrap_or(0);
    for (resource, bytes) in &mut together {
        *bytes = bytes.saturating_add(of(&sidecars, resource)).max(of(&most_at_start, resource));
    }
    Ok(together)
}
