//! `/pods`: the desired pods of this node, as a `v1.PodList`.

use axum::extract::State;
use axum::response::Response;
use model::k8s::Pod;
use serde_json::Value;

use crate::Api;
use crate::answer;

pub(crate) async fn list(State(api): State<Api>) -> Response {
    answer::json(encode(&api.pods()))
}

/// Encodes pod by pod, so that only one of them is in memory a second time. Items of a list have no kind.
pub(crate) fn encode(pods: &[Pod]) -> Result<Vec<u8>, serde_json::Error> {
    let mut list = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_vec();
    for (number, pod) in pods.iter().enumerate() {
        if number > 0 {
            list.push(b',');
        }
        let mut item = serde_json::to_value(pod)?;
        if let Value::Object(fields) = &mut item {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        serde_json::to_writer(&mut list, &item)?;
    }
    list.extend_from_slice(b"]}\n");
    Ok(list)
}
