//! POST of a new object.

use ::http::{Response, StatusCode};
use serde_json::Value;

use super::Call;
use super::response;
use crate::events;
use crate::http::Body;
use crate::object;
use crate::registry::{self, namespaces};
use crate::status::ApiError;
use crate::validation;

pub(super) fn create(call: &Call) -> Result<Response<Body>, ApiError> {
    let resource = call.resource();
    let object = call.object(&resource.api_version(), resource.kind)?;
    let object = if resource.group == events::GROUP { events::from_events_group(object) } else { object };
    create_as(call, object, &call.manager()?)
}

/// Creates `object`, which has the stored version already. `manager` owns its fields.
pub(super) fn create_as(call: &Call, mut object: Value, manager: &str) -> Result<Response<Body>, ApiError> {
    let resource = call.resource();
    validation::decode_without_managed_fields(resource.name, &mut object).map_err(ApiError::bad_request)?;
    let dry_run = call.is_dry_run()?;
    let namespace = call.namespace();
    let created = registry::create(&call.api, &call.user, resource, namespace, object, manager, dry_run)?;
    if resource.name == "namespaces" && !dry_run {
        namespaces::populate(&call.api, object::name(&created))?;
    }
    response::object(call, StatusCode::CREATED, &created)
}
