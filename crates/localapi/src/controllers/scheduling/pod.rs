//! The next step of a pod: its claims are made, allocated and reserved for it, one after the other, and then it is bound. Pure.

use serde_json::{Value, json};

use super::allocation::allocate;
use super::{CLAIMS, FINALIZER, NODES, POD_CLAIM, TEMPLATES, has_ended, is_pending};
use crate::object::{self, items, text};
use crate::store::{Key, Objects};
use crate::taints;

/// The pods that may use one claim at a time.
const MAX_USERS: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodStep {
    Nothing,
    /// Make a claim of a template. `name` is that in the pod.
    Create {
        name: String,
        claim: Value,
    },
    /// Write the names of the claims that were made for it to its status.
    Assign {
        statuses: Vec<Value>,
    },
    /// Write these claims, each with what it must be before.
    Write(Vec<(Key, Value, Value)>),
    Bind,
    Wait(String),
}

pub(super) fn has_claims(pod: &Value) -> bool {
    !items(pod, "/spec/resourceClaims").is_empty()
}

/// From the pod alone. A pod that another client bound may need its claims, still.
pub(super) fn may_have_step(pod: &Value) -> bool {
    let is_bound = !text(pod, "/spec/nodeName").is_empty();
    is_pending(pod) || (is_bound && has_claims(pod) && !has_ended(pod))
}

/// The claims of a pod in the order of its spec; `None` for one that has no name, yet.
pub(super) fn claims(pod: &Value) -> Vec<Option<Key>> {
    let names =
        items(pod, "/spec/resourceClaims").iter().map(|claim| match text(claim, "/resourceClaimName") {
            "" => generated_name(pod, text(claim, "/name")),
            name => Some(name),
        });
    names.map(|name| Some(Key::new(CLAIMS, object::namespace(pod), name?))).collect()
}

/// The name of the claim that was made of a template.
fn generated_name<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let statuses = items(pod, "/status/resourceClaimStatuses");
    let found = statuses.iter().find(|status| text(status, "/name") == name)?;
    Some(text(found, "/resourceClaimName")).filter(|name| !name.is_empty())
}

pub(super) fn step(pod: &Value, node: &str, objects: &Objects) -> PodStep {
    if !may_have_step(pod) || object::is_terminating(pod) {
        return PodStep::Nothing;
    }
    let bound_to = text(pod, "/spec/nodeName");
    if !bound_to.is_empty() && bound_to != node {
        return PodStep::Nothing;
    }
    if let Some(step) = missing_claim(pod, objects) {
        return step;
    }
    if is_pending(pod)
        && let Some(why) = refused(pod, node, objects)
    {
        return PodStep::Wait(unavailable(&why));
    }
    let mut found = Vec::new();
    for key in claims(pod).into_iter().flatten() {
        match usable(pod, &key, objects) {
            Ok(claim) => found.push((key, claim)),
            Err(why) => return PodStep::Wait(unavailable(&why)),
        }
    }
    // One claim may have several names in a pod.
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found.dedup_by(|(one, _), (other, _)| one == other);
    let written = match reserved(pod, &found, node, objects) {
        Ok(written) => written,
        Err(why) => return PodStep::Wait(unavailable(&why)),
    };
    if !written.is_empty() {
        return PodStep::Write(written);
    }
    if is_pending(pod) { PodStep::Bind } else { PodStep::Nothing }
}

/// Why the node takes no new pod like this one. A Node that does not exist, yet, takes every pod.
fn refused(pod: &Value, node: &str, objects: &Objects) -> Option<String> {
    taints::refusal(objects.get(&Key::new(NODES, "", node))?, pod)
}

/// As a scheduler says it of the one node there is.
fn unavailable(why: &str) -> String {
    format!("0/1 nodes are available: {why}")
}

/// The step for the first claim of a template that does not exist, yet.
fn missing_claim(pod: &Value, objects: &Objects) -> Option<PodStep> {
    let mut statuses = items(pod, "/status/resourceClaimStatuses").to_vec();
    let before = statuses.len();
    for claim in items(pod, "/spec/resourceClaims") {
        let (name, template) = (text(claim, "/name"), text(claim, "/resourceClaimTemplateName"));
        let is_named = !text(claim, "/resourceClaimName").is_empty();
        if is_named || statuses.iter().any(|status| text(status, "/name") == name) {
            continue;
        }
        if let Some(made) = made_for(pod, name, objects) {
            statuses.push(json!({"name": name, "resourceClaimName": made.name}));
            continue;
        }
        let key = Key::new(TEMPLATES, object::namespace(pod), template);
        let Some(template) = objects.get(&key) else {
            let why = format!("resourceclaimtemplate.resource.k8s.io \"{template}\" not found");
            return Some(PodStep::Wait(unavailable(&why)));
        };
        let claim = of_template(pod, name, template);
        return Some(PodStep::Create { name: name.to_owned(), claim });
    }
    (statuses.len() > before).then_some(PodStep::Assign { statuses })
}

