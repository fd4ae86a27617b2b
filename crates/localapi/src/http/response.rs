//! Responses: bodies, codes and headers. What is in them is decided by the verbs.

use ::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde::Serialize;

use super::Body;
use crate::status::ApiError;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";

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
        Err(error) => failure(&ApiError::internal(format!("failed to encode the response: {error}"))),
    }
}

pub(crate) fn failure(error: &ApiError) -> Response<Body> {
    let mut response = bytes(error.code, JSON, error.to_value().to_string());
    if let Some(seconds) = error.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64()) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
