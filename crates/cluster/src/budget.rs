//! How many calls a second a handle may make: a bucket of tokens that fills up again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// On average so many calls a second, and after a pause so many at once.
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
    /// Below zero where calls have been promised tokens that are still to come.
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) fn new(budget: Budget) -> Self {
        let state = State { tokens: f64::from(budget.burst.max(1)), at: Instant::now() };
        Self { budget, state: Mutex::new(state) }
    }

    /// How long the caller has to wait for its token. Takes none if that is longer than `at_most`: then the error
    /// says how long it would be.
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
    async fn after_the_burst_calls_come_at_the_rate() {
        let bucket = Bucket::new(Budget { per_second: 10.0, burst: 3 });
        let waits: Vec<_> = (0..6).map(|_| bucket.take(LONG).unwrap().as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        tokio::time::advance(Duration::from_secs(60)).await;
        let waits: Vec<_> = (0..4).map(|_| bucket.take(LONG).unwrap().as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_takes_no_token() {
        let bucket = Bucket::new(Budget { per_second: 0.1, burst: 1 });
        assert_eq!(bucket.take(LONG), Ok(Duration::ZERO));
        assert_eq!(bucket.take(Duration::from_secs(9)), Err(Duration::from_secs(10)));
        assert_eq!(bucket.take(Duration::from_secs(10)), Ok(Duration::from_secs(10)));
    }
}
