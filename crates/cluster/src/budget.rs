//! The rate limit of a handle: a token bucket.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Calls a second on average (QPS), and at once after a pause (burst).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    pub per_second: f64,
    pub burst: u32,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    budget: Budget,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Negative if waiting calls have reserved future tokens.
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) fn new(budget: Budget) -> Self {
        let state = State { tokens: f64::from(budget.burst.max(1)), at: Instant::now() };
        Self { budget, state: Mutex::new(state) }
    }

    /// Reserves a token, and returns how long the caller must wait for it. Reserves none if that is longer than `at_most`;
    /// then the error has that time.
    pub(crate) fn take(&self, at_most: Duration) -> Result<Duration, Duration> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let filled = now.duration_since(state.at).as_secs_f64() * self.budget.per_second;
        let tokens = (state.tokens + filled).min(f64::from(self.budget.burst.max(1))) - 1.0;
        let missing = (-tokens).max(0.0) / self.budget.per_second;
        let wait = Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX);
        if wait > at_most {
            return Err(wait);
        }
        *state = State { tokens, at: now };
        drop(state);
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn calls_after_the_burst_are_limited_to_the_rate() {
        let bucket = Bucket::new(Budget { per_second: 10.0, burst: 3 });
        let waits: Vec<_> = (0..6).map(|_| bucket.take(LONG).unwrap().as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        tokio::time::advance(Duration::from_secs(60)).await;
        let waits: Vec<_> = (0..4).map(|_| bucket.take(LONG).unwrap().as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_would_wait_too_long_reserves_no_token() {
        let bucket = Bucket::new(Budget { per_second: 0.1, burst: 1 });
        assert_eq!(bucket.take(LONG), Ok(Duration::ZERO));
        assert_eq!(bucket.take(Duration::from_secs(9)), Err(Duration::from_secs(10)));
        assert_eq!(bucket.take(Duration::from_secs(10)), Ok(Duration::from_secs(10)));
    }
}
