//! Subresources that are one part of an object: each takes its part from what was sent and leaves the rest as it was.

use serde_json::Value;

use super::super::update::Change;
use crate::object::{self, items, text};
use crate::resources;
use crate::status::ApiError;
use crate::validation::Reason;

/// What is stored with the sent value at one place of the spec, and the sent identity for the checks of revision and UID.
fn with_spec_field(change: &Change<'_>, field: &str) -> Value {
    let mut new = change.current.clone();
    if let Some(value) = change.sent.pointer(&format!("/spec/{field}")) {
        object::map_at(&mut new, "spec").insert(field.to_owned(), value.clone());
    }
    identified(new, &change.sent)
}

/// Carries over what the client said it means.
fn identified(mut new: Value, sent: &Value) -> Value {
    for field in ["uid", "resourceVersion"] {
        if let Some(value) = sent.pointer(&format!("/metadata/{field}")) {
            object::metadata(&mut new).insert(field.to_owned(), value.clone());
        }
    }
    new
}

/// Ephemeral containers can be added, neither changed nor removed.
pub(super) fn ephemeral_containers(change: Change<'_>) -> Result<Value, ApiError> {
    let old = items(change.current, "/spec/ephemeralContainers");
    let new = items(&change.sent, "/spec/ephemeralContainers");
    let kept =
        |own: &Value| new.iter().any(|other| text(other, "/name") == text(own, "/name") && own == other);
    if !old.iter().all(kept) {
        let why = "existing ephemeral containers may not be changed or removed";
        return Err(invalid_pod(&change, "spec.ephemeralContainers", why));
    }
    Ok(with_spec_field(&change, "ephemeralContainers"))
}

/// Takes the resources and resize policies of containers that are there.
pub(super) fn resize(change: Change<'_>) -> Result<Value, ApiError> {
    let mut new = change.current.clone();
    for list in ["containers", "initContainers"] {
        let sent = items(&change.sent, &format!("/spec/{list}"));
        let containers = new.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.map(Vec::as_mut_slice).unwrap_or_default() {
            let same = sent.iter().find(|other| text(other, "/name") == text(container, "/name"));
            let Some(same) = same else { continue };
            for field in ["resources", "resizePolicy"] {
                object::keep_field(container, same, field);
            }
        }
    }
    Ok(identified(new, &change.sent))
}

/// Only the finalizers of the spec; the namespace goes when its contents have.
pub(super) fn namespace_finalizers(change: Change<'_>) -> Result<Value, ApiError> {
    Ok(with_spec_field(&change, "finalizers"))
}

/// Only the conditions of the status, of which a request that was decided keeps its decision.
pub(super) fn approval(change: Change<'_>) -> Result<Value, ApiError> {
    let mut new = change.current.clone();
    let conditions = items(&change.sent, "/status/conditions").to_vec();
    object::map_at(&mut new, "status").insert("conditions".to_owned(), Value::Array(conditions));
    Ok(identified(new, &change.sent))
}

fn invalid_pod(change: &Change<'_>, field: &str, why: &str) -> ApiError {
    match resources::stored("pods") {
        Some(pods) => {
            let said = format!("Forbidden: {why}");
            ApiError::invalid_field(pods, object::name(change.current), field, Reason::Forbidden, said)
        }
        None => ApiError::bad_request(why),
    }
}
