//! The arithmetic of delays, and who is charged for a step.

use super::*;
use crate::pods::fixture::{Case, case};

fn at(seconds: u64) -> MonoTime {
    MonoTime::from_start(Duration::from_secs(seconds))
}

fn secs(delay: Duration) -> u64 {
    delay.as_secs()
}

/// The wait of a container after the next step of that world.
fn wait_after_step(line: &str, name: &str) -> Option<u64> {
    let Case { pod, observed, memory, now, .. } = case(line);
    let mut backoff = memory.backoff;
    let step = case(line).plan().step;
    record_step(&mut backoff, &pod, &observed, &step, now);
    let container = model::containers::find_container(&pod, name).unwrap();
    backoff.pending_after(&restart_key(&pod, &container), now.mono, now.mono).map(|d| secs(d.delay))
}

#[test]
fn restarts_are_charged_and_first_starts_are_not() {
    assert_eq!(wait_after_step("main:a main:b | sandbox a=exited(1)", "a"), Some(10));
    assert_eq!(wait_after_step("main:a main:b | sandbox a=exited(1)", "b"), None);
    assert_eq!(wait_after_step("main:a | sandbox a=exited(1,30s) backoff:a=20s", "a"), Some(40));
    assert_eq!(
        wait_after_step("main:a | sandbox a=exited(1,5s) backoff:a=20s", "a"),
        Some(20),
        "still waits"
    );
    assert_eq!(wait_after_step("main:a | sandbox a=created", "a"), None);
}

#[test]
fn a_restart_of_all_is_charged_once_to_its_source() {
    let line =
        "Never main:a(Never,in42=RestartAll) main:b | sandbox a=exited(42,#1) a=exited(42) b=exited(1)";
    assert_eq!(wait_after_step(line, "a"), Some(10));
    assert_eq!(wait_after_step(line, "b"), None);
}

#[test]
fn another_image_or_other_resources_reset_the_back_off() {
    let key = |spec: &str| {
        let pod = crate::pods::fixture::pod(spec);
        let container = model::containers::find_container(&pod, "a").unwrap();
        restart_key(&pod, &container)
    };
    assert_eq!(key("main:a"), key("Never main:a main:b"));
    assert_ne!(key("main:a"), key("main:a(image=v2)"));
    assert_ne!(key("main:a"), key("main:a(cpu=1)"));
}

#[test]
fn the_message_names_delay_container_and_pod() {
    let pod = PodRef::new("ns", "p", "uid");
    let message = |seconds| crash_loop_message(Duration::from_secs(seconds), "a", &pod);
    assert_eq!(message(300), "back-off 5m0s restarting failed container=a pod=p_ns(uid)");
    assert_eq!(message(80), "back-off 1m20s restarting failed container=a pod=p_ns(uid)");
    assert_eq!(message(40), "back-off 40s restarting failed container=a pod=p_ns(uid)");
}

// Go kubelet: `backOffPeriod` with `workerBackOffPeriodJitterFactor`.
#[test]
fn failed_sync_is_retried_after_a_second_once_and_then_every_ten_to_fifteen_seconds() {
    let delay = |failures, jitter| step_retry_delay(failures, Duration::from_secs(jitter));
    let delays: Vec<u64> = (1..=5).map(|failures| secs(delay(failures, 0))).collect();
    assert_eq!(delays, [1, 10, 10, 10, 10]);
    assert_eq!(secs(delay(2, 5)), 15);
    assert_eq!(secs(delay(2, 60)), 15, "never more than half as long again");
    assert_eq!(secs(delay(u32::MAX, 0)), 10);
}

#[test]
fn back_off_event_repeats_with_each_resync_and_lets_the_failure_be_seen_first() {
    let resync = Duration::from_secs(60);
    let notice = |shown, now| compute_back_off_notice(shown, "back-off 20s", resync, at(now));
    assert_eq!(notice(None, 100), BackOffNotice::Report);
    let failed = Some((None, at(100)));
    assert_eq!(notice(failed, 100), BackOffNotice::ShowFailureUntil(at(101)));
    assert_eq!(notice(failed, 101), BackOffNotice::Report);
    let backs_off = |message| Some((Some(message), at(100)));
    assert_eq!(notice(backs_off("back-off 10s"), 100), BackOffNotice::Report, "another delay");
    assert_eq!(notice(backs_off("back-off 20s"), 159), BackOffNotice::Nothing);
    assert_eq!(notice(backs_off("back-off 20s"), 160), BackOffNotice::Report);
}
