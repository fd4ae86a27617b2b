//! Classification of probe results: plain results in, an [`Outcome`] with its user-visible message out.

use std::time::Duration;

use config::GoDuration;

/// Maximum size of a body that is read, and of output in messages.
pub const OUTPUT_BYTES_MAX: usize = 10 * 1024;

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// It counts as success, with a warning event.
    Warning(String),
    Failure(String),
    /// The probe could not be executed, which is no result for the container.
    Error(String),
}

/// The result of a command in the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecAnswer<'a> {
    Exited {
        code: i32,
        stdout: &'a [u8],
        stderr: &'a [u8],
    },
    /// Killed after its timeout.
    TimedOut {
        command: &'a [String],
        after: Duration,
    },
    /// The runtime could not execute it.
    Failed(&'a str),
}

#[must_use]
pub fn classify_exec(answer: ExecAnswer<'_>) -> Outcome {
    match answer {
        ExecAnswer::Exited { code: 0, .. } => Outcome::Success,
        ExecAnswer::Exited { stdout, stderr, .. } => Outcome::Failure(shown(&[stdout, stderr].concat())),
        ExecAnswer::TimedOut { command, after } => {
            let command = command.join(" ");
            Outcome::Failure(format!(
                "command timed out: {command:?} timed out after {}",
                GoDuration::from(after)
            ))
        }
        ExecAnswer::Failed(why) => Outcome::Error(why.to_owned()),
    }
}

/// The response of an HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpAnswer<'a> {
    Answered {
        status: u16,
        body: &'a [u8],
        redirected_elsewhere: bool,
    },
    /// No response: refused, reset, or timed out.
    Unreachable {
        url: &'a str,
        why: &'a str,
    },
}

#[must_use]
pub fn classify_http(answer: HttpAnswer<'_>) -> Outcome {
    match answer {
        HttpAnswer::Answered { status: 200..=299, redirected_elsewhere: false, .. } => Outcome::Success,
        // A redirect that was not followed: to another host, or without a location.
        HttpAnswer::Answered { status: 200..=399, body, .. } => {
            Outcome::Warning(format!("Probe terminated redirects, Response body: {}", shown(body)))
        }
        HttpAnswer::Answered { status, .. } => {
            Outcome::Failure(format!("HTTP probe failed with statuscode: {status}"))
        }
        HttpAnswer::Unreachable { url, why } => Outcome::Failure(format!("Get {url:?}: {why}")),
    }
}

/// A TCP probe succeeds if the connection opens.
#[must_use]
pub fn classify_tcp(connected: Result<(), &str>) -> Outcome {
    match connected {
        Ok(()) => Outcome::Success,
        Err(why) => Outcome::Failure(why.to_owned()),
    }
}

/// The response of a gRPC health service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcAnswer<'a> {
    Serving,
    /// Another status, by its name: `NOT_SERVING`.
    NotServing(&'a str),
    /// The server has no health service.
    Unimplemented(&'a str),
    /// Connected, but no response before the timeout.
    TimedOut(Duration),
    NotConnected {
        address: &'a str,
        within: Duration,
    },
    Failed(&'a str),
}

#[must_use]
pub fn classify_grpc(answer: GrpcAnswer<'_>) -> Outcome {
    match answer {
        GrpcAnswer::Serving => Outcome::Success,
        GrpcAnswer::NotServing(status) => {
            Outcome::Failure(format!("service unhealthy (responded with {status:?})"))
        }
        GrpcAnswer::Unimplemented(why) => Outcome::Failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {why}"
        )),
        GrpcAnswer::TimedOut(after) => Outcome::Failure(format!(
            "timeout: health rpc did not complete within {}",
            GoDuration::from(after)
        )),
        // The Go kubelet retries until the timeout, whatever the first attempt returned.
        GrpcAnswer::NotConnected { address, within } => Outcome::Failure(format!(
            "timeout: failed to connect service {address:?} within {}: context deadline exceeded",
            GoDuration::from(within)
        )),
        GrpcAnswer::Failed(why) => Outcome::Failure(format!("error: health rpc probe failed: {why}")),
    }
}

/// Output as text, truncated to the maximum length.
fn shown(output: &[u8]) -> String {
    String::from_utf8_lossy(&output[..output.len().min(OUTPUT_BYTES_MAX)]).into_owned()
}
