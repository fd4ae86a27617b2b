//! Delays that double with every failure: crash loops (docs/behaviour/pod-lifecycle.md) and image pulls share the table.
//!
//! Owns the numbers and the keys. Never waits, and never decides what is retried.

use std::collections::BTreeMap;
use std::time::Duration;

use config::Features;
use model::MonoTime;

/// The first delay.
pub const INITIAL_DELAY: Duration = Duration::from_secs(10);
/// The longest delay, unless configured shorter.
pub const MAX_DELAY: Duration = Duration::from_secs(300);
/// The same for crash loops, where they are to be shorter.
const REDUCED_INITIAL_DELAY: Duration = Duration::from_secs(1);
const REDUCED_MAX_DELAY: Duration = Duration::from_secs(60);
/// An entry that was quiet for longer than this starts again with the first delay. Fixed, whatever the longest delay.
pub const RESET_AFTER: Duration = Duration::from_secs(600);

/// Delays by key. An unknown key has none: the first retry is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackoffTable {
    initial: Duration,
    max: Duration,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    delay: Duration,
    updated_at: MonoTime,
    /// When the wait is over after an end before the kubelet started, which the monotonic clock does not have.
    ended_before_start: Option<MonoTime>,
}

/// What a key has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The whole delay, as messages show it (`back-off 40s …`).
    pub delay: Duration,
    pub until: MonoTime,
}

impl BackoffTable {
    /// A table from `initial` doubling up to `max`; a shorter `max` also shortens the first delay.
    #[must_use]
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self { initial: initial.min(max), max, entries: BTreeMap::new() }
    }

    /// For restarting containers; `configured` is `crashLoopBackOff.maxContainerRestartPeriod`.
    #[must_use]
    pub fn crash_loop(configured: Duration, features: Features) -> Self {
        let (initial, max) = if features.reduced_crash_loop_delays {
            (REDUCED_INITIAL_DELAY, REDUCED_MAX_DELAY)
        } else {
            (INITIAL_DELAY, MAX_DELAY)
        };
        Self::new(initial, if features.crash_loop_back_off_max { configured } else { max })
    }

    /// For pulling images.
    #[must_use]
    pub fn image_pull() -> Self {
        Self::new(INITIAL_DELAY, MAX_DELAY)
    }

    /// The wait after a failure at `failed_at`; `None` when the key is new, has been quiet for long, or the wait is
    /// over.
    #[must_use]
    pub fn pending_after(&self, key: &str, failed_at: MonoTime, now: MonoTime) -> Option<Delay> {
        let entry = self.entries.get(key)?;
        let restored = entry.ended_before_start.filter(|_| failed_at == MonoTime::ZERO);
        let until = restored.unwrap_or(failed_at + entry.delay);
        (!entry.has_expired(failed_at) && now < until).then_some(Delay { delay: entry.delay, until })
    }

    /// The wait since the key was last noted, for failures without a usable instant of their own (image pulls, `was_set_back`).
    #[must_use]
    pub fn pending(&self, key: &str, now: MonoTime) -> Option<Delay> {
        let entry = self.entries.get(key)?;
        let until = entry.updated_at + entry.delay;
        (now < until).then_some(Delay { delay: entry.delay, until })
    }

    /// Notes one more retry after a failure at `failed_at`: the next wait is twice as long. Returns that wait.
    pub fn record(&mut self, key: &str, failed_at: MonoTime, now: MonoTime) -> Duration {
        let delay = match self.entries.get(key) {
            Some(entry) if !entry.has_expired(failed_at) => entry.delay.saturating_mul(2).min(self.max),
            _ => self.initial,
        };
        self.entries.insert(key.to_owned(), Entry { delay, updated_at: now, ended_before_start: None });
        delay
    }

    /// The longest delay.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        self.max
    }

    /// Enters a delay of an earlier kubelet, which began before this process. `over_at`: when the wait is over that began then.
    pub fn enter(&mut self, key: String, delay: Duration, updated_at: MonoTime, over_at: Option<MonoTime>) {
        self.entries.insert(key, Entry { delay, updated_at, ended_before_start: over_at });
    }

    /// The delay that follows on a restart that had waited for `gap`: twice the longest delay that fits in it.
    #[must_use]
    pub fn delay_after(&self, gap: Option<Duration>) -> Duration {
        let Some(gap) = gap.filter(|gap| *gap >= self.initial) else { return self.initial };
        let mut waited = self.initial;
        while waited.saturating_mul(2) <= gap && waited < self.max {
            waited = waited.saturating_mul(2);
        }
        waited.saturating_mul(2).min(self.max)
    }

    /// Forgets a key, so that its next retry is free again.
    pub fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// Drops entries that no longer matter. To be called about once a minute.
    pub fn gc(&mut self, now: MonoTime) {
        self.entries.retain(|_, entry| !entry.has_expired(now));
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Entry {
    fn has_expired(&self, at: MonoTime) -> bool {
        at.saturating_since(self.updated_at) > RESET_AFTER
    }
}

/// How long a task of one pod that panicked so many times in a row waits before it is started again.
#[must_use]
pub fn task_restart_delay(panics: u32) -> Duration {
    const MAX_DELAY: Duration = Duration::from_secs(300);
    let doublings = panics.saturating_sub(1).min(16);
    Duration::from_secs(1).saturating_mul(1 << doublings).min(MAX_DELAY)
}

#[cfg(test)]
mod tests;
