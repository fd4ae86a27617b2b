//! Node shutdown, as logind announces and delays it on Linux.

use std::time::Duration;

use async_trait::async_trait;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ShutdownError {
    /// What was being done, as a verb phrase.
    pub what: &'static str,
    pub why: String,
}

pub type ShutdownResult<T> = Result<T, ShutdownError>;

/// Connects to the service that announces shutdowns.
#[async_trait]
pub trait Shutdown: Send + Sync + std::fmt::Debug {
    /// Connects. A caller that checks [`ShutdownWatch::is_ending`] first and then waits misses no announcement.
    async fn watch(&self) -> ShutdownResult<Box<dyn ShutdownWatch>>;
}

/// A connection. It cannot be used any more after an error.
#[async_trait]
pub trait ShutdownWatch: Send + std::fmt::Debug {
    /// A shutdown was announced, and waits for inhibitors.
    async fn is_ending(&mut self) -> ShutdownResult<bool>;
    /// How long an inhibitor can delay the shutdown.
    async fn max_delay(&mut self) -> ShutdownResult<Duration>;
    /// Lets logind reload its configuration; there is no answer when that is done.
    async fn reload(&mut self) -> ShutdownResult<()>;
    /// Delays the shutdown until the returned inhibitor is dropped. Fails if a shutdown was announced already.
    async fn inhibit(&mut self) -> ShutdownResult<Box<dyn ShutdownLock>>;
    /// Returns when [`Self::is_ending`] may have changed: a hint, not a fact. An error means that the connection or
    /// logind is gone.
    ///
    /// Cancel safe: no hint is lost.
    async fn hint(&mut self) -> ShutdownResult<()>;
}

/// Delays the shutdown until it is dropped, also after its connection was closed.
pub trait ShutdownLock: Send + Sync + std::fmt::Debug {}
