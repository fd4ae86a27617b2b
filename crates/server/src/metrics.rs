//! `/metrics`: the agent's own counters, as Prometheus text.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, StatusCode};

use crate::{Api, answer};

const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub(crate) async fn text(State(api): State<Api>) -> Response {
    answer::with_type(StatusCode::OK, PROMETHEUS, api.metrics())
}
