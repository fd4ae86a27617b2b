//! Points in time as data. Pure code gets a [`Now`] as an argument; only `ports::Clock` creates one.

use std::ops::{Add, Sub};
use std::time::Duration;

use jiff::Timestamp;

/// Maximum for durations from pods, clients and servers: 68 years, the largest 32-bit number of seconds. It stays within the
/// ranges of runtimes, timers and headers (Go counts nanoseconds in 64 bits, gRPC has eight digits).
pub const MAX_WAIT: Duration = Duration::from_secs(0x7fff_ffff);

/// The duration of seconds in an API object: zero if negative, and at most [`MAX_WAIT`].
#[must_use]
pub fn wait_of(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(MAX_WAIT)
}

/// Adds a duration; saturates at the latest point in time.
#[must_use]
pub fn wall_after(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Subtracts a duration; saturates at the earliest point in time.
#[must_use]
pub fn wall_before(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// A point on the monotonic clock: time since the process started. For deadlines and back-offs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoTime(Duration);

impl MonoTime {
    pub const ZERO: Self = Self(Duration::ZERO);

    #[must_use]
    pub const fn from_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for MonoTime {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

impl Sub<Duration> for MonoTime {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}

/// One instant on both clocks: `wall` for the API, `mono` for waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub wall: Timestamp,
    pub mono: MonoTime,
}

impl Now {
    /// Wall-clock time elapsed since `earlier`, zero if the clock was set back before it.
    #[must_use]
    pub fn wall_since(&self, earlier: Timestamp) -> Duration {
        Duration::try_from(self.wall.duration_since(earlier)).unwrap_or(Duration::ZERO)
    }

    /// The monotonic time at which the wall clock will be `at`, unless the clock is set meanwhile.
    #[must_use]
    pub fn mono_at(&self, at: Timestamp) -> MonoTime {
        match Duration::try_from(at.duration_since(self.wall)) {
            Ok(ahead) => self.mono + ahead,
            Err(_) => self.mono,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_arithmetic_saturates() {
        assert_eq!(wait_of(i64::MIN), Duration::ZERO);
        assert_eq!(wait_of(30), Duration::from_secs(30));
        assert_eq!(wait_of(1_000_000_000_000), MAX_WAIT);
        assert_eq!(wait_of(i64::MAX), MAX_WAIT);
        let (now, second) = (Timestamp::UNIX_EPOCH, Duration::from_secs(1));
        assert_eq!(wall_after(now, second).as_second(), 1);
        assert_eq!(wall_before(now, second).as_second(), -1);
        assert_eq!(wall_after(now, Duration::MAX), Timestamp::MAX);
        assert_eq!(wall_before(now, Duration::MAX), Timestamp::MIN);
        assert_eq!(MonoTime::from_start(second) + Duration::MAX, MonoTime::from_start(Duration::MAX));
    }
}
