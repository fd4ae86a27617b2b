//! Prometheus text, format 0.0.4: one family after the other, its lines together.

use std::fmt::Write as _;

use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The value of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Integer(u64),
    /// Written as seconds.
    Nanoseconds(u64),
    Float(f64),
}

/// The head of a family. The head of a family without samples is removed by [`without_empty_families`].
pub fn family(text: &mut String, name: &str, kind: Kind, help: &str) {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// The text without the heads of families without samples: Go exporters omit such families.
#[must_use]
pub fn without_empty_families(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut head = String::new();
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("# ") {
            Some(rest) => {
                if rest.starts_with("HELP ") {
                    head.clear();
                }
                head.push_str(line);
            }
            None => {
                kept.push_str(&std::mem::take(&mut head));
                kept.push_str(line);
            }
        }
    }
    kept
}

/// One line. `at` is set only if the value is not of the time of the request.
pub fn line(text: &mut String, name: &str, labels: &[(&str, &str)], value: Value, at: Option<Timestamp>) {
    text.push_str(name);
    for (index, (label, value)) in labels.iter().enumerate() {
        text.push(if index == 0 { '{' } else { ',' });
        text.push_str(label);
        text.push_str("=\"");
        escape(text, value);
        text.push('"');
    }
    text.push_str(if labels.is_empty() { " " } else { "} " });
    let _ = match value {
        Value::Integer(number) => write!(text, "{number}"),
        Value::Nanoseconds(number) => {
            seconds(text, number);
            Ok(())
        }
        Value::Float(number) => write!(text, "{}", go_float(number)),
    };
    let _ = match at {
        Some(at) => writeln!(text, " {}", at.as_millisecond()),
        None => writeln!(text),
    };
}

/// The shortest digits that identify the number; below 0.0001 and from a million on with an exponent of at least two
/// digits. The text of a bucket's bound is a label, so it must equal the text that Go exporters write
/// (`strconv.FormatFloat(x, 'g', -1, 64)`).
#[must_use]
pub fn go_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

fn escape(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

/// Exact: a float cannot hold a large counter of nanoseconds.
fn seconds(text: &mut String, nanoseconds: u64) {
    let (whole, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let _ = write!(text, "{whole}");
    if rest > 0 {
        let start = text.len();
        let _ = write!(text, ".{rest:09}");
        let end = text.trim_end_matches('0').len();
        text.truncate(end.max(start));
    }
}

/// The default bounds of histogram buckets, in seconds.
pub const DEFAULT_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The lines of one histogram. `counts` has one number for each limit and one for values above them all; each counts only
/// values of its own range.
pub fn histogram(
    text: &mut String,
    name: &str,
    labels: &[(&str, &str)],
    limits: &[f64],
    counts: &[u64],
    sum: Value,
) {
    let mut total = 0_u64;
    let bucket = format!("{name}_bucket");
    for (index, count) in counts.iter().enumerate() {
        total = total.saturating_add(*count);
        let limit = limits.get(index).map_or_else(|| "+Inf".to_owned(), |limit| go_float(*limit));
        let with_limit: Vec<(&str, &str)> = labels.iter().copied().chain([("le", &*limit)]).collect();
        line(text, &bucket, &with_limit, Value::Integer(total), None);
    }
    line(text, &format!("{name}_sum"), labels, sum, None);
    line(text, &format!("{name}_count"), labels, Value::Integer(total), None);
}
