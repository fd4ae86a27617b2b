//! Whether containers that share the memory of their pod find any: containers with memory for themselves must not take it all.

use model::ContainerKind;
use model::containers::{init_containers, regular_containers};
use model::k8s::Pod;

use super::{Bytes, MemoryError, requests};

/// # Errors
/// A container would share nothing.
pub(super) fn check(pod: &Pod, of_pod: &Bytes) -> Result<(), MemoryError> {
    let mut taken = Bytes::new();
    let mut is_shared = false;
    for container in init_containers(pod).chain(regular_containers(pod)) {
        let own = requests::of_container(&container, true)?;
        match container.kind {
            ContainerKind::Init if own.is_empty() => {
                if let Some(resource) = exhausted(of_pod, &taken) {
                    return Err(MemoryError::NothingForInit(resource));
                }
            }
            // It ends before the containers that stay.
            ContainerKind::Init => {}
            ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
                is_shared |= own.is_empty();
                for (resource, bytes) in own {
                    let sum = taken.entry(resource).or_default();
                    *sum = sum.saturating_add(bytes);
                }
            }
        }
    }
    let exhausted = exhausted(of_pod, &taken).filter(|_| is_shared);
    exhausted.map_or(Ok(()), |resource| Err(MemoryError::NothingShared(resource)))
}

/// A resource of the pod of which nothing is left.
fn exhausted(of_pod: &Bytes, taken: &Bytes) -> Option<String> {
    let is_exhausted =
        |(resource, bytes): &(&String, &u64)| taken.get(*resource).is_some_and(|taken| taken >= *bytes);
    of_pod.iter().find(is_exhausted).map(|(resource, _)| resource.clone())
}
