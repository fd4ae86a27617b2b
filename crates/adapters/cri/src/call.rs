//! One call: its name, its deadline, and the conversion of gRPC errors.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use model::time::MAX_WAIT;
use ports::runtime::{CallObserver, RuntimeError, RuntimeResult};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;

/// A gRPC deadline is encoded with at most eight digits, so that the runtime's may be this much shorter.
const ROUNDING: Duration = Duration::from_millis(10);

/// The name in the CRI and the deadline of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    name: &'static str,
    deadline: Option<Duration>,
    observer: Option<&'a dyn CallObserver>,
}

impl<'a> Call<'a> {
    pub(crate) const fn new(
        name: &'static str,
        deadline: Option<Duration>,
        observer: Option<&'a dyn CallObserver>,
    ) -> Self {
        Self { name, deadline, observer }
    }

    /// Wraps a message with the deadline.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(deadline) = self.deadline {
            // tonic panics for durations that its header cannot encode.
            request.set_timeout(deadline.min(MAX_WAIT));
        }
        request
    }

    /// Waits for the response until the deadline. The call itself is boxed: its future has more than a kilobyte, and each future around
    /// it would have space for it twice, for as long as the runtime works.
    pub(crate) fn answer<T>(
        self,
        answer: impl Future<Output = Result<Response<T>, Status>> + Send,
    ) -> impl Future<Output = RuntimeResult<T>> {
        let answer = Box::pin(answer);
        let span = tracing::info_span!(
            target: "trace", "CRI", otel.name = self.name, otel.kind = "client", rpc.system = "grpc",
            rpc.method = self.name, otel.error = tracing::field::Empty
        );
        let answered = async move {
            let started = Instant::now();
            let result = match self.deadline {
                None => Some(answer.await),
                Some(deadline) => tokio::time::timeout(deadline, answer).await.ok(),
            };
            let took = started.elapsed();
            if let Some(observer) = self.observer {
                observer.called(self.name, took, matches!(result, Some(Ok(_))));
            }
            match (result, self.deadline) {
                (Some(result), _) => {
                    result.map(Response::into_inner).map_err(|status| recorded(self.error(&status, took)))
                }
                (None, deadline) => Err(recorded(self.timed_out(deadline.unwrap_or(took)))),
            }
        };
        answered.instrument(span)
    }

    /// Waits for a stop or removal. A missing object is success: the CRI requires that of the runtime, but containerd 1.6
    /// returns `NotFound`.
    pub(crate) fn ok_if_gone<T>(
        self,
        answer: impl Future<Output = Result<Response<T>, Status>> + Send,
    ) -> impl Future<Output = RuntimeResult<()>> {
        let answered = self.answer(answer);
        async move {
            match answered.await {
                Ok(_) | Err(RuntimeError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }
    }

    /// The runtime returned a response that the CRI does not allow.
    pub(crate) fn malformed(self, what: impl Into<String>) -> RuntimeError {
        RuntimeError::Failed { call: self.name, message: what.into() }
    }

    pub(crate) const fn timed_out(self, deadline: Duration) -> RuntimeError {
        RuntimeError::TimedOut { call: self.name, deadline }
    }

    pub(crate) const fn unimplemented(self, message: String) -> RuntimeError {
        RuntimeError::Unimplemented { call: self.name, message }
    }

    /// Converts a status. `waited` distinguishes a cancellation at the deadline from any other.
    pub(crate) fn error(self, status: &Status, waited: Duration) -> RuntimeError {
        let call = self.name;
        let message = status.message().to_owned();
        let deadline = self.deadline.unwrap_or(waited);
        let by_a_timer = status.code() == Code::Cancelled
            && self.deadline.is_some_and(|deadline| waited.saturating_add(ROUNDING) >= deadline);
        if status.code() == Code::DeadlineExceeded || by_a_timer {
            return RuntimeError::TimedOut { call, deadline };
        }
        // Only a status from the client side has a source: the connection failed or broke.
        if let Some(source) = status.source() {
            return RuntimeError::Unavailable { call, message: root_cause(source) };
        }
        match status.code() {
            Code::NotFound => RuntimeError::NotFound { call, message },
            Code::AlreadyExists => RuntimeError::AlreadyExists { call, message },
            Code::Unavailable => RuntimeError::Unavailable { call, message },
            Code::Unimplemented => RuntimeError::Unimplemented { call, message },
            // A reserved name has no separate code: containerd 1 and CRI-O return `Unknown`, containerd 2 returns
            // `FailedPrecondition`.
            Code::Unknown | Code::Internal | Code::FailedPrecondition if is_reserved_name(&message) => {
                RuntimeError::AlreadyExists { call, message }
            }
            // CreateContainer and ContainerStats of CRI-O.
            Code::Unknown if message.ends_with("ID does not exist") => {
                RuntimeError::NotFound { call, message }
            }
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::InvalidArgument
            | Code::DeadlineExceeded
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Internal
            | Code::DataLoss
            | Code::Unauthenticated => RuntimeError::Failed { call, message },
        }
    }
}

/// Records the error in the span of the call.
fn recorded(error: RuntimeError) -> RuntimeError {
    let span = tracing::Span::current();
    if !span.is_disabled() {
        span.record("otel.error", error.to_string());
    }
    error
}

fn is_reserved_name(message: &str) -> bool {
    message.contains("is reserved for") || message.contains("name is reserved")
}

/// The last error of the chain, which has the socket and the reason.
fn root_cause(mut error: &(dyn Error + 'static)) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(code: Code, message: &str) -> RuntimeError {
        let call = Call::new("RunPodSandbox", Some(Duration::from_secs(4)), None);
        call.error(&Status::new(code, message), Duration::from_secs(1))
    }

    #[test]
    fn status_codes_are_converted_to_runtime_errors() {
        assert!(matches!(meaning(Code::NotFound, "gone"), RuntimeError::NotFound { .. }));
        assert!(matches!(meaning(Code::AlreadyExists, "there"), RuntimeError::AlreadyExists { .. }));
        assert!(matches!(meaning(Code::Unavailable, "busy"), RuntimeError::Unavailable { .. }));
        assert!(matches!(meaning(Code::Unimplemented, "no"), RuntimeError::Unimplemented { .. }));
        assert!(matches!(meaning(Code::Internal, "boom"), RuntimeError::Failed { .. }));
    }

    #[test]
    fn deadline_on_either_side_is_a_timeout() {
        let timeout = Duration::from_secs(4);
        let by_runtime = meaning(Code::DeadlineExceeded, "context deadline exceeded");
        assert!(matches!(by_runtime, RuntimeError::TimedOut { deadline, .. } if deadline == timeout));

        let call = Call::new("Status", Some(timeout), None);
        let ours = call.error(&Status::cancelled("Timeout expired"), timeout);
        assert!(matches!(ours, RuntimeError::TimedOut { .. }));
        let theirs = call.error(&Status::cancelled("shutting down"), Duration::ZERO);
        assert!(matches!(theirs, RuntimeError::Failed { .. }));
    }

    #[test]
    fn reserved_name_means_that_an_earlier_create_succeeded() {
        let containerd = "failed to reserve sandbox name \"web_default_1_0\": \
                          name \"web_default_1_0\" is reserved for \"4f2a\"";
        assert!(matches!(meaning(Code::Unknown, containerd), RuntimeError::AlreadyExists { .. }));
        assert!(matches!(meaning(Code::FailedPrecondition, containerd), RuntimeError::AlreadyExists { .. }));
        assert!(matches!(meaning(Code::FailedPrecondition, "stopped"), RuntimeError::Failed { .. }));
        let crio = "error reserving ctr name k8s_web for id 12: name is reserved";
        assert!(matches!(meaning(Code::Unknown, crio), RuntimeError::AlreadyExists { .. }));
    }

    #[test]
    fn missing_object_has_no_code_in_some_answers_of_crio() {
        let missing = "specified sandbox not found: 12: PodSandbox with ID starting with 12 not found: ID does not exist";
        assert!(meaning(Code::Unknown, missing).is_not_found());
        assert!(!meaning(Code::Unknown, "ID does not exist: disk error").is_not_found());
        assert!(!meaning(Code::Internal, missing).is_not_found());
    }
}
