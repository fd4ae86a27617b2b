//! Points in time as data. Pure code is handed a [`Now`]; only `ports::Clock` makes one.

use std::ops::{Add, Sub};
use std::time::Duration;

use jiff::Timestamp;

/// A point on the monotonic clock: time since the process began. Deadlines and back-offs are measured with it.
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

    /// How long before `self` the `earlier` point lies; zero if it does not.
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

/// One instant on both clocks: `wall` for what the API shows, `mono` for how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub wall: Timestamp,
    pub mono: MonoTime,
}

impl Now {
    /// Wall-clock time elapsed since `earlier`, zero if the clock was set back behind it.
    #[must_use]
    pub fn wall_since(&self, earlier: Timestamp) -> Duration {
        Duration::try_from(self.wall.duration_since(earlier)).unwrap_or(Duration::ZERO)
    }

    /// The monotonic point at which the wall clock will show `at`, assuming nobody sets it meanwhile.
    #[must_use]
    pub fn mono_at(&self, at: Timestamp) -> MonoTime {
        match Duration::try_from(at.duration_since(self.wall)) {
            Ok(ahead) => self.mono + ahead,
            Err(_) => self.mono,
        }
    }
}
