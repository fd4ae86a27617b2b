//! Times and durations as people read them.

use jiff::Timestamp;

/// The time from one moment to a later one, in the two largest units: `42 s`, `2 min 10 s`, `3 h 5 min`, `6 d 2 h`.
#[must_use]
pub fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs().max(0);
    let two = |large: i64, of_large: &str, small: i64, of_small: &str| match small {
        0 => format!("{large} {of_large}"),
        _ => format!("{large} {of_large} {small} {of_small}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// As [`span`], with milliseconds below ten seconds.
#[must_use]
pub fn exact_span(from: Timestamp, to: Timestamp) -> String {
    let milliseconds = to.duration_since(from).as_millis().max(0);
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        1000..10_000 => format!("{}.{:02} s", milliseconds / 1000, milliseconds % 1000 / 10),
        _ => span(from, to),
    }
}

/// `14:05:10`, in UTC.
#[must_use]
pub fn clock_time(at: Timestamp) -> String {
    let of_day = at.as_second().rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap()
    }

    #[test]
    fn durations_have_their_two_largest_units() {
        let shown = |seconds: i64| span(at(0), at(seconds * 1000));
        let all = [-5, 0, 59, 60, 130, 3600, 3660, 86_399, 86_400, 525_600].map(shown);
        assert_eq!(
            all.join(", "),
            "0 s, 0 s, 59 s, 1 min, 2 min 10 s, 1 h, 1 h 1 min, 23 h 59 min, 1 d, 6 d 2 h"
        );
        assert_eq!(
            [7, 1234, 9999, 75_000].map(|end| exact_span(at(0), at(end))).join(", "),
            "7 ms, 1.23 s, 9.99 s, 1 min 15 s"
        );
        assert_eq!(clock_time(at(50_710_000)), "14:05:10 UTC");
    }
}
