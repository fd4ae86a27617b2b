//! Binds pods to the node of this machine, once it takes new pods and the devices of their ResourceClaims are allocated: what a scheduler and
//! the controller of resource claims do in a cluster. Pods without claims are bound when they are created (`admission::pods`) and never come
//! here, unless the node is cordoned or tainted then.
//!
//! A pod that cannot be bound has the condition `PodScheduled=False` with the reason, and is examined again when a claim, a device, a class,
//! the node or another pod has changed.

mod allocation;
mod claim;
mod pod;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::{Controller, change_pod, record, set_condition};
use crate::api::Api;
use crate::auth::User;
use crate::object::{self, items, text};
use crate::registry::{self, deletion::DeleteOptions, namespaces::after_removal};
use crate::resources;
use crate::store::{Change, Event, Key, NotStored, Objects, Write};
use claim::ClaimStep;
use pod::PodStep;

const CLAIMS: &str = "resourceclaims";
const CLASSES: &str = "deviceclasses";
const NODES: &str = "nodes";
const PODS: &str = "pods";
const SLICES: &str = "resourceslices";
const TEMPLATES: &str = "resourceclaimtemplates";

/// Keeps a claim as long as it is allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// On a claim that was made for a pod: the name that the pod has for it.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

pub(super) struct Scheduling;

/// It will not run any more: its reservations end. The kubelet has unprepared the claims of a pod before it reports such a phase.
fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
        || (object::is_terminating(pod) && text(pod, "/spec/nodeName").is_empty())
}

/// A pod that waits for something.
fn is_pending(pod: &Value) -> bool {
    !has_ended(pod)
        && text(pod, "/spec/nodeName").is_empty()
        && items(pod, "/spec/schedulingGates").is_empty()
}

/// The pods that may have a step because of a claim, a device, a class or the node.
fn waiting_pods(objects: &Objects) -> impl Iterator<Item = Key> {
    objects.of(PODS, None).filter(|(_, pod)| pod::may_have_step(pod)).map(|(key, _)| key.clone())
}

impl Controller for Scheduling {
    const NAME: &'static str = "scheduling";

    fn concerns(key: &Key, object: &Value) -> bool {
        match key.resource {
            PODS => pod::may_have_step(object),
            CLAIMS => true,
            _ => false,
        }
    }

    fn affected(event: &Event, objects: &Objects) -> Vec<Key> {
        let fields: &[&str] = match event.key.resource {
            PODS => &[
                "/spec/nodeName",
                "/spec/schedulingGates",
                "/status/phase",
                "/status/resourceClaimStatuses",
                "/metadata/deletionTimestamp",
            ],
            CLAIMS => &["/spec", "/status", "/metadata/deletionTimestamp"],
            NODES => &["/metadata/labels", "/spec/unschedulable", "/spec/taints"],
            "namespaces" => &["/metadata/labels"],
            CLASSES | SLICES | TEMPLATES => &["/spec"],
            _ => return Vec::new(),
        };
        let same =
            |previous: &Value| fields.iter().all(|at| previous.pointer(at) == event.object.pointer(at));
        if event.change == Change::Modified && event.previous.as_deref().is_some_and(same) {
            return Vec::new();
        }
        let mut keys = Vec::new();
        match event.key.resource {
            PODS if pod::may_have_step(&event.object) || pod::has_claims(&event.object) => {
                keys.push(event.key.clone());
                keys.extend(pod::claims(&event.object).into_iter().flatten());
                let owned = objects.owned_by(object::uid(&event.object));
                keys.extend(owned.filter(|owned| owned.resource == CLAIMS).cloned());
            }
            PODS => {}
            CLAIMS => {
                keys.push(event.key.clone());
                keys.extend(waiting_pods(objects));
            }
            _ => keys.extend(waiting_pods(objects)),
        }
        keys
    }

    fn execute(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
        match key.resource {
            CLAIMS => advance_claim(api, key).map(|()| Vec::new()),
            _ => advance_pod(api, key),
        }
    }
}

