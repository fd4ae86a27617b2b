//! The maximum age of a sample, and the readings from which rates are computed.

use super::*;

#[test]
fn a_rate_needs_two_readings_that_are_neither_too_close_nor_too_far_apart() {
    let reading = |seconds, used| Reading { at: at(seconds), used };
    let before = reading(10.0, 1_000_000_000);
    assert_eq!(compute_rate(before, reading(12.0, 2_000_000_000)), Some(500_000_000));
    assert_eq!(compute_rate(before, reading(10.1, 2_000_000_000)), None);
    assert_eq!(compute_rate(before, reading(900.0, 2_000_000_000)), None);
    // The container was started again.
    assert_eq!(compute_rate(before, reading(12.0, 5)), None);
    let soon = reading(10.1, 1_000_000_001);
    assert_eq!(next_baseline(Some(before), soon), before);
    assert_eq!(next_baseline(Some(before), reading(10.1, 5)), reading(10.1, 5));
    assert_eq!(next_baseline(Some(before), reading(11.0, 2)), reading(11.0, 2));
    assert_eq!(next_baseline(None, soon), soon);
}

#[test]
fn a_cgroup_without_an_earlier_reading_has_its_rate_since_it_was_started() {
    let rate = |seconds| compute_rate_since_start(4_000_000_000, Duration::from_secs_f64(seconds));
    assert_eq!(rate(20.0), Some(200_000_000));
    assert_eq!((rate(0.1), rate(900.0)), (None, None));
}

#[test]
fn sample_is_shared_while_it_is_fresh_and_detailed_enough() {
    let max_age = Duration::from_secs(5);
    let enough = |detail, wanted, now| {
        is_fresh_enough(Some(LastSample { taken_at: at(10.0), detail }), wanted, max_age, at(now))
    };
    assert!(enough(Detail::Usage, Detail::Usage, 14.9));
    assert!(enough(Detail::Full, Detail::Usage, 14.9));
    assert!(!enough(Detail::Usage, Detail::Full, 14.9));
    assert!(!enough(Detail::Full, Detail::Full, 15.0));
    assert!(!is_fresh_enough(None, Detail::Usage, max_age, at(0.0)));
}
