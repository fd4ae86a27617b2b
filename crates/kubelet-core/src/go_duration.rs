//! Durations in the notation that messages of the Kubernetes project use: `1m30s`, `1.5s`, `20ms`.

use std::fmt;
use std::time::Duration;

pub(crate) struct GoDuration(pub(crate) Duration);

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{nanos}ns"),
            1_000..1_000_000 => return write!(f, "{}µs", decimal(nanos, 1_000)),
            1_000_000..1_000_000_000 => return write!(f, "{}ms", decimal(nanos, 1_000_000)),
            1_000_000_000.. => {}
        }
        const MINUTE: u128 = 60 * 1_000_000_000;
        let (hours, minutes) = (nanos / (60 * MINUTE), nanos / MINUTE % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % MINUTE, 1_000_000_000))
    }
}

/// `value / unit` without trailing zeros; `unit` is a power of ten.
fn decimal(value: u128, unit: u128) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.to_string().len() - 1;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(nanos: u64, text: &str) {
        assert_eq!(GoDuration(Duration::from_nanos(nanos)).to_string(), text);
    }

    #[test]
    fn durations_read_as_users_know_them() {
        check(0, "0s");
        check(999, "999ns");
        check(1_500, "1.5µs");
        check(20_000_000, "20ms");
        check(1_000_000_000, "1s");
        check(1_500_000_000, "1.5s");
        check(60_000_000_000, "1m0s");
        check(185_000_000_001, "3m5.000000001s");
        check(3_600_000_000_000, "1h0m0s");
    }
}
