//! DELETE of an object or a collection.

use ::http::{Response, StatusCode};
use serde_json::{Value, json};

use super::selection::Selection;
use super::{Call, response};
use crate::http::Body;
use crate::object;
use crate::registry::{self, deletion, deletion::DeleteOptions};
use crate::status::{self, ApiError};

/// Kinds whose deletion returns the last state of the object; others return a `Status`.
const RETURNS_OBJECT: &[&str] =
    &["persistentvolumeclaims", "persistentvolumes", "pods", "serviceaccounts", "services"];

pub(super) fn delete(call: &Call) -> Result<Response<Body>, ApiError> {
    let options = options(call)?;
    let (resource, key) = (call.resource(), call.key());
    let written = registry::delete(&call.api, resource, &key, &options)?;
    let object = written.object.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
    if written.removed && !RETURNS_OBJECT.contains(&resource.name) {
        let done = status::success(resource, &key.name, object::uid(&object));
        return Ok(response::json(StatusCode::OK, &done));
    }
    response::object(call, StatusCode::OK, &object)
}

pub(super) fn collection(call: &Call) -> Result<Response<Body>, ApiError> {
    let (options, selection, resource) = (options(call)?, Selection::of(call)?, call.resource());
    let listing = call.api.store.list(resource.name, call.info.namespace.as_deref());
    let mut items = Vec::new();
    for (key, _) in listing.objects.iter().filter(|(_, object)| selection.includes(object)) {
        match registry::delete(&call.api, resource, key, &options) {
            Ok(written) => items.extend(written.object.as_deref().cloned()),
            // Another client deleted it first.
            Err(error) if error.code == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    let list = json!({
        "kind": format!("{}List", resource.kind),
        "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": call.api.store.revision().to_string()},
        "items": items,
    });
    Ok(response::json(StatusCode::OK, &list))
}

/// A body of another kind was sent to the wrong place, and does not say what to delete. Any version: clients send that of the group, too.
fn refuse_other_kind(body: &Value) -> Result<(), ApiError> {
    let kind = object::text(body, "/kind");
    if ["", deletion::KIND].contains(&kind) {
        return Ok(());
    }
    let version = object::text(body, "/apiVersion");
    let scheme = "pkg/apis/meta/internalversion/scheme/register.go:27";
    let message = format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}");
    Err(ApiError::bad_request(message))
}

/// A negative period means one second.
fn grace(text: &str) -> Result<Option<i64>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    let seconds = text.parse::<i64>();
    let seconds = seconds
        .map_err(|_| ApiError::bad_request(format!("gracePeriodSeconds: {text:?} is not an integer")))?;
    Ok(Some(if seconds < 0 { 1 } else { seconds }))
}

fn options(call: &Call) -> Result<DeleteOptions, ApiError> {
    let body = if call.body.is_empty() { Value::Null } else { call.json()? };
    refuse_other_kind(&body)?;
    let mut options = DeleteOptions::parse(&body)?;
    if options.grace.is_none() {
        options.grace = grace(call.query.get("gracePeriodSeconds").unwrap_or_default())?;
    }
    if options.propagation.is_none() {
        let policy = call.query.all("propagationPolicy").next();
        options.propagation = policy.map(DeleteOptions::propagation_of).transpose()?;
    }
    options.dry_run |= call.is_dry_run()?;
    Ok(options)
}
