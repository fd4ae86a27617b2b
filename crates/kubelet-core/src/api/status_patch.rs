//! What the API is told about a pod, and when the pod may leave it (docs/behaviour/pod-status.md).
//!
//! Owns: the patch that keeps what others own, and whether a deleted pod is finished. Never: computing a status, calling
//! the API.

mod merge;
#[cfg(test)]
mod tests;

use model::PodUid;
use model::k8s::{Pod, PodStatus, ResourceRequirements};
use serde_json::{Value, json};

pub use merge::merge_status;

use crate::api::strategic_patch::{ListMerge, MergedList, compute_strategic_patch};
use crate::pod_kind::is_mirror_pod;

/// The lists of a pod's status that the API merges.
const STATUS_LISTS: [MergedList; 3] = [
    MergedList { field: "conditions", key: "type", how: ListMerge::ByKey },
    // Replaced, because the first one is the primary one.
    MergedList { field: "podIPs", key: "ip", how: ListMerge::Replaced },
    MergedList { field: "hostIPs", key: "ip", how: ListMerge::Replaced },
];

/// How far the pod is, beyond what its status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncFacts {
    /// A container may still run: its worker has not confirmed that all ended.
    pub may_run: bool,
    /// The worker is done, and containers, volumes and cgroups are gone.
    pub is_released: bool,
}

/// What to do about one pod in the API.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusSync {
    /// The API has no such pod, or another one under its name: the status is nobody's any more.
    Forget,
    /// A strategic merge patch of the status part. It names the UID, so that it cannot hit another pod.
    Patch(Value),
    /// The pod is finished: delete it with grace 0, provided it still has this UID.
    Delete { uid: String },
    /// The API knows all of it.
    Nothing,
}

/// Compares a status with the pod as the API has it now. `uid` is the one that the API's object is to have: that of the
/// pod, or for a static pod that of its mirror. Once a patch got through, the next call says whether the pod may go.
#[must_use]
pub fn compute_status_sync(
    uid: &PodUid,
    in_api: Option<&Pod>,
    status: &PodStatus,
    facts: SyncFacts,
) -> StatusSync {
    let Some(pod) = in_api.filter(|pod| pod.metadata.uid.as_deref() == Some(uid.as_str())) else {
        return StatusSync::Forget;
    };
    let said = pod.status.clone().unwrap_or_default();
    let merged = merge_status(&said, status, facts.may_run);
    let changes = compute_strategic_patch(&json!(said), &json!(merged), &STATUS_LISTS);
    if let Some(changes) = with_empty_resources(changes, &said, &merged) {
        return StatusSync::Patch(json!({"metadata": {"uid": uid.as_str()}, "status": changes}));
    }
    if may_delete(pod, &said, facts) {
        return StatusSync::Delete { uid: uid.as_str().to_owned() };
    }
    StatusSync::Nothing
}

/// The API tells pods without resources from pods that nobody has said anything about: `resources: {}` counts.
fn with_empty_resources(changes: Option<Value>, said: &PodStatus, merged: &PodStatus) -> Option<Value> {
    let is_new = said.resources.is_none() && merged.resources == Some(ResourceRequirements::default());
    if !is_new {
        return changes;
    }
    let mut changes = changes.unwrap_or_else(|| json!({}));
    changes["resources"] = json!({});
    Some(changes)
}

/// A pod leaves the API when somebody deleted it, all of it is gone here, and the API says how it ended. Mirrors are not
/// ours to finish: the static pod lives on.
fn may_delete(pod: &Pod, said: &PodStatus, facts: SyncFacts) -> bool {
    pod.metadata.deletion_timestamp.is_some()
        && !is_mirror_pod(pod)
        && facts.is_released
        && !facts.may_run
        && merge::is_terminal(said)
}
