//! Reads the status of a pod.

use std::collections::BTreeMap;

use crate::k8s::{ContainerStatus, PodStatus};

/// Succeeded or Failed: nothing follows.
#[must_use]
pub fn has_ended(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Its condition `Ready` is `True`.
#[must_use]
pub fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The statuses of init containers, then those of regular ones.
pub fn container_statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten()
}

/// The statuses of all containers by name, ephemeral ones included.
#[must_use]
pub fn statuses_by_name(status: &PodStatus) -> BTreeMap<&str, &ContainerStatus> {
    let ephemeral = status.ephemeral_container_statuses.iter().flatten();
    container_statuses(status).chain(ephemeral).map(|status| (status.name.as_str(), status)).collect()
}

/// The statuses of all containers, ephemeral ones included, to be changed.
pub fn all_container_statuses_mut(status: &mut PodStatus) -> impl Iterator<Item = &mut ContainerStatus> {
    let lists = [
        &mut status.init_container_statuses,
        &mut status.container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    lists.into_iter().flatten().flatten()
}
