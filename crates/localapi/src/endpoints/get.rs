//! GET of one object.

use ::http::{Response, StatusCode};

use super::{Call, response};
use crate::http::Body;
use crate::status::ApiError;

pub(super) fn get(call: &Call) -> Result<Response<Body>, ApiError> {
    call.refuse_future(call.revision()?)?;
    let found = call.api.store.get(&call.key());
    let object = found.ok_or_else(|| ApiError::not_found(call.resource(), call.name()))?;
    response::object(call, StatusCode::OK, &object)
}
