//! `/checkpoint/<namespace>/<pod>/<container>`: the state of a container, written to a file of the node.

use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use ports::node_api::{PodRefusal, PodTarget};
use serde_json::json;

use crate::Api;
use crate::answer;
use crate::query;

pub(crate) async fn write(
    State(api): State<Api>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let pairs = query::pairs(query.as_deref());
    // The last one counts.
    let timeout = match pairs.iter().rfind(|(name, _)| name == "timeout").map(|(_, value)| value.parse()) {
        None => None,
        Some(Ok(seconds)) => Some(Duration::from_secs(seconds).min(model::time::MAX_WAIT)),
        // As in the Go kubelet.
        Some(Err(_)) => {
            return answer::text(StatusCode::NOT_FOUND, "cannot parse value of timeout parameter");
        }
    };
    let pod = PodTarget { namespace, pod, uid: None };
    match api.checkpoint(&pod, &container, timeout).await {
        Ok(file) => answer::json(serde_json::to_vec(&json!({"items": [file]}))),
        Err(PodRefusal::NotFound(text)) => answer::text(StatusCode::NOT_FOUND, text),
        Err(PodRefusal::Invalid(text) | PodRefusal::Failed(text)) => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}
