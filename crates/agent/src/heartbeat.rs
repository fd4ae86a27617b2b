//! Time of the last iteration of the sync loop, for the health check.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A loop without an iteration for this long is stuck, and `/healthz` fails.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(120);

/// Time of the last iteration, since the start of the process.
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
