//! Reads the status of a pod.

use crate::k8s::{ContainerStatus, PodStatus};

/// Succeeded or Failed: nothing follows.
#[must_use]
pub fn has_ended(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// The statuses of init containers, then those of regular ones.
pub fn container_statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten()
}
