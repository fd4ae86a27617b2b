//! The only source of time. `System` in the binary; `Virtual` under paused tokio time in tests and in the simulation,
//! where advancing tokio's clock moves both the wall and the monotonic time.

use jiff::Timestamp;
use model::{MonoTime, Now};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub enum Clock {
    System { start: Instant },
    Virtual { start: Instant, epoch: Timestamp },
}

impl Clock {
    /// The machine's clocks; monotonic time counts from here.
    #[must_use]
    pub fn system() -> Self {
        Self::System { start: Instant::now() }
    }

    /// A wall clock that starts at `epoch` and follows tokio's (paused) time.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self::Virtual { start: Instant::now(), epoch }
    }

    #[must_use]
    pub fn now(&self) -> Now {
        match self {
            Self::System { start } => {
                Now { wall: Timestamp::now(), mono: MonoTime::from_start(start.elapsed()) }
            }
            Self::Virtual { start, epoch } => {
                let elapsed = start.elapsed();
                let wall = epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX);
                Now { wall, mono: MonoTime::from_start(elapsed) }
            }
        }
    }

    #[must_use]
    pub fn mono(&self) -> MonoTime {
        self.now().mono
    }

    /// Waits until the monotonic clock shows `at`; without end if it never will.
    ///
    /// Cancel safe: it only waits.
    pub async fn sleep_until(&self, at: MonoTime) {
        let (Self::System { start } | Self::Virtual { start, .. }) = self;
        match start.checked_add(at.since_start()) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the monotonic clock shows that time; without end if there is none.
    ///
    /// Cancel safe: it only waits.
    pub async fn sleep_until_some(&self, at: Option<MonoTime>) {
        match at {
            Some(at) => self.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}
