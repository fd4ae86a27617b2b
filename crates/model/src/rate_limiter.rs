//! A token bucket, which limits how often something may be done.

use std::time::Duration;

use crate::MonoTime;

/// Allows a number of events a second on average, and a burst of them at once. It reads no clock and does not wait.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    per_second: f64,
    burst: f64,
    /// Below zero while events wait for tokens that were reserved for them.
    tokens: f64,
    /// When `tokens` was computed.
    at: MonoTime,
}

impl RateLimiter {
    /// A full bucket. A burst of 0 counts as 1, because it would allow nothing.
    #[must_use]
    pub fn new(per_second: f64, burst: u32, now: MonoTime) -> Self {
        let burst = f64::from(burst.max(1));
        Self { per_second, burst, tokens: burst, at: now }
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: MonoTime) -> bool {
        self.reserve(now, Duration::ZERO).is_ok()
    }

    /// Takes a token and returns how long to wait until it is due.
    ///
    /// # Errors
    /// The wait would be longer than `max_wait`. The error is that wait, and no token was taken.
    pub fn reserve(&mut self, now: MonoTime, max_wait: Duration) -> Result<Duration, Duration> {
        let elapsed = now.saturating_since(self.at).as_secs_f64();
        let tokens = (self.tokens + elapsed * self.per_second).min(self.burst) - 1.0;
        let missing_seconds = (-tokens).max(0.0) / self.per_second;
        let wait = Duration::try_from_secs_f64(missing_seconds).unwrap_or(Duration::MAX);
        if wait > max_wait {
            return Err(wait);
        }
        (self.tokens, self.at) = (tokens, now);
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn rate_limiter_allows_the_burst_and_then_the_rate() {
        let mut limiter = RateLimiter::new(2.0, 3, at(0));
        assert_eq!((0..5).filter(|_| limiter.try_take(at(0))).count(), 3);
        assert!(!limiter.try_take(at(400)));
        assert!(limiter.try_take(at(500)));
        assert!(!limiter.try_take(at(500)));
    }

    #[test]
    fn reservations_beyond_the_burst_wait_at_the_rate() {
        let mut limiter = RateLimiter::new(10.0, 3, at(0));
        let mut waits = |now: u64, count: usize| -> Vec<_> {
            (0..count).map(|_| limiter.reserve(at(now), MINUTE).unwrap().as_millis()).collect()
        };
        assert_eq!(waits(0, 6), [0, 0, 0, 100, 200, 300]);
        assert_eq!(waits(60_000, 4), [0, 0, 0, 100]);
    }

    #[test]
    fn reservation_that_would_wait_too_long_takes_no_token() {
        let mut limiter = RateLimiter::new(0.1, 1, at(0));
        assert_eq!(limiter.reserve(at(0), MINUTE), Ok(Duration::ZERO));
        assert_eq!(limiter.reserve(at(0), Duration::from_secs(9)), Err(Duration::from_secs(10)));
        assert_eq!(limiter.reserve(at(0), Duration::from_secs(10)), Ok(Duration::from_secs(10)));
    }

    #[test]
    fn burst_of_zero_allows_one() {
        assert!(RateLimiter::new(1.0, 0, at(0)).try_take(at(0)));
    }
}
