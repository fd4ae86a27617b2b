//! `/runningpods/`: the pods that run according to the runtime, as a `v1.PodList`.

use axum::extract::State;
use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};

use crate::Api;
use crate::answer;
use crate::endpoints::pods;

pub(crate) async fn list(State(api): State<Api>) -> Response {
    match api.running_pods().await {
        Ok(running) => answer::json(pods::encode(&running)),
        Err(message) => answer::error(StatusCode::INTERNAL_SERVER_ERROR, &message),
    }
}

/// Redirects the path without a slash.
pub(crate) async fn redirect() -> Response {
    let mut response = answer::text(StatusCode::MOVED_PERMANENTLY, "Moved Permanently\n");
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/runningpods/"));
    response
}
