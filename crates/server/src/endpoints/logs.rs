//! `/logs/`: the node's logs, as a directory tree, or (`?query=`) by the name of a service.

mod files;
pub(crate) mod options;

use std::path::PathBuf;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode};

use self::options::Wanted;
use crate::answer;
use crate::query;
use crate::state::MainState;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain;charset=UTF-8");

/// The log directory.
pub(crate) async fn top(State(state): State<MainState>, query: RawQuery, headers: HeaderMap) -> Response {
    below(State(state), Path(String::new()), query, headers).await
}

pub(crate) async fn below(
    State(state): State<MainState>,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let wanted = if state.config.enable_system_log_query {
        options::read(&query::pairs(query.as_deref()))
    } else {
        Ok(Wanted::Path)
    };
    let no = StatusCode::NOT_ACCEPTABLE;
    match wanted {
        Err(problem) => answer::error(StatusCode::BAD_REQUEST, &problem),
        Ok(Wanted::Path) => files::show(&state.api, &format!("/{path}"), query.as_deref(), &headers).await,
        Ok(Wanted::Logs(_)) if !path.is_empty() => answer::error(no, "path not allowed in query mode"),
        Ok(Wanted::Logs(log_query)) => match log_query.check() {
            Err(problem) => answer::error(no, &problem),
            Ok(()) => match log_query.files.first() {
                None => {
                    let pieces = state.api.service_logs(&log_query.services, &log_query.options).await;
                    let pieces = pieces.map(|piece| {
                        piece.inspect_err(|error| tracing::warn!(err = error, "Failed to read node log"))
                    });
                    answer::with_type(StatusCode::OK, PLAIN, Body::from_stream(pieces))
                }
                Some(file) => {
                    let clean = files::clean(&file.replace('\\', "/"));
                    let missing =
                        state.api.system_log(&PathBuf::from(clean.trim_start_matches('/'))).await.err();
                    match missing {
                        Some(why) => {
                            answer::error(no, &options::invalid("query", &log_query.files, &why.to_string()))
                        }
                        None => files::show(&state.api, &clean, query.as_deref(), &headers).await,
                    }
                }
            },
        },
    }
}
