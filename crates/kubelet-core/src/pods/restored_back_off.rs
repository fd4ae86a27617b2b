//! The crash-loop delays of containers that an earlier kubelet restarted: this one's table starts empty.
//!
//! Owns how a delay follows from what the last status and the runtime have. Without it, every crash-looping container of the node would
//! start again at once whenever the kubelet is started.

use std::time::Duration;

use jiff::Timestamp;
use model::containers::{ContainerRef, all_containers};
use model::k8s::{ContainerStatus, Pod, PodStatus};
use model::{ContainerKind, ContainerObservation, ContainerState, Now, PodObservation};

use super::backoff::{mono_of_past, restart_key};
use super::restart::has_changed;
use super::waiting::CRASH_LOOP;
use base_core::backoff::{BackoffTable, RESET_AFTER};

/// Enters the containers of the pod that were restarted a short time ago. `previous` is the last status that any kubelet reported.
pub fn restore_back_off(
    table: &mut BackoffTable,
    pod: &Pod,
    observed: &PodObservation,
    previous: Option<&PodStatus>,
    now: Now,
) {
    for container in all_containers(pod).filter(|container| container.kind != ContainerKind::Ephemeral) {
        let newest = observed.newest(container.name()).filter(|newest| !has_changed(&container, newest));
        if let Some((newest, started_at)) = newest.and_then(|newest| Some((newest, newest.started_at?)))
            && newest.record.restart_count > 0
            && !is_quiet(newest, started_at, now)
        {
            let status = previous.and_then(|previous| status_of(previous, newest));
            let delay = status
                .and_then(|status| announced(status, &container))
                .unwrap_or_else(|| table.delay_after(gap(newest, started_at, status, observed)));
            let delay = table.longest().min(delay);
            // An end in the future was recorded before the clock was set back.
            let over_at = newest.finished_at.map(|ended| now.mono_at(ended + delay).min(now.mono + delay));
            let key = restart_key(pod, &container);
            table.enter(key, delay, mono_of_past(started_at, now), over_at);
        }
    }
}

/// The instance has run for so long that its end is not one more of a row.
fn is_quiet(newest: &ContainerObservation, started_at: Timestamp, now: Now) -> bool {
    let until = match newest.state {
        ContainerState::Exited => newest.finished_at.unwrap_or(now.wall),
        ContainerState::Running | ContainerState::Created | ContainerState::Unknown => now.wall,
    };
    Duration::try_from(until.duration_since(started_at)).is_ok_and(|ran| ran > RESET_AFTER)
}

/// What the status says about this very instance.
fn status_of<'a>(previous: &'a PodStatus, instance: &ContainerObservation) -> Option<&'a ContainerStatus> {
    let mut all =
        [&previous.init_container_statuses, &previous.container_statuses].into_iter().flatten().flatten();
    all.find(|status| {
        let id = status.container_id.as_deref().and_then(|id| id.split_once("://"));
        id.is_some_and(|(_, id)| id == instance.id.as_str())
    })
}

/// The delay in the message of a container that waits, which both kubelets write alike.
fn announced(status: &ContainerStatus, container: &ContainerRef<'_>) -> Option<Duration> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let message = waiting.message.as_deref().filter(|_| waiting.reason.as_deref() == Some(CRASH_LOOP))?;
    let (delay, rest) = message.strip_prefix("back-off ")?.split_once(' ')?;
    let is_of = rest.starts_with(&format!("restarting failed container={} ", container.name()));
    let delay = delay.parse::<config::GoDuration>().ok().filter(|_| is_of)?;
    Some(delay.as_std())
}

