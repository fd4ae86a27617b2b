//! `/containerLogs/<namespace>/<pod>/<container>`: the log of a container, optionally followed.

pub(crate) mod options;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use futures_util::StreamExt;
use http::{HeaderValue, StatusCode};
use ports::node_api::{LogSource, PodRefusal};

use self::options::{LogOptions, OptionsError};
use crate::answer;
use crate::query;
use crate::state::MainState;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

pub(crate) async fn show(
    State(state): State<MainState>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let now = state.clock.now().wall;
    let LogOptions { previous, view } =
        match options::read(&query::pairs(query.as_deref()), now, state.features.log_streams) {
            Ok(options) => options,
            Err(OptionsError::Unreadable) => {
                return answer::text(StatusCode::BAD_REQUEST, r#"{"message": "Unable to decode query."}"#);
            }
            Err(OptionsError::Invalid) => {
                let text = r#"{"message": "Invalid request."}"#;
                return answer::text(StatusCode::UNPROCESSABLE_ENTITY, text);
            }
        };
    let source = LogSource { namespace, pod, container, previous };
    match state.api.container_log(&source, &view).await {
        Ok(pieces) => {
            let pieces = pieces.map(|piece| {
                // The headers were sent already, so the only way to report an error is to abort the connection.
                piece.inspect_err(|error| tracing::warn!(err = error, "Failed to read container log"))
            });
            answer::with_type(StatusCode::OK, PLAIN, Body::from_stream(pieces))
        }
        Err(PodRefusal::NotFound(text)) => answer::text(StatusCode::NOT_FOUND, text),
        Err(PodRefusal::Invalid(text) | PodRefusal::Failed(text)) => {
            answer::text(StatusCode::BAD_REQUEST, text)
        }
    }
}