/// Ends reservations of pods that are gone, and the allocation after the last of them.
fn advance_claim(api: &Api, key: &Key) -> Result<(), NotStored> {
    let mut is_unused = false;
    let written = api.store.write(key, |objects, current| {
        let Some(current) = current else { return Ok::<_, NotStored>(Write::Keep) };
        Ok(match claim::step(current, objects) {
            ClaimStep::Nothing => Write::Keep,
            ClaimStep::Put(next) => registry::put_or_remove(next),
            ClaimStep::Delete => {
                is_unused = true;
                Write::Keep
            }
        })
    })?;
    if written.removed {
        after_removal(api, key);
    }
    let resource = resources::stored(CLAIMS).filter(|_| is_unused);
    if let Some(resource) = resource
        && let Err(error) = registry::delete(api, resource, key, &DeleteOptions::default())
    {
        tracing::warn!(err = %error, claim = key.name, "failed to delete a claim that its pod needs no more");
    }
    Ok(())
}

fn advance_pod(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
    let Some(node) = api.behaviour.bind_to.as_deref() else { return Ok(Vec::new()) };
    let Some(pod) = api.store.get(key) else { return Ok(Vec::new()) };
    let step = api.store.read(|objects| pod::step(&pod, node, objects));
    match step {
        PodStep::Nothing => return Ok(Vec::new()),
        PodStep::Wait(message) => return wait(api, key, &pod, &message).map(|()| Vec::new()),
        PodStep::Bind => return bind(api, key, node).map(|()| Vec::new()),
        PodStep::Create { name, claim } => {
            if !create_claim(api, key, &pod, &name, claim)? {
                return Ok(Vec::new());
            }
        }
        PodStep::Assign { statuses } => assign_names(api, key, &statuses)?,
        PodStep::Write(claims) => {
            for (claim, before, next) in claims {
                api.store.write(&claim, |_, current| {
                    // Another client may have been faster: the next step begins with what is there.
                    let is_same = current.is_some_and(|current| **current == before);
                    Ok::<_, NotStored>(if is_same { Write::Put(next) } else { Write::Keep })
                })?;
            }
        }
    }
    Ok(vec![key.clone()])
}

/// Makes the claim of a template for a pod; the pod gets its name in the next step.
fn create_claim(api: &Api, key: &Key, pod: &Value, name: &str, claim: Value) -> Result<bool, NotStored> {
    let Some(resource) = resources::stored(CLAIMS) else { return Ok(false) };
    let created = registry::create(api, &User::own(), resource, &key.namespace, claim, "", false);
    let Err(error) = created else { return Ok(true) };
    let message = format!("PodResourceClaim {name}: failed to create the claim: {error}");
    record(api, pod, "Warning", "FailedResourceClaimCreation", &message);
    wait(api, key, pod, &message)?;
    Ok(false)
}

fn assign_names(api: &Api, key: &Key, statuses: &[Value]) -> Result<(), NotStored> {
    change_pod(api, key, |pod| {
        object::map_at(pod, "status").insert("resourceClaimStatuses".to_owned(), json!(statuses));
    })
}

fn bind(api: &Api, key: &Key, node: &str) -> Result<(), NotStored> {
    let now = object::time(api.now());
    change_pod(api, key, |pod| {
        if is_pending(pod) {
            object::map_at(pod, "spec").insert("nodeName".to_owned(), json!(node));
            set_scheduled(pod, &json!({"status": "True"}), &now);
        }
    })
}

fn wait(api: &Api, key: &Key, pod: &Value, message: &str) -> Result<(), NotStored> {
    if !is_pending(pod) {
        // Its node waits, and says so.
        return Ok(());
    }
    record(api, pod, "Warning", "FailedScheduling", message);
    let now = object::time(api.now());
    let condition = json!({"status": "False", "reason": "Unschedulable", "message": message});
    change_pod(api, key, |pod| set_scheduled(pod, &condition, &now))
}

/// Sets the condition `PodScheduled`.
fn set_scheduled(pod: &mut Value, condition: &Value, now: &str) {
    set_condition(pod, "PodScheduled", condition, now);
}
