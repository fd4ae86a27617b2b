//! GET of one object.

use ::http::{Response, StatusCode};

use super::{Body, Call, answer};
use crate::status::ApiError;

pub(super) fn get(call: &Call) -> Result<Response<Body>, ApiError> {
    let found = call.api.store.get(&call.key());
    let object = found.ok_or_else(|| ApiError::not_found(call.resource(), call.name()))?;
    answer::object(call, StatusCode::OK, &object)
}
