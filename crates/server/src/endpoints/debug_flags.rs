//! `/debug/flags/v`: sets the log verbosity at run time.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};

use crate::answer;
use crate::state::MainState;

/// Limit for the body, which is a number.
const MAX_BODY_BYTES: usize = 64;

pub(crate) async fn set(State(state): State<MainState>, method: Method, body: Body) -> Response {
    if method != Method::PUT {
        return answer::error(StatusCode::NOT_ACCEPTABLE, "unrecognized http method");
    }
    let text = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(error) => {
            let text = format!("error reading request body: {error}");
            return answer::error(StatusCode::BAD_REQUEST, &text);
        }
    };
    match text.parse() {
        Ok(level) => {
            state.process.set_verbosity(level);
            let text = format!("successfully set klog.logging.verbosity to {level}");
            answer::error(StatusCode::OK, &text)
        }
        Err(_) => {
            let why = "must be a whole number, 0 or above";
            let text = format!("failed to set klog.logging.verbosity {text:?}: {why}");
            answer::error(StatusCode::BAD_REQUEST, &text)
        }
    }
}
