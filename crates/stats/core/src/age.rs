//! How old a sample may be before it is taken again, and rates from two readings of a counter.

use std::time::Duration;

use model::MonoTime;

use super::cgroup::Detail;

/// Requests within this time share one sample of cgroups and procfs.
pub const SHARED_FOR: Duration = Duration::from_secs(5);
/// Maximum age for requests that need current CPU and memory values (eviction, autoscaling).
pub const SHARED_FOR_CURRENT_USAGE: Duration = Duration::from_secs(1);
/// The rate over a shorter window would show the kernel's ticks rather than the container's use.
const MIN_WINDOW: Duration = Duration::from_millis(500);
/// The rate over a longer window would not be current.
const MAX_WINDOW: Duration = Duration::from_secs(600);

/// How often counters are read without a request, so that each rate has a baseline.
pub const BASELINE_INTERVAL: Duration = Duration::from_secs(300);

/// The age and level of detail of the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSample {
    pub taken_at: MonoTime,
    pub detail: Detail,
}

/// Whether the last sample has the requested detail and is no older than `max_age`.
#[must_use]
pub fn is_fresh_enough(last: Option<LastSample>, wanted: Detail, max_age: Duration, now: MonoTime) -> bool {
    last.is_some_and(|sample| sample.detail >= wanted && now.saturating_since(sample.taken_at) < max_age)
}

/// One reading of a CPU counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub at: MonoTime,
    /// Nanoseconds of CPU since the counter began.
    pub used: u64,
}

/// Nanoseconds of CPU per second between the two readings. `None` if they are too close or too far apart, or if the counter
/// was reset between them.
#[must_use]
pub fn compute_rate(before: Reading, after: Reading) -> Option<u64> {
    let window = after.at.saturating_since(before.at);
    if window < MIN_WINDOW || window > MAX_WINDOW {
        return None;
    }
    let used = u128::from(after.used.checked_sub(before.used)?);
    u64::try_from(used * 1_000_000_000 / window.as_nanos()).ok()
}

/// Nanoseconds of CPU per second since the counter began, for a cgroup without an earlier reading. `None` if that was too
/// short or too long ago.
#[must_use]
pub fn compute_rate_since_start(used: u64, age: Duration) -> Option<u64> {
    compute_rate(Reading { at: MonoTime::ZERO, used: 0 }, Reading { at: MonoTime::ZERO + age, used })
}

/// Baseline of the next rate: the new reading, unless it is too close to the old one.
#[must_use]
pub fn next_baseline(before: Option<Reading>, after: Reading) -> Reading {
    match before {
        Some(before) if after.at.saturating_since(before.at) < MIN_WINDOW && after.used >= before.used => {
            before
        }
        Some(_) | None => after,
    }
}
