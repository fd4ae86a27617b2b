//! PUT and PATCH of an object or of one of its subresources.

use std::sync::Arc;

use ::http::{Method, Response, StatusCode};
use serde_json::Value;

use super::apply::{self, Configuration};
use super::call::attributes;
use super::{Call, authorize, create, patch, response};
use crate::events;
use crate::http::Body;
use crate::managed_fields::Applied;
use crate::object;
use crate::registry::{self, Scope};
use crate::resources::Resource;
use crate::status::ApiError;
use crate::validation::{self, FieldError, Reason};

/// The object of the request, and the stored one.
pub(crate) struct Change<'a> {
    pub(crate) sent: Value,
    pub(crate) current: &'a Value,
}

pub(super) fn update(call: &Call) -> Result<Response<Body>, ApiError> {
    let creates = call.method == Method::PUT && call.resource().create_on_update;
    if creates && call.api.store.get(&call.key()).is_none() {
        authorize(&call.api, &call.user, &attributes(&Method::POST, &call.query, &call.info)?)?;
        return create_missing(call);
    }
    if apply::is_apply(call) && call.api.store.get(&call.key()).is_none() {
        match apply::create(call, &Configuration::of(call)?) {
            // Another client created it first.
            Err(error) if error.reason == "AlreadyExists" => {}
            created => return created,
        }
    }
    change(call, Scope::Main, |change| Ok(change.sent))
}

/// A PUT that creates the object, unless it has the UID of a deleted one.
fn create_missing(call: &Call) -> Result<Response<Body>, ApiError> {
    let sent = decode(call)?;
    let uid = object::uid(&sent);
    if !uid.is_empty() {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
        return Err(ApiError::conflict(call.resource(), call.name(), &why));
    }
    create::create_as(call, sent, &call.manager()?)
}

/// PUT or PATCH of an object or a subresource: `part` returns the object to store.
pub(crate) fn change(
    call: &Call,
    scope: Scope,
    part: impl FnOnce(Change<'_>) -> Result<Value, ApiError>,
) -> Result<Response<Body>, ApiError> {
    let updated = match call.method {
        Method::PUT => {
            let (sent, manager) = (decode(call)?, call.manager()?);
            revise(call, scope, &manager, |current| {
                refuse_unconditional(call.resource(), &sent, current)?;
                part(Change { sent, current })
            })?
        }
        Method::PATCH if apply::is_apply(call) => {
            let configuration = Configuration::of(call)?;
            // The entries are complete already.
            revise(call, scope, "", |current| {
                let Applied { object, entries } = configuration.apply(call, Some(current))?;
                let mut new = part(Change { sent: object, current })?;
                object::metadata(&mut new).insert("managedFields".to_owned(), entries);
                Ok(new)
            })?
        }
        Method::PATCH => {
            let kind = patch::kind(call)?;
            call.refuse_force()?;
            let manager = call.manager()?;
            revise(call, scope, &manager, |current| {
                let mut sent = patch::patched(call, kind, current)?;
                if scope == Scope::Main {
                    check_types(call, &mut sent)?;
                }
                part(Change { sent, current })
            })?
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    response::object(call, StatusCode::OK, &updated)
}

/// Refuses a patched object with a value that its type does not take: clients that decode the object would fail from then on.
fn check_types(call: &Call, patched: &mut Value) -> Result<(), ApiError> {
    let decoded = validation::decode_without_managed_fields(call.resource().name, patched);
    decoded.map_err(|error| {
        // As the cause of an invalid object, which kubectl shows.
        let message = format!("Invalid value: {error}");
        ApiError::invalid_field(call.resource(), call.name(), "patch", Reason::Invalid, message)
    })
}

/// Decodes the body of a PUT; name and namespace must be those of the path.
fn decode(call: &Call) -> Result<Value, ApiError> {
    let resource = call.resource();
    let sent = call.object(&resource.api_version(), resource.kind)?;
    let sent = if resource.group == events::GROUP { events::from_events_group(sent) } else { sent };
    let name = object::name(&sent);
    if name != call.name() {
        let message =
            format!("the name of the object ({name}) does not match the name on the URL ({})", call.name());
        return Err(ApiError::bad_request(message));
    }
    let namespace = object::namespace(&sent);
    // The stored object of the cluster has none.
    if resource.namespaced && !namespace.is_empty() && namespace != call.namespace() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    Ok(sent)
}

/// Changes the object of the call to what `change` returns. `manager` owns what changed; without one, the entries of the object stay.
pub(super) fn revise(
    call: &Call,
    scope: Scope,
    manager: &str,
    change: impl FnOnce(&Value) -> Result<Value, ApiError>,
) -> Result<Arc<Value>, ApiError> {
    let dry_run = call.is_dry_run()?;
    registry::update(&call.api, &call.user, &call.info, scope, manager, dry_run, change)
}

/// Some kinds require a resource version in a PUT.
fn refuse_unconditional(resource: &Resource, sent: &Value, current: &Value) -> Result<(), ApiError> {
    if resource.unconditional_update || !["", "0"].contains(&object::resource_version(sent)) {
        return Ok(());
    }
    let fault = FieldError {
        field: "metadata.resourceVersion".to_owned(),
        reason: Reason::Invalid,
        message: "Invalid value: 0x0: must be specified for an update".to_owned(),
    };
    // The real server writes the plural here; in other errors it writes the kind.
    Err(ApiError::invalid_of_kind(resource.name, resource.group, object::name(current), &[fault]))
}
