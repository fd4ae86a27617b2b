//! The arithmetic of delays.

use super::*;

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
