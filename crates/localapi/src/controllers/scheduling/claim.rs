//! The next step of a claim: who still uses it. Pure.

use serde_json::Value;

use super::{FINALIZER, PODS, has_ended};
use crate::object::{self, items, text};
use crate::store::{Key, Objects};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimStep {
    Nothing,
    Put(Value),
    /// It was made for a pod that needs it no more.
    Delete,
}

pub(super) fn step(claim: &Value, objects: &Objects) -> ClaimStep {
    let reserved = items(claim, "/status/reservedFor");
    let kept: Vec<Value> =
        reserved.iter().filter(|user| is_using(user, object::namespace(claim), objects)).cloned().collect();
    let mut next = claim.clone();
    if kept.len() < reserved.len() {
        object::set_list(object::map_at(&mut next, "status"), "reservedFor", kept.clone());
    }
    let is_protected = object::finalizers(claim).iter().any(|finalizer| finalizer == FINALIZER);
    let is_released = kept.len() < reserved.len() || object::is_terminating(claim);
    // What another client has allocated, it frees.
    if kept.is_empty() && is_protected && is_released {
        object::map_at(&mut next, "status").remove("allocation");
        let rest = object::finalizers(claim).iter().filter(|finalizer| *finalizer != FINALIZER);
        let rest = rest.cloned().collect();
        object::set_list(object::metadata(&mut next), "finalizers", rest);
    }
    if next != *claim {
        return ClaimStep::Put(next);
    }
    let is_needed = !kept.is_empty() || object::is_terminating(claim) || !is_of_ended_pod(claim, objects);
    if is_needed { ClaimStep::Nothing } else { ClaimStep::Delete }
}

/// Whether this user of a claim exists and has not ended. Users that are no pods are those of other controllers.
fn is_using(user: &Value, namespace: &str, objects: &Objects) -> bool {
    if text(user, "/resource") != PODS || !text(user, "/apiGroup").is_empty() {
        return true;
    }
    let pod = objects.get(&Key::new(PODS, namespace, text(user, "/name")));
    pod.is_some_and(|pod| object::uid(pod) == text(user, "/uid") && !has_ended(pod))
}

/// A claim whose pod is gone is left to the garbage collector.
fn is_of_ended_pod(claim: &Value, objects: &Objects) -> bool {
    let owner = items(claim, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner["controller"] == true && text(owner, "/kind") == "Pod");
    let Some(owner) = owner else { return false };
    let pod = objects.get(&Key::new(PODS, object::namespace(claim), text(owner, "/name")));
    pod.is_some_and(|pod| object::uid(pod) != text(owner, "/uid") || has_ended(pod))
}
