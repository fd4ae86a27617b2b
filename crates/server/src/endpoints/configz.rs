//! `/configz`: the configuration in effect.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use crate::answer;
use crate::state::MainState;

pub(crate) async fn show(State(state): State<MainState>) -> Response {
    answer::json(encode(&state.config))
}

fn encode(config: &config::KubeletConfiguration) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&json!({"kubeletconfig": config.configz()}))
}
