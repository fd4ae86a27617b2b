//! Why a measurement failed, as a complete message.

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BenchError(pub String);

pub type Outcome<T> = Result<T, BenchError>;

/// Turns any error into ours, with the operation that failed.
pub fn failed<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> BenchError {
    move |error| BenchError(format!("{what}: {error}"))
}
