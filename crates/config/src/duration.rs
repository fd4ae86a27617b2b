//! Durations as Go writes them (`1h2m3.5s`, `100ms`), the form of every duration in flags and configuration files.
//! Owns reading and writing that form; never decides what a duration is used for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A signed length of time in nanoseconds, at most about 292 years either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration {
    nanos: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: write numbers with units h, m, s, ms, us or ns, such as 1h30m or 100ms")]
pub struct DurationError {
    pub text: String,
}

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    pub const ZERO: Self = Self { nanos: 0 };

    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self { nanos: millis.saturating_mul(1_000_000) }
    }

    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self { nanos: secs.saturating_mul(1_000_000_000) }
    }

    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.nanos
    }

    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// As the standard library's type. Negative durations become zero.
    #[must_use]
    pub fn as_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanos).unwrap_or(0))
    }
}

/// Durations above 292 years become 292 years.
impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl From<GoDuration> for Duration {
    fn from(duration: GoDuration) -> Self {
        duration.as_std()
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        parse_nanos(text).map(Self::from_nanos).ok_or_else(|| DurationError { text: text.to_owned() })
    }
}

fn parse_nanos(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let (nanos, after) = parse_term(rest)?;
        total = total.checked_add(nanos)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// The first number with its unit, and the rest of `text`.
fn parse_term(text: &str) -> Option<(i128, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(number_end);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, after) = rest.split_at(unit_end);
    let scale = i128::from(UNITS.iter().find(|(name, _)| *name == unit)?.1);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits below a nanosecond are ignored: 1h has 13 digits of nanoseconds, so 15 digits of fraction are enough.
    let fraction = &fraction[..fraction.len().min(15)];
    let power = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let nanos = whole.checked_mul(scale)?.checked_add(fraction * scale / power)?;
    Some((nanos, after))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        let nanos = self.nanos.unsigned_abs();
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write_decimal(f, nanos, 1_000, "µs"),
            1_000_000..1_000_000_000 => write_decimal(f, nanos, 1_000_000, "ms"),
            _ => {
                let (minutes, below) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write_decimal(f, below, 1_000_000_000, "s")
            }
        }
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, name: &str) -> fmt::Result {
    write!(f, "{}", nanos / unit)?;
    let fraction = nanos % unit;
    if fraction > 0 {
        let width = unit.ilog10() as usize;
        let digits = format!("{fraction:0width$}");
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    f.write_str(name)
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = GoDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 1h30m or 100ms")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// For `logging.flushFrequency`, which may also be a plain number of nanoseconds.
pub(crate) fn text_or_nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a duration such as 5s, or a whole number of nanoseconds")]
    enum Either {
        Nanos(i64),
        Text(GoDuration),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::Nanos(nanos) => GoDuration::from_nanos(nanos),
        Either::Text(duration) => duration,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, nanos: i64, shown: &str) {
        let duration: GoDuration = text.parse().expect(text);
        assert_eq!(duration.nanos(), nanos, "{text}");
        assert_eq!(duration.to_string(), shown, "{text}");
    }

    #[test]
    fn durations_read_and_show_as_go_does() {
        check("0", 0, "0s");
        check("-0s", 0, "0s");
        check("100ms", 100_000_000, "100ms");
        check("1h2m3.5s", 3_723_500_000_000, "1h2m3.5s");
        check("90s", 90_000_000_000, "1m30s");
        check("2m", 120_000_000_000, "2m0s");
        check("4h", 14_400_000_000_000, "4h0m0s");
        check("1.5us", 1_500, "1.5µs");
        check("1µs", 1_000, "1µs");
        check(".5s", 500_000_000, "500ms");
        check("-1.25m", -75_000_000_000, "-1m15s");
        check("7ns", 7, "7ns");
    }

    #[test]
    fn invalid_duration_is_an_error_with_an_example() {
        for text in ["", "5", "-", "s", "1d", "1.2.3s", "1 s", "99999999999h", "1h-2m"] {
            let error = text.parse::<GoDuration>().expect_err(text);
            assert!(error.to_string().contains("such as 1h30m"), "{error}");
        }
    }

    #[test]
    fn negative_duration_is_zero_as_std_duration() {
        assert_eq!(GoDuration::from_secs(-3).as_std(), Duration::ZERO);
        assert_eq!(GoDuration::from_secs(3).as_std(), Duration::from_secs(3));
    }

    proptest! {
        #[test]
        fn displayed_duration_parses_to_the_same_value(nanos in any::<i64>()) {
            let duration = GoDuration::from_nanos(nanos);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn reading_never_panics(text in "\\PC{0,30}") {
            let _ = text.parse::<GoDuration>();
        }

        #[test]
        fn reading_things_that_look_like_durations_never_panics(text in "[-+]?([0-9]{0,40}[.]?[0-9]{0,40}(h|m|s|ms|µs|ns)?){0,4}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
