//! Subresources that change one part of an object: each copies its part from the request and keeps the rest.

use serde_json::Value;

use super::super::update::Change;
use crate::defaults;
use crate::object::{self, items, text};
use crate::resources;
use crate::status::ApiError;
use crate::validation::Reason;

/// The stored object with one field of the spec from the request, and the UID and resource version of the request, which are
/// checked later.
fn with_spec_field(change: &Change<'_>, field: &str) -> Value {
    let mut new = change.current.clone();
    if let Some(value) = change.sent.pointer(&format!("/spec/{field}")) {
        object::map_at(&mut new, "spec").insert(field.to_owned(), value.clone());
    }
    with_preconditions(new, &change.sent)
}

/// Copies UID and resource version from the request, as preconditions.
fn with_preconditions(mut new: Value, sent: &Value) -> Value {
    for field in ["uid", "resourceVersion"] {
        if let Some(value) = sent.pointer(&format!("/metadata/{field}")) {
            object::metadata(&mut new).insert(field.to_owned(), value.clone());
        }
    }
    new
}

/// Ephemeral containers can be added, but not changed or removed.
pub(super) fn ephemeral_containers(mut change: Change<'_>) -> Result<Value, ApiError> {
    // Those that a client sends without defaults are the same.
    defaults::apply("pods", &mut change.sent);
    let old = items(change.current, "/spec/ephemeralContainers");
    let new = items(&change.sent, "/spec/ephemeralContainers");
    let kept =
        |own: &Value| new.iter().any(|other| text(other, "/name") == text(own, "/name") && own == other);
    if !old.iter().all(kept) {
        let why = "Forbidden: existing ephemeral containers may not be changed or removed";
        return Err(invalid_pod(&change, "spec.ephemeralContainers", Reason::Forbidden, why.to_owned()));
    }
    Ok(with_spec_field(&change, "ephemeralContainers"))
}

/// Copies the resources and resize policies of existing containers.
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
    let class = text(change.current, "/status/qosClass");
    if defaults::qos_class(new.get("spec")).is_some_and(|new| new.as_str() != class) && !class.is_empty() {
        let message =
            format!("Invalid value: {class:?}: Pod QOS Class may not change as a result of resizing");
        return Err(invalid_pod(&change, "spec", Reason::Invalid, message));
    }
    Ok(with_preconditions(new, &change.sent))
}

/// Copies the finalizers of the spec; the namespace is removed once it is empty.
pub(super) fn namespace_finalizers(change: Change<'_>) -> Result<Value, ApiError> {
    Ok(with_spec_field(&change, "finalizers"))
}

/// Copies the conditions of the status.
pub(super) fn approval(change: Change<'_>) -> Result<Value, ApiError> {
    let mut new = change.current.clone();
    let conditions = items(&change.sent, "/status/conditions").to_vec();
    object::map_at(&mut new, "status").insert("conditions".to_owned(), Value::Array(conditions));
    Ok(with_preconditions(new, &change.sent))
}

fn invalid_pod(change: &Change<'_>, field: &str, reason: Reason, message: String) -> ApiError {
    match resources::stored("pods") {
        Some(pods) => ApiError::invalid_field(pods, object::name(change.current), field, reason, message),
        None => ApiError::bad_request(message),
    }
}
