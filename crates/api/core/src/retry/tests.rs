use super::*;

#[test]
fn retry_waits_for_the_longer_of_back_off_and_retry_after_and_up_to_twice_as_long() {
    let delay = |own: u64, requested: Option<u64>, random: f64| {
        compute_retry_delay(Duration::from_millis(own), requested.map(Duration::from_secs), random)
            .as_millis()
    };
    assert_eq!(delay(800, None, 0.0), 800);
    assert_eq!(delay(800, None, 1.0), 1600);
    assert_eq!(delay(800, Some(5), 0.0), 5000);
    assert_eq!(delay(800, Some(5), 0.5), 7500);
    assert_eq!(delay(30_000, Some(5), 0.0), 30_000);
    assert_eq!(delay(800, Some(0), 0.0), 800);
    // A day is not honoured.
    assert_eq!(delay(800, Some(86_400), 0.0), 180_000);
    assert_eq!(delay(800, Some(u64::MAX), 1.0), 360_000);
}
