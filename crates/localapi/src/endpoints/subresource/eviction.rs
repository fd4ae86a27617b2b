//! `pods/eviction`: a deletion that disruption budgets can refuse. There are no budgets here, so it is a plain deletion.

use ::http::{Response, StatusCode};
use serde_json::Value;

use super::super::{Call, response};
use crate::http::Body;
use crate::object::{self, text};
use crate::registry::{self, deletion::DeleteOptions};
use crate::status::{self, ApiError};

pub(super) fn evict(call: &Call) -> Result<Response<Body>, ApiError> {
    let eviction = call.json()?;
    // Old clients send v1beta1, which has the same fields.
    let version = text(&eviction, "/apiVersion");
    if !["", "policy/v1", "policy/v1beta1"].contains(&version) {
        return Err(ApiError::bad_request(format!(
            "apiVersion: {version:?} is not policy/v1 or policy/v1beta1"
        )));
    }
    if !["", call.name()].contains(&object::name(&eviction)) {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = eviction.get("deleteOptions").unwrap_or(&Value::Null);
    let mut options = DeleteOptions::parse(options)?;
    options.dry_run |= call.is_dry_run()?;
    registry::delete(&call.api, call.resource(), &call.key(), &options)?;
    let mut done = status::success(call.resource(), call.name(), "");
    done["code"] = serde_json::json!(StatusCode::CREATED.as_u16());
    Ok(response::json(StatusCode::CREATED, &done))
}
