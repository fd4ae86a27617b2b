//! How many calls a second a handle may make.

use std::time::Duration;

use model::{MonoTime, RateLimiter};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The average number of calls a second, and the number of calls that may be made at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    pub per_second: f64,
    pub burst: u32,
}

/// The rate limiter that all calls of one handle share.
#[derive(Debug)]
pub(crate) struct CallLimiter {
    began: Instant,
    limiter: Mutex<RateLimiter>,
}

impl CallLimiter {
    pub(crate) fn new(budget: Budget) -> Self {
        let limiter = RateLimiter::new(budget.per_second, budget.burst, MonoTime::ZERO);
        Self { began: Instant::now(), limiter: Mutex::new(limiter) }
    }

    /// How long the caller has to wait before its call. The error is that wait where it is longer than `max_wait`.
    pub(crate) fn reserve(&self, max_wait: Duration) -> Result<Duration, Duration> {
        self.limiter.lock().reserve(MonoTime::from_start(self.began.elapsed()), max_wait)
    }
}
