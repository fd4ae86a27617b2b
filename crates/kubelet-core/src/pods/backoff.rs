//! Delays that double with every failure: crash loops (docs/behaviour/pod-lifecycle.md) and image pulls share the table.
//!
//! Owns the numbers and the keys. Never waits, and never decides what is retried.

use base_core::backoff::BackoffTable;
use std::collections::BTreeSet;
use std::time::Duration;

use base_core::fnv::fnv1a_128_hex;
use config::GoDuration;
use jiff::Timestamp;
use model::containers::{ContainerRef, ContainersByName};
use model::k8s::Pod;
use model::{ContainerObservation, ContainerState, MonoTime, Now, PodObservation, PodRef};

use super::plan::{PodStep, RemoveReason};

/// By how much the clock of a runtime, such as one in a virtual machine, may be ahead of the kubelet's.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

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

#[cfg(test)]
mod tests;
