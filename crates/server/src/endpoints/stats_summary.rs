//! `/stats/summary`: statistics of the node and its pods as JSON, or only CPU and memory (`?only_cpu_and_memory=true`).

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode};
use ports::node_api::Measurements;

use crate::Api;
use crate::answer;
use crate::endpoints::metrics;
use crate::query;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) async fn show(State(api): State<Api>, RawQuery(query): RawQuery) -> Response {
    let pairs = query::pairs(query.as_deref());
    let only_cpu_and_memory = match query::first(&pairs, "only_cpu_and_memory") {
        None | Some("" | "false" | "0" | "f" | "F" | "FALSE" | "False") => false,
        Some("true" | "1" | "t" | "T" | "TRUE" | "True") => true,
        Some(other) => {
            let text = format!("invalid query: only_cpu_and_memory must be true or false, not {other:?}");
            return answer::error(StatusCode::BAD_REQUEST, &text);
        }
    };
    metrics::show(&api, Measurements::Summary { only_cpu_and_memory }, JSON).await
}