/// How long the container waited before this instance started, if the end of the one before is known.
fn gap(
    newest: &ContainerObservation,
    started_at: Timestamp,
    status: Option<&ContainerStatus>,
    observed: &PodObservation,
) -> Option<Duration> {
    let before = observed.instances(&newest.name).find(|other| other.id != newest.id);
    let last =
        status.and_then(|status| status.last_state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    let ended = before.and_then(|before| before.finished_at).or_else(|| last.map(|time| time.0))?;
    Duration::try_from(started_at.duration_since(ended)).ok()
}

#[cfg(test)]
mod tests {
    use model::MonoTime;
    use model::k8s::{ContainerState as State, ContainerStateTerminated, ContainerStateWaiting, Time};

    use super::*;
    use crate::pods::fixture::{Case, case};

    /// A container whose newest instance started and ended so many seconds ago.
    fn crashed(started: u64, ended: u64) -> Case {
        let mut case = case(&format!("main:a | sandbox a=exited(1,{ended}s,#4)"));
        let started_at = case.now.wall - Duration::from_secs(started);
        case.observed.containers[0].started_at = Some(started_at);
        case
    }

    fn status(message: Option<&str>, last_ended: Option<Timestamp>) -> PodStatus {
        let waiting = message.map(|message| ContainerStateWaiting {
            message: Some(message.to_owned()),
            reason: Some("CrashLoopBackOff".to_owned()),
        });
        let terminated = last_ended.map(|at| ContainerStateTerminated {
            finished_at: Some(Time(at)),
            ..ContainerStateTerminated::default()
        });
        let status = ContainerStatus {
            name: "a".to_owned(),
            container_id: Some("containerd://a-4".to_owned()),
            state: Some(State { waiting, ..State::default() }),
            last_state: Some(State { terminated, ..State::default() }),
            ..ContainerStatus::default()
        };
        PodStatus { container_statuses: Some(vec![status]), ..PodStatus::default() }
    }

    /// The delay in force, and for how much longer the container waits.
    fn restored(mut case: Case, previous: Option<&PodStatus>) -> Option<(u64, u64)> {
        let Case { pod, observed, memory, now, .. } = &mut case;
        restore_back_off(&mut memory.backoff, pod, observed, previous, *now);
        let container = model::containers::find_container(pod, "a").unwrap();
        assert!(!has_changed(&container, &observed.containers[0]) || memory.backoff.is_empty());
        let ended = mono_of_past(observed.containers[0].finished_at.unwrap_or(now.wall), *now);
        let delay = memory.backoff.pending_after(&restart_key(pod, &container), ended, now.mono)?;
        Some((delay.delay.as_secs(), delay.until.saturating_since(now.mono).as_secs()))
    }

    const SAID: &str = "back-off 1m20s restarting failed container=a pod=p_ns(uid)";

    #[test]
    fn delay_that_the_last_status_announced_goes_on() {
        assert_eq!(restored(crashed(31, 30), Some(&status(Some(SAID), None))), Some((80, 50)));
        let wrong =
            ["back-off 1m20s restarting failed container=b pod=p_ns(uid)", "back-off x restarting", ""];
        for message in wrong {
            assert_eq!(
                restored(crashed(6, 5), Some(&status(Some(message), None))),
                Some((10, 5)),
                "{message}"
            );
        }
    }

    /// The clock was an hour behind while the kubelet started, as before the first synchronisation.
    #[test]
    fn restored_delay_does_not_wait_for_a_clock_that_was_set_back() {
        let Case { pod, observed, mut memory, now, .. } = crashed(31, 30);
        let behind = Now { wall: now.wall - Duration::from_secs(3600), mono: MonoTime::ZERO };
        let previous = status(Some(SAID), None);
        restore_back_off(&mut memory.backoff, &pod, &observed, Some(&previous), behind);
        let container = model::containers::find_container(&pod, "a").unwrap();
        let pending = |second: u64| {
            let mono = MonoTime::from_start(Duration::from_secs(second));
            let corrected = Now { wall: now.wall + Duration::from_secs(second), mono };
            let ended = mono_of_past(observed.containers[0].finished_at.unwrap(), corrected);
            memory.backoff.pending_after(&restart_key(&pod, &container), ended, mono)
        };
        assert_eq!(pending(1).map(|pending| pending.until.since_start().as_secs()), Some(80));
        assert_eq!(pending(80), None);
    }

    #[test]
    fn delay_is_twice_the_one_that_passed_before_the_last_start() {
        let after = |gap: u64| {
            let case = crashed(6, 5);
            let ended = case.now.wall - Duration::from_secs(6 + gap);
            restored(case, Some(&status(None, Some(ended)))).map(|(delay, _)| delay)
        };
        let delays = [0, 1, 10, 19, 20, 45, 80, 161, 300, 400].map(after);
        assert_eq!(delays.map(Option::unwrap), [10, 10, 20, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn instance_before_it_in_the_runtime_shows_the_gap_as_well() {
        let mut case = crashed(6, 5);
        let mut before = case.observed.containers[0].clone();
        before.id = "a-3".into();
        before.finished_at = Some(case.now.wall - Duration::from_secs(46));
        case.observed.containers.push(before);
        assert_eq!(restored(case, None), Some((80, 75)));
    }

    #[test]
    fn container_without_restarts_or_that_ran_for_long_has_no_delay() {
        let mut first = crashed(6, 5);
        first.observed.containers[0].record.restart_count = 0;
        assert_eq!(restored(first, None), None);
        assert_eq!(restored(crashed(610, 5), None), None);
        assert_eq!(restored(crashed(600, 5), None), Some((10, 5)));
    }

    #[test]
    fn changed_container_starts_without_delay() {
        let mut case = crashed(6, 5);
        case.observed.containers[0].record.hash = Some(0xdead);
        assert_eq!(restored(case, Some(&status(Some(SAID), None))), None);
    }

    #[test]
    fn delay_that_passed_before_the_kubelet_started_is_over() {
        let mut case = crashed(26, 25);
        case.now.mono = MonoTime::from_start(Duration::from_secs(1));
        assert_eq!(restored(case, None), None);
        let mut case = crashed(31, 30);
        case.now.mono = MonoTime::from_start(Duration::from_secs(1));
        assert_eq!(restored(case, Some(&status(Some(SAID), None))), Some((80, 50)));
    }

    #[test]
    fn running_container_that_was_restarted_waits_when_it_fails_again() {
        let mut case = crashed(6, 5);
        case.observed.containers[0].state = ContainerState::Running;
        case.observed.containers[0].finished_at = None;
        assert_eq!(restored(case, None), Some((10, 10)));
    }
}
