//! Why a measurement failed, as a complete message.

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BenchError(pub(crate) String);

pub(crate) type Outcome<T> = Result<T, BenchError>;

/// Turns any error into ours, with the operation that failed.
pub(crate) fn failed<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> BenchError {
    move |error| BenchError(format!("{what}: {error}"))
}
