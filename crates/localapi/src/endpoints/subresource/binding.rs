//! `pods/binding`: a scheduler assigns a pod to a node.

use ::http::{Response, StatusCode};
use serde_json::{Value, json};

use super::super::update::revise;
use super::super::{Call, response};
use crate::http::Body;
use crate::object::{self, items, text};
use crate::registry::Scope;
use crate::status::{self, ApiError};

pub(super) fn bind(call: &Call) -> Result<Response<Body>, ApiError> {
    let binding = call.object("v1", "Binding")?;
    let node = text(&binding, "/target/name");
    let kind = text(&binding, "/target/kind");
    if node.is_empty() || !["", "Node"].contains(&kind) {
        return Err(ApiError::bad_request("target must be a Node with a name"));
    }
    let pod = revise(call, Scope::Subresource, "", |current| assign(call, current, &binding, node))?;
    let done = status::success(call.resource(), call.name(), object::uid(&pod));
    Ok(response::json(StatusCode::CREATED, &done))
}

fn assign(call: &Call, current: &Value, binding: &Value, node: &str) -> Result<Value, ApiError> {
    let conflict = |why: &str| ApiError::conflict(call.resource(), call.name(), why);
    if object::is_terminating(current) {
        return Err(conflict(&format!("pod {} is being deleted, cannot be assigned to a host", call.name())));
    }
    let own = text(current, "/spec/nodeName");
    if !own.is_empty() {
        return Err(conflict(&format!("pod {} is already assigned to node \"{own}\"", call.name())));
    }
    if !items(current, "/spec/schedulingGates").is_empty() {
        return Err(conflict(&format!("pod {} has non-empty .spec.schedulingGates", call.name())));
    }
    let mut pod = current.clone();
    let uid = object::uid(binding);
    if !uid.is_empty() {
        object::metadata(&mut pod).insert("uid".to_owned(), json!(uid));
    }
    object::map_at(&mut pod, "spec").insert("nodeName".to_owned(), json!(node));
    let mut conditions = items(&pod, "/status/conditions").to_vec();
    conditions.retain(|condition| text(condition, "/type") != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": object::time(call.api.now()),
    }));
    object::map_at(&mut pod, "status").insert("conditions".to_owned(), Value::Array(conditions));
    Ok(pod)
}
