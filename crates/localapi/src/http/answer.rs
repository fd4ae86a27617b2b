//! Responses: bodies, codes and headers. What is in them is decided by the verbs.

use ::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use serde_json::Value;

use super::media::{self, Include};
use super::{Body, Call, Media};
use crate::status::ApiError;

pub(crate) const JSON: &str = "application/json";

pub(crate) fn bytes(code: StatusCode, content_type: &str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code;
    let content_type = HeaderValue::from_str(content_type).unwrap_or(HeaderValue::from_static(JSON));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

pub(crate) fn json(code: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(text) => bytes(code, JSON, text),
        Err(error) => failure(&ApiError::internal(format!("the answer cannot be written: {error}"))),
    }
}

pub(crate) fn failure(error: &ApiError) -> Response<Body> {
    bytes(error.code, JSON, error.to_value().to_string())
}

/// One object in the form the client asked for.
pub(crate) fn object(call: &Call, code: StatusCode, object: &Value) -> Result<Response<Body>, ApiError> {
    let object = media::shown(call.resource(), object, call.api.behaviour.unknown_fields);
    Ok(match &call.media {
        Media::Object => json(code, &*object),
        Media::Metadata(version) => json(code, &media::metadata_only(&object, version)),
        Media::Table(version) => {
            let include = Include::parse(call.query.get("includeObject"))?;
            let objects = [object.into_owned()];
            let mut table = media::as_table(call.resource(), &objects, version, include, call.api.now());
            table["metadata"] =
                serde_json::json!({"resourceVersion": objects[0]["metadata"]["resourceVersion"]});
            json(code, &table)
        }
    })
}
