//! Durations as `duration.HumanDuration` formats them: two units at most, coarser for longer durations.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// How long ago an RFC 3339 time was.
pub(super) fn since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => human(now.duration_since(time).as_secs()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// A number of seconds as `kubectl` prints it.
pub(super) fn human(seconds: i64) -> String {
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(seconds, MINUTE, 'm', 1, 's'),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(seconds, HOUR, 'h', MINUTE, 'm'),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(seconds, DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds, YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// The second unit is omitted if it is zero.
fn two(seconds: i64, large: i64, large_name: char, small: i64, small_name: char) -> String {
    let (whole, rest) = (seconds / large, seconds % large / small);
    if rest == 0 { format!("{whole}{large_name}") } else { format!("{whole}{large_name}{rest}{small_name}") }
}
