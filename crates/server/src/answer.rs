//! HTTP responses in the form of Kubernetes components.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_SNIFF: (HeaderName, HeaderValue) = (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

pub(crate) fn with_type(status: StatusCode, content_type: HeaderValue, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(crate) fn text(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = with_type(status, PLAIN, body);
    response.headers_mut().extend([NO_SNIFF]);
    response
}

/// An error in one line.
pub(crate) fn error(status: StatusCode, message: &str) -> Response {
    text(status, format!("{message}\n"))
}

/// A failure to encode JSON is an internal server error.
pub(crate) fn json(body: Result<Vec<u8>, serde_json::Error>) -> Response {
    match body {
        Ok(body) => with_type(StatusCode::OK, JSON, body),
        Err(failure) => error(StatusCode::INTERNAL_SERVER_ERROR, &failure.to_string()),
    }
}

pub(crate) async fn not_found() -> Response {
    error(StatusCode::NOT_FOUND, "404 page not found")
}

pub(crate) async fn method_not_allowed() -> Response {
    error(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
}
