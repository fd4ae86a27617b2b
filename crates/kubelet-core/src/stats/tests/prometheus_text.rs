//! Prometheus text.

use super::*;

#[test]
fn numbers_and_labels_are_written_so_that_they_can_be_read_back() {
    let mut text = String::new();
    exposition::family(&mut text, "a_seconds", Kind::Counter, "Help.");
    let labels = [("l", "a\"b\\c\nd")];
    for value in
        [Value::Nanoseconds(0), Value::Nanoseconds(1_500_000_000), Value::Nanoseconds(1), Value::Float(0.5)]
    {
        exposition::line(&mut text, "a_seconds", &labels, value, None);
    }
    exposition::line(
        &mut text,
        "a_seconds",
        &[],
        Value::Integer(u64::MAX),
        Timestamp::from_millisecond(12).ok(),
    );
    exposition::histogram(
        &mut text,
        "h",
        &[("x", "y")],
        &[0.5, 1.0],
        (&[1, 0, 2], Value::Nanoseconds(3_000_000_000)),
    );
    expect![[r##"
        # HELP a_seconds Help.
        # TYPE a_seconds counter
        a_seconds{l="a\"b\\c\nd"} 0
        a_seconds{l="a\"b\\c\nd"} 1.5
        a_seconds{l="a\"b\\c\nd"} 0.000000001
        a_seconds{l="a\"b\\c\nd"} 0.5
        a_seconds 18446744073709551615 12
        h_bucket{x="y",le="0.5"} 1
        h_bucket{x="y",le="1"} 1
        h_bucket{x="y",le="+Inf"} 3
        h_sum{x="y"} 3
        h_count{x="y"} 3
    "##]]
    .assert_eq(&text);
}
