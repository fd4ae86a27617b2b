//! Update of an object: which fields a writer of the main resource, of its status or of another subresource may change,
//! which fields only the server writes, and when an update removes the object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::aggregated_roles;
use super::deletion;
use super::managed_fields;
use super::namespaces;
use super::validate::refuse_invalid;
use crate::admission;
use crate::api::Api;
use crate::auth::User;
use crate::defaults;
use crate::encoding;
use crate::http::RequestInfo;
use crate::object;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::Write;
use crate::validation::{Reason, pod_status};

/// Which part of an object a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All but the status.
    Main,
    /// The status, and metadata except owner references.
    Status,
    /// Only what the subresource changes; admission and defaults do not apply.
    Subresource,
}

/// Fields of the metadata that only the server writes.
const SERVER_FIELDS: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
];

/// Updates the object that `info` names to what `change` returns; changes outside of `scope` are reverted. `manager` owns what changed;
/// without one, the entries of the object stay as they are.
pub(crate) fn update(
    api: &Api,
    user: &User,
    info: &RequestInfo,
    scope: Scope,
    manager: &str,
    dry_run: bool,
    change: impl FnOnce(&Value) -> Result<Value, ApiError>,
) -> Result<Arc<Value>, ApiError> {
    let (resource, key) = (info.resource, info.key());
    let rules = match &info.subresource {
        Some(subresource) => format!("{}/{subresource}", resource.name),
        None => resource.name.to_owned(),
    };
    let mut dry_run_result = None;
    let written = api.store.write(&key, |objects, current| {
        let current = current.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
        let mut new = change(current)?;
        refuse_stale(resource, &new, current)?;
        restore(resource, scope, &mut new, current);
        let context = admission::Context { api, user, objects };
        match scope {
            Scope::Main => {
                admission::update(&context, resource, &mut new, current)?;
                defaults::apply(resource.name, &mut new);
            }
            Scope::Status => {
                admission::update_status(&context, resource, &mut new, current)?;
                if resource.name == "pods" {
                    pod_status::keep_recorded(&mut new, current);
                }
            }
            Scope::Subresource => {}
        }
        encoding::complete(resource.name, &mut new);
        refuse_invalid(resource, &rules, &new, Some(current))?;
        refuse_new_finalizers(resource, &new, current)?;
        if scope != Scope::Status {
            admission::check_amounts(&context, resource, &new, Some(current))?;
        }
        // A binding does not count as a change of the spec.
        if info.subresource.as_deref() != Some("binding") {
            count_generation(resource, &mut new, current);
        }
        let subresource = info.subresource.as_deref().unwrap_or_default();
        managed_fields::update(api, resource, subresource, &mut new, current, manager);
        if dry_run {
            dry_run_result = Some(Arc::new(new));
            return Ok::<_, ApiError>(Write::Keep);
        }
        let is_same = managed_fields::is_unchanged(&new, current) && !deletion::is_finished(&new);
        Ok(if is_same { Write::Keep } else { super::put_or_remove(new) })
    })?;
    if written.removed {
        namespaces::after_removal(api, &key);
    } else if resource.name == "namespaces" {
        namespaces::finish(api, &key.name);
    }
    if resource.name == "clusterroles" && !dry_run {
        aggregated_roles::update(api);
    }
    dry_run_result.or(written.object).ok_or_else(|| ApiError::not_found(resource, &key.name))
}

/// Refuses an update whose revision or UID is not that of the stored object.
fn refuse_stale(resource: &Resource, new: &Value, current: &Value) -> Result<(), ApiError> {
    let name = object::name(current);
    let (given, own) = (object::uid(new), object::uid(current));
    if !given.is_empty() && given != own {
        let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {own}");
        return Err(ApiError::conflict(resource, name, &why));
    }
    let given = object::resource_version(new);
    if !given.is_empty() && given.parse::<u64>().is_err() {
        return Err(ApiError::without_reason(format!(
            "strconv.ParseUint: parsing {given:?}: invalid syntax"
        )));
    }
    if !given.is_empty() && given != "0" && given != object::resource_version(current) {
        return Err(ApiError::stale(resource, name));
    }
    Ok(())
}

/// Restores the fields that this scope may not change.
fn restore(resource: &Resource, scope: Scope, new: &mut Value, current: &Value) {
    match scope {
        Scope::Main if resource.has_status() => object::keep_field(new, current, "status"),
        Scope::Main | Scope::Subresource => {}
        Scope::Status => {
            let mut whole = current.clone();
            object::keep_field(&mut whole, new, "status");
            object::keep_field(&mut whole, new, "metadata");
            // A status update does not change the owners.
            let owners = current.pointer("/metadata/ownerReferences").cloned();
            put_back(object::metadata(&mut whole), "ownerReferences", owners);
            *new = whole;
        }
    }
    managed_fields::store(new, Some(current));
    let of_current = |field: &str| current["metadata"].get(field).cloned();
    let metadata = object::metadata(new);
    for field in SERVER_FIELDS {
        put_back(metadata, field, of_current(field));
    }
    for field in ["name", "namespace", "generateName", "resourceVersion"] {
        put_back(metadata, field, of_current(field));
    }
}

fn put_back(metadata: &mut serde_json::Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(metadata.insert(field.to_owned(), value)),
        None => drop(metadata.remove(field)),
    }
}

/// An object that is being deleted may lose finalizers, but not gain any.
fn refuse_new_finalizers(resource: &Resource, new: &Value, current: &Value) -> Result<(), ApiError> {
    let gained = object::finalizers(new).iter().any(|one| !object::finalizers(current).contains(one));
    if object::is_terminating(current) && gained {
        let message = "Forbidden: no new finalizers can be added if the object is being deleted";
        let (name, field) = (object::name(current), "metadata.finalizers");
        return Err(ApiError::invalid_field(resource, name, field, Reason::Forbidden, message));
    }
    Ok(())
}

fn count_generation(resource: &Resource, new: &mut Value, current: &Value) {
    if resource.generation && new.get("spec") != current.get("spec") {
        let next = current.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or(0) + 1;
        object::metadata(new).insert("generation".to_owned(), json!(next));
    }
}
