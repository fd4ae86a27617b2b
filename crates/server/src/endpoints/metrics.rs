//! `/metrics` and the endpoints below it: Prometheus text, streamed in pieces.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt;
use http::{HeaderValue, StatusCode};
use ports::node_api::Measurements;

use crate::Api;
use crate::answer;

const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub(crate) async fn kubelet(State(api): State<Api>) -> Response {
    show(&api, Measurements::Kubelet, PROMETHEUS).await
}

pub(crate) async fn cadvisor(State(api): State<Api>) -> Response {
    show(&api, Measurements::Cadvisor, PROMETHEUS).await
}

pub(crate) async fn resource(State(api): State<Api>) -> Response {
    show(&api, Measurements::Resource, PROMETHEUS).await
}

pub(crate) async fn probes(State(api): State<Api>) -> Response {
    show(&api, Measurements::Probes, PROMETHEUS).await
}

pub(crate) async fn slis(State(api): State<Api>) -> Response {
    show(&api, Measurements::Checks, PROMETHEUS).await
}

pub(crate) async fn show(api: &Api, what: Measurements, content_type: HeaderValue) -> Response {
    match api.measurements(what).await {
        Ok(pieces) => {
            let body = Body::from_stream(pieces.map(Ok::<_, Infallible>));
            answer::with_type(StatusCode::OK, content_type, body)
        }
        Err(why) => answer::error(StatusCode::INTERNAL_SERVER_ERROR, &why),
    }
}
