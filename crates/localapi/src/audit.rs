//! The audit log: requests of nodes and their responses, one JSON object in each line, with the content of the real
//! server's audit levels RequestResponse (for writes) and Metadata (for reads).

use std::fs::File;
use std::io::Write;
use std::path::Path;

use ::http::Response;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::auth::User;
use crate::http::{Body, response};
use crate::json;
use crate::status::ApiError;

/// One request, as the audit log records it.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    pub(crate) at: Timestamp,
    pub(crate) user: &'a User,
    pub(crate) verb: &'a str,
    pub(crate) uri: &'a str,
    pub(crate) body: &'a [u8],
}

/// The file to which events are appended.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Mutex<File>,
}

impl AuditLog {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Appends the request and its response if a node sent it; returns the response.
    pub(crate) async fn record(
        &self,
        event: Event<'_>,
        result: Result<Response<Body>, ApiError>,
    ) -> Response<Body> {
        let response = result.unwrap_or_else(|error| response::failure(&error));
        if event.user.node().is_none() {
            return response;
        }
        let is_read = ["get", "list", "watch"].contains(&event.verb);
        let (head, body) = response.into_parts();
        let (body, text) = if is_read {
            (body, Value::Null)
        } else {
            match body.collect().await {
                Ok(collected) => {
                    let bytes = collected.to_bytes();
                    let text = json::decode(&bytes).unwrap_or_default();
                    (Full::new(bytes).map_err(|never| match never {}).boxed_unsync(), text)
                }
                Err(error) => {
                    let failed = response::failure(&ApiError::internal(error.to_string()));
                    return failed;
                }
            }
        };
        let entry = json!({
            "at": event.at.to_string(),
            "user": event.user.name,
            "verb": event.verb,
            "uri": event.uri,
            "code": head.status.as_u16(),
            "request": json::decode(event.body).unwrap_or_default(),
            "response": text,
        });
        if let Err(error) = append(&mut *self.file.lock(), &entry) {
            tracing::warn!(err = %error, "failed to write the audit log");
        }
        Response::from_parts(head, body)
    }
}

/// Appends the entry in one write: a JSON value formats itself piece by piece, and whoever reads the file meanwhile would see
/// half a line for as long as that takes.
fn append(log: &mut impl Write, entry: &Value) -> std::io::Result<()> {
    log.write_all(format!("{entry}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of each write.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn entry_and_its_line_end_are_appended_in_one_write() {
        let mut writes = Writes::default();
        append(&mut writes, &json!({"verb": "get", "code": 200})).expect("written");
        assert_eq!(writes.0, [b"{\"code\":200,\"verb\":\"get\"}\n"]);
    }
}
