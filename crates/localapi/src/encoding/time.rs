//! Times in the form in which the real server writes them: UTC in whole seconds, of any year that an offset leads to.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// `9999-12-31T23:59:59-20:00` is written as `10000-01-01T19:59:59Z`, and `0000-01-01T00:00:00+20:00` as `-0001-12-31T04:00:00Z`:
/// Go writes a year with as many digits as it has. `None` for a text that is no time.
pub(super) fn canonical(text: &str) -> Option<String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(written(TimeZone::UTC.to_datetime(at), 0));
    }
    let (local, offset) = split_offset(text)?;
    let local: DateTime = local.parse().ok()?;
    // The calendar repeats every four hundred years, so that the sum is in the range of the type.
    let years = if local.year() > 0 { -400 } else { 400 };
    let utc = local.checked_add(Span::new().years(years)).ok()?.checked_sub(offset).ok()?;
    Some(written(utc, -years))
}

/// This time, with a year that is `later`.
fn written(utc: DateTime, later: i16) -> String {
    let year = i32::from(utc.year()) + i32::from(later);
    let sign = if year < 0 { "-" } else { "" };
    format!("{sign}{:04}{}", year.unsigned_abs(), utc.strftime("-%m-%dT%H:%M:%SZ"))
}

/// The local time, and its offset from UTC: `Z`, or up to a day as `+20:00`.
fn split_offset(text: &str) -> Option<(&str, Span)> {
    if let Some(local) = text.strip_suffix('Z') {
        return Some((local, Span::new()));
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (sign, offset) = offset.split_at_checked(1)?;
    let sign = match sign {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = offset.split_once(':')?;
    let number = |digits: &str| digits.parse::<i64>().ok().filter(|_| digits.len() == 2);
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 24 && minutes < 60).then(|| (local, Span::new().hours(sign * hours).minutes(sign * minutes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_the_year_that_they_have() {
        for (text, expected) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00.987+02:00", "2025-12-31T22:00:00Z"),
            ("2024-02-28T23:00:00-20:00", "2024-02-29T19:00:00Z"),
            ("9999-12-31T23:59:59-20:00", "10000-01-01T19:59:59Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59.5-24:59", "10000-01-02T00:58:59Z"),
            ("0000-01-01T00:00:00+20:00", "-0001-12-31T04:00:00Z"),
            ("0001-01-01T00:00:01+20:00", "0000-12-31T04:00:01Z"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "soon",
            "10000-01-01T19:59:59Z",
            "2026-01-01",
            "9999-12-31T23:59:59-25:00",
            "9999-12-31T23:59:59-20",
            "9999-99-31T23:59:59-20:00",
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
