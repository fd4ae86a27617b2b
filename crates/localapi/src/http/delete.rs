//! DELETE of an object or a collection.

use std::sync::Arc;

use ::http::{Response, StatusCode};
use serde_json::{Value, json};

use super::selection::Selection;
use super::{Body, Call, answer};
use crate::deletion::{self, Decision, Options};
use crate::namespaces;
use crate::object;
use crate::resources::Resource;
use crate::status::{self, ApiError};
use crate::store::{Key, Write, Written};

/// Kinds whose deletion answers with the object as it was; others answer with a Status.
const ANSWERS_WITH_OBJECT: &[&str] =
    &["persistentvolumeclaims", "persistentvolumes", "pods", "serviceaccounts", "services"];

pub(super) fn delete(call: &Call) -> Result<Response<Body>, ApiError> {
    let options = options(call)?;
    let (resource, key) = (call.resource(), call.key());
    let written = delete_one(call, resource, &key, &options)?;
    let object = written.object.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
    if written.removed && !ANSWERS_WITH_OBJECT.contains(&resource.name) {
        let done = status::success(resource, &key.name, object::uid(&object));
        return Ok(answer::json(StatusCode::OK, &done));
    }
    answer::object(call, StatusCode::OK, &object)
}

pub(super) fn collection(call: &Call) -> Result<Response<Body>, ApiError> {
    let (options, selection, resource) = (options(call)?, Selection::of(call)?, call.resource());
    let listing = call.api.store.list(resource.name, call.target.namespace.as_deref());
    let mut items = Vec::new();
    for (key, _) in listing.objects.iter().filter(|(_, object)| selection.matches(object)) {
        match delete_one(call, resource, key, &options) {
            Ok(written) => items.extend(written.object.as_deref().cloned()),
            // Somebody else was faster.
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
    Ok(answer::json(StatusCode::OK, &list))
}

fn options(call: &Call) -> Result<Options, ApiError> {
    let body = if call.body.is_empty() { Value::Null } else { call.json()? };
    let mut options = Options::parse(&body).map_err(ApiError::bad_request)?;
    if options.grace.is_none() {
        options.grace = call.query.number("gracePeriodSeconds")?.and_then(|grace| i64::try_from(grace).ok());
    }
    options.dry_run |= call.query.dry_run()?;
    Ok(options)
}

/// Deletes one object as `options` say.
pub(crate) fn delete_one(
    call: &Call,
    resource: &'static Resource,
    key: &Key,
    options: &Options,
) -> Result<Written, ApiError> {
    let (api, now) = (&call.api, call.api.now());
    if resource.name == "namespaces" {
        return namespaces::delete(api, key, options);
    }
    let mut tried = None;
    let mut written = api.store.write(key, |_, current| {
        let current = current.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
        options.check(resource, current)?;
        let decision = deletion::decide(resource, current, options, now);
        if options.dry_run {
            tried = Some(Arc::clone(current));
            return Ok::<_, ApiError>(Write::Keep);
        }
        Ok(match decision {
            Decision::Remove(last) => Write::Remove(last),
            Decision::Mark(marked) => Write::Put(marked),
            Decision::Leave => Write::Keep,
        })
    })?;
    if written.removed {
        namespaces::after_removal(api, key);
    }
    written.object = tried.or(written.object);
    Ok(written)
}
