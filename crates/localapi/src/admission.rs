//! What happens to an object between the request and the store, kind by kind: what the server fills in or refuses because
//! of who asks or of what else there is. Rules of the object alone are in `defaults` and `validation`.

mod pods;
pub(crate) mod services;
mod signing_requests;

use serde_json::Value;

use crate::api::Api;
use crate::auth::{User, node};
use crate::object;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::Objects;

/// Who asks, and what else there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) api: &'a Api,
    pub(crate) user: &'a User,
    pub(crate) objects: &'a Objects,
}

/// Prepares a new object, or refuses it.
pub(crate) fn create(context: &Context<'_>, resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    refuse_by_node(context, resource, object, None)?;
    // A Node brings its first status along; of all others the status is the cluster's word.
    if resource.has_status()
        && resource.name != "nodes"
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    match resource.name {
        "certificatesigningrequests" => signing_requests::create(context, object),
        "pods" => return pods::create(context, resource, object),
        "services" => return services::create(context, resource, object),
        _ => {}
    }
    Ok(())
}

/// Prepares a change of the main resource, or refuses it.
pub(crate) fn update(
    context: &Context<'_>,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    refuse_by_node(context, resource, new, Some(old))?;
    match resource.name {
        "certificatesigningrequests" => object::keep_field(new, old, "spec"),
        "namespaces" => object::keep_field(new, old, "spec"),
        "services" => return services::update(context, resource, new, old),
        _ => {}
    }
    Ok(())
}

fn refuse_by_node(
    context: &Context<'_>,
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let Some(name) = context.user.node() else { return Ok(()) };
    node::admit(name, resource.name, new, old)
        .map_err(|why| ApiError::forbidden_object(resource, object::name(new), &why))
}
