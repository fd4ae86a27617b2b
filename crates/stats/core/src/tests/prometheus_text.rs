//! Prometheus text.

use super::*;

#[test]
fn bucket_bounds_are_written_as_go_writes_floats() {
    let cases = [
        (0.005, "0.005"),
        (0.0001, "0.0001"),
        (0.000_01, "1e-05"),
        (298.023_223_876_953_1, "298.0232238769531"),
        (1.0, "1"),
        (-1.0, "-1"),
        (262_144.0, "262144"),
        (999_999.0, "999999"),
        (1_000_000.0, "1e+06"),
        (1_048_576.0, "1.048576e+06"),
        (2_592_000.0, "2.592e+06"),
        (15_552_000.0, "1.5552e+07"),
        (1e21, "1e+21"),
        (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
        (f64::INFINITY, "+Inf"),
    ];
    for (number, text) in cases {
        assert_eq!(exposition::go_float(number), text);
    }
    let mut text = String::new();
    exposition::histogram(&mut text, "h", &[], &[15_552_000.0], &[1, 0], Value::Integer(7));
    assert!(text.starts_with("h_bucket{le=\"1.5552e+07\"} 1\nh_bucket{le=\"+Inf\"} 1\n"), "{text}");
}

#[test]
fn families_without_a_sample_are_left_out() {
    let mut text = String::new();
    exposition::family(&mut text, "empty", Kind::Counter, "A.");
    exposition::family(&mut text, "full", Kind::Gauge, "B.");
    exposition::line(&mut text, "full", &[], Value::Integer(1), None);
    exposition::line(&mut text, "full", &[("l", "# x")], Value::Integer(2), None);
    exposition::family(&mut text, "last", Kind::Histogram, "C.");
    let kept = "# HELP full B.\n# TYPE full gauge\nfull 1\nfull{l=\"# x\"} 2\n";
    assert_eq!(exposition::without_empty_families(&text), kept);
    assert_eq!(exposition::without_empty_families(kept), kept);
    assert_eq!(exposition::without_empty_families(""), "");
}

#[test]
fn prometheus_values_and_labels_are_escaped_and_exact() {
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
        &[1, 0, 2],
        Value::Nanoseconds(3_000_000_000),
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
