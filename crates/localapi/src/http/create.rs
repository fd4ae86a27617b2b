//! POST of a new object.

use std::sync::Arc;

use ::http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Body, Call, answer};
use crate::admission;
use crate::api::Api;
use crate::auth::User;
use crate::defaults;
use crate::encoding;
use crate::events;
use crate::initial;
use crate::object;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::{Key, Objects, Write};
use crate::validation::{self, Reason};

pub(super) fn create(call: &Call) -> Result<Response<Body>, ApiError> {
    let resource = call.resource();
    let object = call.object(&resource.api_version(), resource.kind)?;
    let object = if resource.group == events::GROUP { events::from_events_group(object) } else { object };
    create_as(call, object)
}

/// Creates `object`, which is as it is stored.
pub(super) fn create_as(call: &Call, object: Value) -> Result<Response<Body>, ApiError> {
    let resource = call.resource();
    validation::decode(resource.name, &object).map_err(ApiError::bad_request)?;
    let dry_run = call.query.dry_run()?;
    let created = store_new(&call.api, &call.user, resource, call.namespace(), object, dry_run)?;
    if resource.name == "namespaces" && !dry_run {
        initial::furnish(&call.api, object::name(&created))?;
    }
    answer::object(call, StatusCode::CREATED, &created)
}

/// Stores `object` as new, as everybody's create does it: named, admitted, defaulted, validated.
pub(crate) fn store_new(
    api: &Api,
    user: &User,
    resource: &'static Resource,
    namespace: &str,
    mut object: Value,
    dry_run: bool,
) -> Result<Arc<Value>, ApiError> {
    name(api, resource, namespace, &mut object)?;
    let key = Key::new(resource.name, namespace, object::name(&object));
    let mut tried = None;
    let written = api.store.write(&key, |objects, current| {
        if current.is_some() {
            return Err(ApiError::already_exists(resource, &key.name));
        }
        in_living_namespace(resource, &key, objects)?;
        admission::create(&admission::Context { api, user, objects }, resource, &mut object)?;
        defaults::apply(resource.name, &mut object);
        encoding::complete(resource.name, &mut object);
        refuse_invalid(resource, resource.name, &object, None)?;
        if resource.generation {
            object::metadata(&mut object).insert("generation".to_owned(), json!(1));
        }
        if dry_run {
            tried = Some(Arc::new(object));
            return Ok(Write::Keep);
        }
        Ok(Write::Put(object))
    })?;
    tried.or(written.object).ok_or_else(|| ApiError::internal("the new object was not stored"))
}

/// Gives the object its name, place and identity, and takes away what only we may write.
fn name(api: &Api, resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    let said = object::namespace(object);
    if !said.is_empty() && said != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !object::resource_version(object).is_empty() {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let generate = object::text(object, "/metadata/generateName").to_owned();
    let mut name = object::name(object).to_owned();
    if name.is_empty() && !generate.is_empty() {
        // The real server cuts the base so that the whole stays a label.
        name = format!("{}{}", generate.chars().take(58).collect::<String>(), api.rng.suffix());
    }
    if name.is_empty() {
        let said = "Required value: name or generateName is required";
        return Err(ApiError::invalid_field(resource, "", "metadata.name", Reason::Required, said));
    }
    let metadata = object::metadata(object);
    for ours in ["managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
    {
        metadata.remove(ours);
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

fn in_living_namespace(resource: &Resource, key: &Key, objects: &Objects) -> Result<(), ApiError> {
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

/// All faults of an object at once. `rules` is the plural, or plural and subresource, whose rules hold.
pub(super) fn refuse_invalid(
    resource: &Resource,
    rules: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let faults = validation::check(rules, object, old);
    if faults.is_empty() { Ok(()) } else { Err(ApiError::invalid(resource, object::name(object), &faults)) }
}
