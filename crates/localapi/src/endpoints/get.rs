//! GET of one object.

use ::http::{Response, StatusCode};

use super::{Call, response};
use crate::http::Body;
use crate::http::response::bytes;
use crate::status::ApiError;

pub(super) fn get(call: &Call) -> Result<Response<Body>, ApiError> {
    call.refuse_future(call.revision()?)?;
    let found = call.api.store.stored(&call.key());
    let object = found.ok_or_else(|| ApiError::not_found(call.resource(), call.name()))?;
    if call.writes_text() {
        return Ok(bytes(StatusCode::OK, response::JSON, object.text().to_vec()));
    }
    response::object(call, StatusCode::OK, &object.tree())
}
