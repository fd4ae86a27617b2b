//! The arithmetic of delays, and who is charged for a step.

use super::*;
use crate::pods::fixture::{Case, case};

fn at(seconds: u64) -> MonoTime {
    MonoTime::from_start(Duration::from_secs(seconds))
}

fn secs(delay: Duration) -> u64 {
    delay.as_secs()
}

#[test]
fn the_first_retry_is_free() {
    let table = BackoffTable::crash_loop(MAX_DELAY, Features::default());
    assert_eq!(table.pending_after("a", at(5), at(5)), None);
}

#[test]
fn delays_double_up_to_the_longest() {
    let mut table = BackoffTable::crash_loop(MAX_DELAY, Features::default());
    let delays: Vec<u64> = (0..7).map(|n| secs(table.record("a", at(n), at(n)))).collect();
    assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn a_short_maximum_also_shortens_the_first_delay() {
    let mut table = BackoffTable::crash_loop(Duration::from_secs(1), Features::default());
    assert_eq!((secs(table.record("a", at(0), at(0))), secs(table.record("a", at(1), at(1)))), (1, 1));
}

#[test]
fn gates_decide_between_the_configured_the_usual_and_the_reduced_delays() {
    let delays = |configured: u64, crash_loop_back_off_max, reduced_crash_loop_delays| {
        let features = Features { crash_loop_back_off_max, reduced_crash_loop_delays, ..Features::default() };
        let mut table = BackoffTable::crash_loop(Duration::from_secs(configured), features);
        (0..8).map(|n| secs(table.record("a", at(n), at(n)))).collect::<Vec<u64>>()
    };
    assert_eq!(delays(30, true, false), [10, 20, 30, 30, 30, 30, 30, 30]);
    assert_eq!(delays(30, false, false), [10, 20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(delays(30, true, true), [1, 2, 4, 8, 16, 30, 30, 30]);
    assert_eq!(delays(30, false, true), [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn the_wait_is_measured_from_the_failure() {
    let mut table = BackoffTable::crash_loop(MAX_DELAY, Features::default());
    table.record("a", at(100), at(100));
    let delay = Duration::from_secs(10);
    assert_eq!(table.pending_after("a", at(200), at(205)), Some(Delay { delay, until: at(210) }));
    assert_eq!(table.pending_after("a", at(200), at(210)), None);
    assert_eq!(table.pending_after("b", at(200), at(205)), None);
}

#[test]
fn ten_quiet_minutes_start_over() {
    let mut table = BackoffTable::crash_loop(MAX_DELAY, Features::default());
    table.record("a", at(0), at(0));
    table.record("a", at(10), at(10));
    assert_eq!(secs(table.record("a", at(610), at(610))), 40, "exactly 600 s is not yet long enough");
    assert_eq!(table.pending_after("a", at(1211), at(1212)), None);
    assert_eq!(secs(table.record("a", at(1211), at(1212))), 10);
}

#[test]
fn pulls_wait_since_they_were_noted() {
    let mut table = BackoffTable::image_pull();
    table.record("img", at(0), at(0));
    assert_eq!(table.pending("img", at(9)), Some(Delay { delay: INITIAL_DELAY, until: at(10) }));
    assert_eq!(table.pending("img", at(10)), None);
    table.forget("img");
    assert_eq!(secs(table.record("img", at(10), at(10))), 10);
}

#[test]
fn quiet_entries_are_collected() {
    let mut table = BackoffTable::image_pull();
    table.record("old", at(0), at(0));
    table.record("new", at(500), at(500));
    table.gc(at(601));
    assert_eq!(table.len(), 1);
    assert!(table.pending("new", at(501)).is_some());
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
