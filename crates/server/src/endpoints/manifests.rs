//! `/debug/manifests`: current problems of manifests, as a JSON list of origin and message. The Go kubelet does not have this
//! endpoint; it only logs such problems.

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;

use crate::Api;
use crate::answer;

#[derive(Serialize)]
struct Problem<'a> {
    origin: &'a str,
    message: &'a str,
}

pub(crate) async fn problems(State(api): State<Api>) -> Response {
    let problems = api.manifest_problems();
    let shown: Vec<_> = problems.iter().map(|p| Problem { origin: &p.origin, message: &p.message }).collect();
    answer::json(serde_json::to_vec(&shown))
}
