//! The response with one object, in the negotiated form.

use ::http::{Response, StatusCode};
use serde_json::Value;

use super::Call;
use super::negotiation::{self, Include, Media};
use crate::http::Body;
pub(super) use crate::http::response::{JSON, failure, json};
use crate::status::ApiError;

/// Writes one object in the negotiated form.
pub(super) fn object(call: &Call, code: StatusCode, object: &Value) -> Result<Response<Body>, ApiError> {
    let object = negotiation::converted(call.resource(), object, call.api.behaviour.unknown_fields);
    Ok(match &call.media {
        Media::Object => json(code, &*object),
        Media::Metadata(version) => json(code, &negotiation::metadata_only(&object, version)),
        Media::Table(version) => {
            let include = Include::parse(call.query.get("includeObject"))?;
            let objects = [object.into_owned()];
            let mut table =
                negotiation::as_table(call.resource(), &objects, version, include, call.api.now());
            table["metadata"] =
                serde_json::json!({"resourceVersion": objects[0]["metadata"]["resourceVersion"]});
            json(code, &table)
        }
    })
}
