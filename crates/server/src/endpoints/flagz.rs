//! `/flagz`: every flag with the value in effect.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::{Value, json};

use crate::endpoints::zpages;
use crate::state::MainState;

pub(crate) async fn show(State(state): State<MainState>, headers: HeaderMap) -> Response {
    let flags = state.process.flags();
    let lines = flags.iter().map(|(name, value)| (name, value));
    zpages::show("Flagz", &headers, lines, || {
        let flags: serde_json::Map<String, Value> =
            flags.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        json!({"flags": flags})
    })
}
