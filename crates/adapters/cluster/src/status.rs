//! Converts error responses (`metav1.Status`) into errors, by their reason first and their code second.

use std::time::Duration;

use http::header::HeaderValue;
use ports::cluster::ClusterError;
use serde::Deserialize;

/// Limit for the text of a response that is not a Status, as from a proxy.
const MAX_SHOWN: usize = 512;

/// In the message of an API server whose newest resource version is older than the requested one.
const TOO_NEW: &str = "Too large resource version";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    message: Option<String>,
    reason: Option<String>,
    code: Option<u16>,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

/// Seconds only: API servers send no dates.
pub(crate) fn retry_after(header: &HeaderValue) -> Option<Duration> {
    header
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
        .map(|seconds| Duration::from_secs(seconds).min(model::time::MAX_WAIT))
}

/// The error for a response with this code and body.
pub(crate) fn to_error(call: String, code: u16, retry_after: Option<Duration>, body: &[u8]) -> ClusterError {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let code = status.code.filter(|code| *code >= 400).unwrap_or(code);
    let message = match status.message.filter(|message| !message.is_empty()) {
        Some(message) => message,
        None => {
            let text: String = String::from_utf8_lossy(body).trim().chars().take(MAX_SHOWN).collect();
            if text.is_empty() { format!("the server responded with status {code}") } else { text }
        }
    };
    let seconds = status.details.unwrap_or_default().retry_after_seconds.filter(|seconds| *seconds > 0);
    let retry_after =
        retry_after.or(seconds.map(|seconds| Duration::from_secs(seconds).min(model::time::MAX_WAIT)));
    match (status.reason.as_deref().unwrap_or_default(), code) {
        ("NotFound", _) => ClusterError::NotFound { call, message },
        ("AlreadyExists", _) => ClusterError::AlreadyExists { call, message },
        ("Conflict", _) => ClusterError::Conflict { call, message },
        ("Expired" | "Gone", _) => ClusterError::Expired { call, message },
        // The server lost what it had, or its memory is behind: only a list without a version helps.
        ("Timeout", _) if message.contains(TOO_NEW) => ClusterError::Expired { call, message },
        ("Unauthorized", _) => ClusterError::Unauthorized { call, message },
        ("Forbidden", _) => ClusterError::Forbidden { call, message },
        ("Invalid" | "BadRequest", _) => ClusterError::Invalid { call, message },
        ("TooManyRequests", _) | (_, 429) => ClusterError::Busy { call, message, retry_after },
        (_, 500..) if retry_after.is_some() => ClusterError::Busy { call, message, retry_after },
        (_, 401) => ClusterError::Unauthorized { call, message },
        (_, 403) => ClusterError::Forbidden { call, message },
        (_, 404) => ClusterError::NotFound { call, message },
        (_, 409) => ClusterError::Conflict { call, message },
        (_, 410) => ClusterError::Expired { call, message },
        (_, 400 | 422) => ClusterError::Invalid { call, message },
        (_, code) => ClusterError::Failed { call, code, message },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(code: u16, reason: &str) -> ClusterError {
        let body = json!({"kind": "Status", "message": "text", "reason": reason, "code": code}).to_string();
        to_error("get pods a/b".to_owned(), code, None, body.as_bytes())
    }

    #[test]
    fn status_reason_takes_precedence_over_the_code() {
        let call = || "get pods a/b".to_owned();
        let message = || "text".to_owned();
        assert_eq!(
            error(409, "AlreadyExists"),
            ClusterError::AlreadyExists { call: call(), message: message() }
        );
        assert_eq!(error(409, "Conflict"), ClusterError::Conflict { call: call(), message: message() });
        assert_eq!(error(410, "Expired"), ClusterError::Expired { call: call(), message: message() });
        assert_eq!(error(404, ""), ClusterError::NotFound { call: call(), message: message() });
        assert_eq!(error(422, "Invalid"), ClusterError::Invalid { call: call(), message: message() });
        assert_eq!(
            error(500, "InternalError"),
            ClusterError::Failed { call: call(), code: 500, message: message() }
        );
    }

    #[test]
    fn resource_version_that_is_newer_than_the_server_is_expired() {
        let body = json!({"message": "Too large resource version: 9, current: 7", "reason": "Timeout", "code": 504,
            "details": {"retryAfterSeconds": 1}});
        let error = to_error("x".to_owned(), 504, None, body.to_string().as_bytes());
        assert!(matches!(error, ClusterError::Expired { .. }), "{error:?}");
    }

    #[test]
    fn busy_error_has_the_retry_after_time() {
        let body = json!({"message": "later", "reason": "ServerTimeout", "code": 504, "details": {"retryAfterSeconds": 3}});
        let error = to_error("x".to_owned(), 504, None, body.to_string().as_bytes());
        let three = Some(Duration::from_secs(3));
        assert_eq!(
            error,
            ClusterError::Busy { call: "x".to_owned(), message: "later".to_owned(), retry_after: three }
        );
        assert_eq!(retry_after(&HeaderValue::from_static(" 7 ")), Some(Duration::from_secs(7)));
    }

    #[test]
    fn response_without_a_status_is_truncated() {
        let text = "<html>bad gateway</html>".repeat(100);
        let ClusterError::Failed { code: 502, message, .. } =
            to_error("x".to_owned(), 502, None, text.as_bytes())
        else {
            panic!("no failure")
        };
        assert_eq!(message.chars().count(), MAX_SHOWN);
        let ClusterError::NotFound { message, .. } = to_error("x".to_owned(), 404, None, b"") else {
            panic!("no failure")
        };
        assert_eq!(message, "the server responded with status 404");
    }
}
