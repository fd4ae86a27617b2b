//! Admission: fields that the server sets, and objects that it refuses, because of the user or of other objects. Rules that
//! depend on the object alone are in `defaults` and `validation`.

mod amounts;
mod limits;
mod nodes;
mod pods;
mod priority;
mod roles;
pub(crate) mod services;
mod signing_requests;
pub(crate) mod storage;

use serde_json::Value;

use crate::api::Api;
use crate::auth::pod_certificates::Refusal;
use crate::auth::{User, node_restriction, pod_certificates};
use crate::object;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::Objects;

/// The user of the request, and all other objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) api: &'a Api,
    pub(crate) user: &'a User,
    pub(crate) objects: &'a Objects,
}

/// Mutates a new object, or refuses it.
pub(crate) fn create(context: &Context<'_>, resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    admit_node(context, resource, object, None)?;
    // Only a Node is created with a status.
    if resource.has_status()
        && resource.name != "nodes"
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    match resource.name {
        "certificatesigningrequests" => signing_requests::create(context, object),
        "podcertificaterequests" => return admit_pod_certificate(context, resource, object),
        "nodes" => nodes::create(context, object),
        "pods" => return pods::create(context, resource, object),
        "services" => return services::create(context, resource, object),
        "priorityclasses" => return priority::check_class(context, resource, object),
        "persistentvolumeclaims" => storage::create_claim(context, object),
        "persistentvolumes" => storage::create_volume(context, object),
        "clusterroles" | "clusterrolebindings" | "roles" | "rolebindings" => {
            return roles::admit(context, resource, object, None);
        }
        _ => {}
    }
    Ok(())
}

/// What depends on the defaults of a new object. Returns whether it has changed.
pub(crate) fn after_defaults(context: &Context<'_>, resource: &Resource, object: &mut Value) -> bool {
    resource.name == "pods" && limits::set_defaults(context.objects, object)
}

/// Refuses a valid object that is outside of the LimitRanges of its namespace, or that does not fit into its quotas. `old` is the stored
/// object of an update.
pub(crate) fn check_amounts(
    context: &Context<'_>,
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    amounts::check(context.objects, resource, new, old)
        .map_err(|why| ApiError::forbidden_object(resource, object::name(new), &why))
}

/// Mutates an update of the main resource, or refuses it.
pub(crate) fn update(
    context: &Context<'_>,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    admit_node(context, resource, new, Some(old))?;
    match resource.name {
        "certificatesigningrequests" => object::keep_field(new, old, "spec"),
        "nodes" => nodes::record_taints(context, new, Some(old)),
        "namespaces" => object::keep_field(new, old, "spec"),
        "services" => return services::update(context, resource, new, old),
        "priorityclasses" => return priority::check_class(context, resource, new),
        "clusterroles" | "clusterrolebindings" | "roles" | "rolebindings" => {
            return roles::admit(context, resource, new, Some(old));
        }
        _ => {}
    }
    Ok(())
}

/// Mutates an update of the status, or refuses one that the user may not make.
pub(crate) fn update_status(
    context: &Context<'_>,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    if let Some(name) = context.user.node() {
        node_restriction::admit_status(name, resource.name, new, old)
            .map_err(|why| ApiError::forbidden_object(resource, object::name(new), &why))?;
    }
    if resource.name == "nodes" {
        nodes::update_status(new);
    }
    Ok(())
}

/// Refuses a request of a node for a pod that is not its own.
fn admit_pod_certificate(
    context: &Context<'_>,
    resource: &Resource,
    request: &Value,
) -> Result<(), ApiError> {
    let Some(node) = context.user.node() else { return Ok(()) };
    pod_certificates::admit(node, request, context.objects).map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => ApiError::forbidden_object(resource, object::name(request), &why),
        Refusal::Stale(why) => ApiError::internal(why),
    })
}

fn admit_node(
    context: &Context<'_>,
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let Some(name) = context.user.node() else { return Ok(()) };
    node_restriction::admit(name, resource.name, new, old)
        .map_err(|why| ApiError::forbidden_object(resource, object::name(new), &why))
}
