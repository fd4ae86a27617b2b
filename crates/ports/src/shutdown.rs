//! The end of the machine, as far as somebody announces it and lets it be held up: on Linux that is logind.

use std::time::Duration;

use async_trait::async_trait;

/// Why a question or a wish came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ShutdownError {
    /// What we were doing, as a verb phrase.
    pub what: &'static str,
    pub why: String,
}

pub type ShutdownResult<T> = Result<T, ShutdownError>;

/// The way to who announces the end.
#[async_trait]
pub trait Shutdown: Send + Sync + std::fmt::Debug {
    /// Connects. No announcement from then on is missed by whoever looks first and then waits.
    async fn watch(&self) -> ShutdownResult<Box<dyn ShutdownWatch>>;
}

/// A connection. After an error it is good for nothing more.
#[async_trait]
pub trait ShutdownWatch: Send + std::fmt::Debug {
    /// The machine is about to end, and waits for those who hold it up.
    async fn is_ending(&mut self) -> ShutdownResult<bool>;
    /// For so long the end can be held up.
    async fn longest_delay(&mut self) -> ShutdownResult<Duration>;
    /// Has the configuration read again; that it is done nobody tells.
    async fn reload(&mut self) -> ShutdownResult<()>;
    /// Holds up the end for as long as what comes back is kept. Fails once the machine is about to end.
    async fn hold_up(&mut self) -> ShutdownResult<Box<dyn ShutdownLock>>;
    /// Returns when [`Self::is_ending`] may have changed: a hint, not a fact. An error says that the connection, or who
    /// announces, is gone.
    ///
    /// Cancel safe: no hint is lost.
    async fn hint(&mut self) -> ShutdownResult<()>;
}

/// Holds up the end of the machine until it is dropped. The one who made it need not be there any more.
pub trait ShutdownLock: Send + Sync + std::fmt::Debug {}
