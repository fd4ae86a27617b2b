//! When the sync loop last went round, for the health check.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A loop that has not gone round for this long is stuck; `/healthz` says so.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(120);

/// When the loop last went round, for the health check.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat {
    nanos: Arc<AtomicU64>,
}

impl Heartbeat {
    pub(crate) fn beat(&self, since_start: Duration) {
        self.nanos.store(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    #[must_use]
    pub fn last(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}
