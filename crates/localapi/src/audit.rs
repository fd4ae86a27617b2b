//! The audit log: what nodes asked and what was answered, one JSON object in each line, as the real server's audit log has
//! it at the levels RequestResponse (for what changes something) and Metadata (for what reads).

use std::fs::File;
use std::io::Write;
use std::path::Path;

use ::http::Response;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::http::{Body, Call, answer};
use crate::status::ApiError;

/// Where entries are written; appended to a file.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Mutex<File>,
}

impl AuditLog {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes the call and its answer down, if a node asked, and passes the answer on.
    pub(crate) async fn record(
        &self,
        call: &Call,
        verb: &str,
        answered: Result<Response<Body>, ApiError>,
    ) -> Response<Body> {
        let at = call.api.now();
        let response = answered.unwrap_or_else(|error| answer::failure(&error));
        if call.user.node().is_none() {
            return response;
        }
        let is_read = ["get", "list", "watch"].contains(&verb);
        let (head, body) = response.into_parts();
        let (body, text) = if is_read {
            (body, Value::Null)
        } else {
            match body.collect().await {
                Ok(collected) => {
                    let bytes = collected.to_bytes();
                    let text = serde_json::from_slice(&bytes).unwrap_or_default();
                    (Full::new(bytes).map_err(|never| match never {}).boxed_unsync(), text)
                }
                Err(error) => {
                    let failed = answer::failure(&ApiError::internal(error.to_string()));
                    return failed;
                }
            }
        };
        let entry = json!({
            "at": at.to_string(),
            "user": call.user.name,
            "verb": verb,
            "uri": call.uri,
            "code": head.status.as_u16(),
            "request": serde_json::from_slice::<Value>(&call.body).unwrap_or_default(),
            "response": text,
        });
        if let Err(error) = writeln!(self.file.lock(), "{entry}") {
            tracing::warn!(err = %error, "failed to write the audit log");
        }
        Response::from_parts(head, body)
    }
}
