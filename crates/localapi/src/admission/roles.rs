//! Roles and bindings: users write only permissions that they hold, and a ClusterRole that collects rules gets them when it
//! is written.

use serde_json::Value;

use super::Context;
use crate::auth::escalation::{self, Refusal};
use crate::auth::rbac::aggregation;
use crate::object;
use crate::resources::{self, Resource};
use crate::status::ApiError;
use crate::validation;

pub(super) fn admit(
    context: &Context<'_>,
    resource: &Resource,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    // A list of another type would count as an empty one, which allows all names.
    validation::decode(resource.name, new).map_err(ApiError::bad_request)?;
    let allowed = escalation::check(context.user, resource.name, new, old, context.objects);
    allowed.map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => ApiError::forbidden_object(resource, object::name(new), &why),
        Refusal::NoRole(plural, name) => match resources::stored(plural) {
            Some(roles) => ApiError::not_found(roles, &name),
            None => ApiError::no_such_path(),
        },
    })?;
    if resource.name == "clusterroles"
        && let Some(rules) = aggregation::rules(new, context.objects)
    {
        new["rules"] = Value::Array(rules);
    }
    Ok(())
}
