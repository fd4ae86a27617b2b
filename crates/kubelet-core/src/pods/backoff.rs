//! Delays that double with every failure: crash loops (docs/behaviour/pod-lifecycle.md) and image pulls share the table.
//!
//! Owns the numbers and the keys. Never waits, and never decides what is retried.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base_core::fnv::fnv1a_128_hex;
use config::{Features, GoDuration};
use jiff::Timestamp;
use model::containers::{ContainerRef, ContainersByName};
use model::k8s::Pod;
use model::{ContainerObservation, ContainerState, MonoTime, Now, PodObservation, PodRef};

use super::plan::{PodStep, RemoveReason};

/// The first delay.
pub const INITIAL_DELAY: Duration = Duration::from_secs(10);
/// The longest delay, unless configured shorter.
pub const MAX_DELAY: Duration = Duration::from_secs(300);
/// The same for crash loops, where they are to be shorter.
const REDUCED_INITIAL_DELAY: Duration = Duration::from_secs(1);
const REDUCED_MAX_DELAY: Duration = Duration::from_secs(60);
/// An entry that was quiet for longer than this starts again with the first delay. Fixed, whatever the longest delay.
pub const RESET_AFTER: Duration = Duration::from_secs(600);

/// By how much the clock of a runtime, such as one in a virtual machine, may be ahead of the kubelet's.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

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

    /// The wait since the key was last noted, for failures without a usable instant of their own (image pulls, [`was_set_back`]).
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
    pub(super) fn enter(
        &mut self,
        key: String,
        delay: Duration,
        updated_at: MonoTime,
        over_at: Option<MonoTime>,
    ) {
        self.entries.insert(key, Entry { delay, updated_at, ended_before_start: over_at });
    }

    /// The delay that follows on a restart that had waited for `gap`: twice the longest delay that fits in it.
    #[must_use]
    pub(super) fn delay_after(&self, gap: Option<Duration>) -> Duration {
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

/// How long a failed sync waits before it is tried again, as in the Go kubelet; up to half as long again.
pub const SYNC_RETRY: Duration = Duration::from_secs(10);
/// How soon the first failure is followed by another try, and how long its reason is shown at least. The Go kubelet gets
/// there by the event of its own sandbox or container, which causes another sync.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// How long a step that has failed this often in a row (at least once) waits before it is tried again, if nothing changes
/// before. `jitter` spreads the retries of pods that fail together.
#[must_use]
pub fn step_retry_delay(failures: u32, jitter: Duration) -> Duration {
    if failures <= 1 { FIRST_RETRY } else { SYNC_RETRY + jitter.min(SYNC_RETRY / 2) }
}

/// What becomes of the waiting state of a container that a back-off holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackOffNotice {
    /// Its last start failed a moment ago: that stays shown until then.
    ShowFailureUntil(MonoTime),
    /// The event `BackOff` is due, and the state says that it backs off.
    Report,
    /// All of it was reported.
    Nothing,
}

/// Decides that. `shown` is the message of the present waiting state, if it is a back-off, and when it was set or its event
/// recorded; the event repeats after `repeat_after`, when the Go kubelet syncs the pod again.
#[must_use]
pub fn compute_back_off_notice(
    shown: Option<(Option<&str>, MonoTime)>,
    message: &str,
    repeat_after: Duration,
    now: MonoTime,
) -> BackOffNotice {
    match shown {
        Some((None, failed_at)) if now < failed_at + FIRST_RETRY => {
            BackOffNotice::ShowFailureUntil(failed_at + FIRST_RETRY)
        }
        Some((Some(known), at)) if known == message && now < at + repeat_after => BackOffNotice::Nothing,
        Some(_) | None => BackOffNotice::Report,
    }
}

/// The key of a container in a crash-loop table: another image or other resources start without delay.
#[must_use]
pub fn restart_key(pod: &Pod, container: &ContainerRef<'_>) -> String {
    let resources = container.resources().and_then(|r| serde_json::to_string(r).ok()).unwrap_or_default();
    let spec = fnv1a_128_hex(format!("{}\n{resources}", container.image()).into_bytes());
    format!("{}/{}/{spec}", pod.metadata.uid.as_deref().unwrap_or_default(), container.name())
}

/// The instance that a restart's wait is measured from: the newest exited one, with the instant of its end.
#[must_use]
pub fn newest_exited<'a>(
    observed: &'a PodObservation,
    name: &'a str,
) -> Option<(&'a ContainerObservation, Timestamp)> {
    observed
        .instances(name)
        .find(|c| c.state == ContainerState::Exited)
        .and_then(|c| c.finished_at.map(|finished_at| (c, finished_at)))
}

/// A wall-clock instant in the past on the monotonic clock.
#[must_use]
pub fn mono_of_past(at: Timestamp, now: Now) -> MonoTime {
    now.mono - now.wall_since(at)
}

/// Whether an end that was recorded is in the future: the clock was set back since then. A wait since that end would last until the
/// clock has caught up.
#[must_use]
pub fn was_set_back(ended: Timestamp, now: Now) -> bool {
    Duration::try_from(ended.duration_since(now.wall)).is_ok_and(|ahead| ahead > CLOCK_TOLERANCE)
}

/// Notes every restart that carrying out `step` means. Call it once, before the step is carried out, with the same
/// observation the step was decided from. First starts are free and are not noted.
pub fn record_step(table: &mut BackoffTable, pod: &Pod, observed: &PodObservation, step: &PodStep, now: Now) {
    let PodStep::Converge { remove, start, .. } = step else { return };
    // The start that follows a restart of all containers finds no instance any more, so its source pays here.
    let sources = remove.iter().filter(|r| r.why == RemoveReason::RestartAllSource).map(|r| &*r.name);
    let names: BTreeSet<&str> = start.iter().map(|s| &*s.name).chain(sources).collect();
    let containers = ContainersByName::of(pod);
    for name in names {
        if let Some(container) = containers.get(name) {
            record_name(table, pod, &container, observed, now);
        }
    }
}

/// `state.waiting.message` of a container that waits for its next restart.
#[must_use]
pub fn crash_loop_message(delay: Duration, container: &str, pod: &PodRef) -> String {
    let delay = GoDuration::from(delay);
    let PodRef { namespace, name, uid } = pod;
    format!("back-off {delay} restarting failed container={container} pod={name}_{namespace}({uid})")
}

fn record_name(
    table: &mut BackoffTable,
    pod: &Pod,
    container: &ContainerRef<'_>,
    observed: &PodObservation,
    now: Now,
) {
    let Some((_, finished_at)) = newest_exited(observed, container.name()) else { return };
    table.record(&restart_key(pod, container), mono_of_past(finished_at, now), now.mono);
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