/// The claim that was made for the pod under this name.
fn made_for<'a>(pod: &Value, name: &str, objects: &'a Objects) -> Option<&'a Key> {
    objects.owned_by(object::uid(pod)).find(|key| {
        let annotation = |claim: &Value| claim["metadata"]["annotations"][POD_CLAIM] == name;
        key.resource == CLAIMS && objects.get(key).is_some_and(|claim| annotation(claim))
    })
}

fn of_template(pod: &Value, name: &str, template: &Value) -> Value {
    let given = |field: &str| template.pointer(&format!("/spec/metadata/{field}")).cloned();
    let mut annotations = given("annotations").filter(Value::is_object).unwrap_or_else(|| json!({}));
    annotations[POD_CLAIM] = json!(name);
    let owner = object::pod_as_owner(pod);
    let mut metadata = json!({
        "generateName": format!("{}-{name}-", object::name(pod)),
        "annotations": annotations,
        "ownerReferences": [owner],
    });
    if let Some(labels) = given("labels") {
        metadata["labels"] = labels;
    }
    let spec = template.pointer("/spec/spec").cloned().unwrap_or_else(|| json!({}));
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
}

/// The claim, if the pod may use it.
fn usable<'a>(pod: &Value, key: &Key, objects: &'a Objects) -> Result<&'a Value, String> {
    let name = &key.name;
    let claim = objects.get(key).ok_or_else(|| format!("resourceclaim \"{name}\" not found"))?;
    if object::is_terminating(claim) {
        return Err(format!("resourceclaim \"{name}\" is being deleted"));
    }
    let owners = items(claim, "/metadata/ownerReferences");
    let is_named =
        items(pod, "/spec/resourceClaims").iter().any(|claim| text(claim, "/resourceClaimName") == name);
    if !is_named && !owners.iter().any(|owner| text(owner, "/uid") == object::uid(pod)) {
        let (namespace, pod) = (&key.namespace, object::name(pod));
        return Err(format!(
            "ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod} (Pod is not owner)"
        ));
    }
    Ok(claim)
}

/// The claims that have to be written before the pod can start: those that are not allocated, and those that are not reserved for it.
fn reserved(
    pod: &Value,
    claims: &[(Key, &Value)],
    node: &str,
    objects: &Objects,
) -> Result<Vec<(Key, Value, Value)>, String> {
    let is_allocated =
        |claim: &Value| claim.pointer("/status/allocation").is_some_and(|made| !made.is_null());
    let new: Vec<&Value> =
        claims.iter().map(|(_, claim)| *claim).filter(|claim| !is_allocated(claim)).collect();
    let mut results = allocate(&new, node, objects)?.into_iter();
    let mut written = Vec::new();
    for (key, claim) in claims {
        let mut next = (*claim).clone();
        if !is_allocated(claim) {
            let Some(result) = results.next() else { continue };
            object::map_at(&mut next, "status").insert("allocation".to_owned(), result);
            let mut finalizers = object::finalizers(claim).to_vec();
            if !finalizers.iter().any(|held| held == FINALIZER) {
                finalizers.push(json!(FINALIZER));
            }
            object::set_list(object::metadata(&mut next), "finalizers", finalizers);
        }
        let mut users = items(claim, "/status/reservedFor").to_vec();
        if !users.iter().any(|user| text(user, "/uid") == object::uid(pod)) {
            if users.len() >= MAX_USERS {
                return Err(format!("resourceclaim \"{}\" is used by {MAX_USERS} pods already", key.name));
            }
            let (name, uid) = (object::name(pod), object::uid(pod));
            users.push(json!({"resource": "pods", "name": name, "uid": uid}));
            object::map_at(&mut next, "status").insert("reservedFor".to_owned(), Value::Array(users));
        }
        if next != **claim {
            written.push((key.clone(), (*claim).clone(), next));
        }
    }
    Ok(written)
}
