//! Which status of a pod is written to the API, and when the pod may be deleted from it (docs/behaviour/pod-status.md).
//!
//! Owns: the patch that keeps the fields of other clients, and whether a deleted pod is finished. Never: computing a
//! status, calling the API.

mod merge;
#[cfg(test)]
mod tests;

use model::PodUid;
use model::k8s::{PodStatus, ResourceRequirements};
use model::pod_status::has_ended;
use serde_json::{Value, json};

pub use merge::merge_status;

use sources_core::ApiPod;

use crate::strategic_patch::{ListMerge, MergedList, compute_strategic_patch};

/// The lists of a pod's status that the API merges.
const STATUS_LISTS: [MergedList; 3] = [
    MergedList { field: "conditions", key: "type", how: ListMerge::ByKey },
    // Replaced, because the first one is the primary one.
    MergedList { field: "podIPs", key: "ip", how: ListMerge::Replaced },
    MergedList { field: "hostIPs", key: "ip", how: ListMerge::Replaced },
];

/// Progress of the pod beyond its status.
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
    /// The API has no such pod, or another one with its name: the status is obsolete.
    Forget,
    /// A strategic merge patch of the status subresource. It contains the UID, so that it cannot change another pod.
    Patch(Value),
    /// The pod is finished: delete it with grace period 0 and its UID as precondition.
    Delete { uid: String },
    /// The API has this status.
    Nothing,
}

/// Compares a status with the pod in the API. `uid` is the expected UID of the API's object: that of the pod, or for a
/// static pod that of its mirror. After a successful patch, the next call decides whether the pod may be deleted.
#[must_use]
pub fn compute_status_sync(
    uid: &PodUid,
    in_api: Option<&ApiPod>,
    status: &PodStatus,
    facts: SyncFacts,
) -> StatusSync {
    let Some(in_api) = in_api.filter(|in_api| in_api.identity.uid == *uid) else {
        return StatusSync::Forget;
    };
    let in_api_status = in_api.status.clone().unwrap_or_default();
    let merged = merge_status(&in_api_status, status, facts.may_run);
    let changes = compute_strategic_patch(&json!(*in_api_status), &json!(merged), &STATUS_LISTS);
    if let Some(changes) = with_empty_resources(changes, &in_api_status, &merged) {
        return StatusSync::Patch(json!({"metadata": {"uid": uid.as_str()}, "status": changes}));
    }
    if may_delete(in_api, &in_api_status, facts) {
        return StatusSync::Delete { uid: uid.as_str().to_owned() };
    }
    StatusSync::Nothing
}

/// The API distinguishes `resources: {}` from absent resources, so an empty value is a change.
fn with_empty_resources(
    changes: Option<Value>,
    in_api_status: &PodStatus,
    merged: &PodStatus,
) -> Option<Value> {
    let is_new =
        in_api_status.resources.is_none() && merged.resources == Some(ResourceRequirements::default());
    if !is_new {
        return changes;
    }
    let mut changes = changes.unwrap_or_else(|| json!({}));
    changes["resources"] = json!({});
    Some(changes)
}

/// A pod is deleted from the API when it has a deletion timestamp, nothing of it is left on the node, and the API has its
/// final status. Mirror pods are not finished here, because the static pod still runs.
fn may_delete(in_api: &ApiPod, in_api_status: &PodStatus, facts: SyncFacts) -> bool {
    in_api.pod.metadata.deletion_timestamp.is_some()
        && !in_api.is_mirror
        && facts.is_released
        && !facts.may_run
        && has_ended(in_api_status)
}
