//! `/configz`: the configuration this kubelet runs with.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use crate::answer;
use crate::main_port::MainState;

pub(crate) async fn show(State(state): State<MainState>) -> Response {
    answer::json(encode(&state.config))
}

fn encode(config: &config::KubeletConfiguration) -> Result<Vec<u8>, serde_json::Error> {
    let mut shown = serde_json::to_value(config)?;
    if let Value::Object(fields) = &mut shown {
        fields.insert("kind".to_owned(), config::KIND.into());
        fields.insert("apiVersion".to_owned(), config::API_VERSION.into());
    }
    serde_json::to_vec(&json!({"kubeletconfig": shown}))
}
