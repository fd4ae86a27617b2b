//! How old a sample may be before it is taken again, and rates from two readings of a counter.

use std::time::Duration;

use model::MonoTime;

use super::cgroup::Detail;

/// Readers that come closer together than this share one sample of cgroups and procfs.
pub const SHARED_FOR: Duration = Duration::from_secs(5);
/// For a reader who wants only CPU and memory and wants them now (eviction, autoscaling).
pub const SHARED_FOR_THE_HASTY: Duration = Duration::from_secs(1);
/// Two readings closer together than this say more about the kernel's ticks than about the container…
const SHORTEST_WINDOW: Duration = Duration::from_millis(500);
/// …and a reading older than this says nothing about now.
const LONGEST_WINDOW: Duration = Duration::from_secs(600);

/// How often counters are read where nobody asks, so that each rate has a reading to be measured from.
pub const BASELINE_INTERVAL: Duration = Duration::from_secs(300);

/// A sample at hand: when it was taken, and how much is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtHand {
    pub taken_at: MonoTime,
    pub detail: Detail,
}

/// Whether it will do for somebody who wants that detail, no older than `most`.
#[must_use]
pub fn is_good_enough(at_hand: Option<AtHand>, wanted: Detail, most: Duration, now: MonoTime) -> bool {
    at_hand.is_some_and(|sample| sample.detail >= wanted && now.saturating_since(sample.taken_at) < most)
}

/// One reading of a CPU counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub at: MonoTime,
    /// Nanoseconds of CPU since the counter began.
    pub used: u64,
}

/// Nanoseconds of CPU for each second between the two readings. `None` where they are too close or too far apart, or
/// where the counter began again between them.
#[must_use]
pub fn compute_rate(before: Reading, after: Reading) -> Option<u64> {
    let window = after.at.saturating_since(before.at);
    if window < SHORTEST_WINDOW || window > LONGEST_WINDOW {
        return None;
    }
    let used = u128::from(after.used.checked_sub(before.used)?);
    u64::try_from(used * 1_000_000_000 / window.as_nanos()).ok()
}

/// Nanoseconds of CPU for each second since the counter began, for a cgroup that has no earlier reading. `None` where that
/// was too short or too long ago.
#[must_use]
pub fn compute_rate_since_start(used: u64, age: Duration) -> Option<u64> {
    compute_rate(Reading { at: MonoTime::ZERO, used: 0 }, Reading { at: MonoTime::ZERO + age, used })
}

/// Which reading the next rate is measured from: the new one, unless it is too close to the old one to be of use.
#[must_use]
pub fn next_baseline(before: Option<Reading>, after: Reading) -> Reading {
    match before {
        Some(before)
            if after.at.saturating_since(before.at) < SHORTEST_WINDOW && after.used >= before.used =>
        {
            before
        }
        Some(_) | None => after,
    }
}
