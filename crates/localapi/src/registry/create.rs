//! Creation of an object: metadata, admission, defaults, validation, and the write to the store.

use std::sync::Arc;

use serde_json::{Value, json};

use super::aggregated_roles;
use super::managed_fields;
use super::validate::refuse_invalid;
use crate::admission;
use crate::api::Api;
use crate::auth::User;
use crate::defaults;
use crate::encoding;
use crate::object;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::{Key, Objects, Write};
use crate::validation::Reason;

/// Stores a new object: sets its name and metadata, runs admission, applies defaults and validates it. `manager` owns its fields; without
/// one, the object has the entries that it has already.
pub(crate) fn create(
    api: &Api,
    user: &User,
    resource: &'static Resource,
    namespace: &str,
    mut object: Value,
    manager: &str,
    dry_run: bool,
) -> Result<Arc<Value>, ApiError> {
    prepare_metadata(api, resource, namespace, &mut object)?;
    let key = Key::new(resource.name, namespace, object::name(&object));
    let mut dry_run_result = None;
    let written = api.store.write(&key, |objects, current| {
        if let Some(current) = current {
            let mut error = ApiError::already_exists(resource, &key.name);
            if object::is_terminating(current) {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        check_namespace(resource, &key, objects)?;
        let entries = managed_fields::of_created(api, resource, &object, manager);
        let context = admission::Context { api, user, objects };
        admission::create(&context, resource, &mut object)?;
        defaults::apply(resource.name, &mut object);
        if admission::after_defaults(&context, resource, &mut object) {
            // The class of a pod depends on what it requests.
            object::map_at(&mut object, "status").remove("qosClass");
            defaults::apply(resource.name, &mut object);
        }
        encoding::complete(resource.name, &mut object);
        refuse_invalid(resource, resource.name, &object, None)?;
        admission::check_amounts(&context, resource, &object, None)?;
        if resource.generation {
            object::metadata(&mut object).insert("generation".to_owned(), json!(1));
        }
        if let Some(entries) = entries {
            managed_fields::insert(&mut object, entries);
        }
        if dry_run {
            dry_run_result = Some(Arc::new(object));
            return Ok(Write::Keep);
        }
        Ok(Write::Put(object))
    })?;
    if resource.name == "clusterroles" && !dry_run {
        aggregated_roles::update(api);
    }
    dry_run_result.or(written.object).ok_or_else(|| ApiError::internal("the object was not stored"))
}

/// Sets name, namespace, UID and creation time, and removes the fields that only the server may write.
fn prepare_metadata(
    api: &Api,
    resource: &Resource,
    namespace: &str,
    object: &mut Value,
) -> Result<(), ApiError> {
    let given = object::namespace(object);
    // That of an object of the cluster is dropped.
    if resource.namespaced && !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !object::resource_version(object).is_empty() {
        return Err(ApiError::without_reason("resourceVersion should not be set on objects to be created"));
    }
    let generate = object::text(object, "/metadata/generateName").to_owned();
    let mut name = object::name(object).to_owned();
    if name.is_empty() && !generate.is_empty() {
        // The real server truncates the base so that the name is a valid label.
        name = format!("{}{}", generate.chars().take(58).collect::<String>(), api.rng.suffix());
    }
    if name.is_empty() {
        let message = "Required value: name or generateName is required";
        return Err(ApiError::invalid_field(resource, "", "metadata.name", Reason::Required, message));
    }
    managed_fields::store(object, None);
    let metadata = object::metadata(object);
    for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        metadata.remove(field);
    }
    metadata.insert("name".to_owned(), Value::String(name));
    metadata.insert("uid".to_owned(), Value::String(api.rng.uid()));
    metadata.insert("creationTimestamp".to_owned(), Value::String(object::time(api.now())));
    if resource.namespaced {
        metadata.insert("namespace".to_owned(), Value::String(namespace.to_owned()));
    } else {
        metadata.remove("namespace");
    }
    Ok(())
}

fn check_namespace(resource: &Resource, key: &Key, objects: &Objects) -> Result<(), ApiError> {
    if !resource.namespaced {
        return Ok(());
    }
    let Some(namespace) = objects.get(&Key::new("namespaces", "", &key.namespace)) else {
        let namespaces = crate::resources::stored("namespaces").unwrap_or(resource);
        return Err(ApiError::not_found(namespaces, &key.namespace));
    };
    if object::is_terminating(namespace) {
        return Err(ApiError::namespace_terminating(resource, &key.name, &key.namespace));
    }
    Ok(())
}
