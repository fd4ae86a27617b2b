//! Parses the query options of a container log. Pure; never reads a log.

use jiff::{SignedDuration, Timestamp};
use ports::node_api::{LogStream, LogView};

use crate::query::first;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogOptions {
    pub(crate) previous: bool,
    pub(crate) view: LogView,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionsError {
    /// A value cannot be parsed as number, time or boolean.
    Unreadable,
    /// The values are valid syntax, but their range or combination is invalid.
    Invalid,
}

/// `tail` is an old name of `tailLines`, where `all` means no limit.
/// `by_stream`: the log of a single stream may be requested.
pub(crate) fn read(
    pairs: &[(String, String)],
    now: Timestamp,
    by_stream: bool,
) -> Result<LogOptions, OptionsError> {
    let flag = |name| first(pairs, name).map_or(Ok(false), boolean);
    let (follow, previous, timestamps) = (flag("follow")?, flag("previous")?, flag("timestamps")?);
    let tail = match first(pairs, "tail").filter(|tail| !tail.is_empty()) {
        Some("all") => None,
        Some(tail) => Some(number(tail)?),
        None => first(pairs, "tailLines").map(number).transpose()?,
    };
    let limit = first(pairs, "limitBytes").map(number).transpose()?;
    let seconds = first(pairs, "sinceSeconds").map(number).transpose()?;
    let time = first(pairs, "sinceTime").filter(|time| !time.is_empty());
    let time = time.map(str::parse::<Timestamp>).transpose().map_err(|_| OptionsError::Unreadable)?;
    let stream = match first(pairs, "stream") {
        None => None,
        Some(_) if !by_stream => return Err(OptionsError::Invalid),
        Some("" | "All") => None,
        Some("Stdout") => Some(LogStream::Stdout),
        Some("Stderr") => Some(LogStream::Stderr),
        Some(_) => return Err(OptionsError::Invalid),
    };
    let since = match (seconds, time) {
        (Some(_), Some(_)) => return Err(OptionsError::Invalid),
        (Some(seconds), None) if seconds >= 1 => Some(seconds_ago(now, seconds)),
        (Some(_), None) => return Err(OptionsError::Invalid),
        (None, time) => time,
    };
    // The last lines of one stream would need all of the log.
    if limit.is_some_and(|limit| limit < 1) || (stream.is_some() && tail.is_some()) {
        return Err(OptionsError::Invalid);
    }
    let tail_lines = tail.map(u64::try_from).transpose().map_err(|_| OptionsError::Invalid)?;
    let limit_bytes = limit.map(u64::try_from).transpose().map_err(|_| OptionsError::Invalid)?;
    Ok(LogOptions { previous, view: LogView { follow, timestamps, since, tail_lines, limit_bytes, stream } })
}

/// As the API decodes a boolean: `0` and `false`, in any case, are false; an empty value and everything else is true.
fn boolean(text: &str) -> Result<bool, OptionsError> {
    Ok(!(text == "0" || text.eq_ignore_ascii_case("false")))
}

fn number(text: &str) -> Result<i64, OptionsError> {
    text.parse().map_err(|_| OptionsError::Unreadable)
}

/// The earliest possible time if the difference exceeds it.
fn seconds_ago(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::query;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn options(text: &str) -> Result<LogOptions, OptionsError> {
        read(&query::pairs(Some(text)), now(), true)
    }

    #[test]
    fn log_options_are_parsed_from_the_query() {
        let plain = LogOptions { previous: false, view: LogView::default() };
        assert_eq!(options("").unwrap(), plain);
        assert_eq!(options("follow=false&previous=0&tail=all&tailLines=7&stream=All").unwrap(), plain);
        let all =
            options("follow=true&previous=1&timestamps&tailLines=10&limitBytes=5&sinceSeconds=60").unwrap();
        let view = LogView {
            follow: true,
            timestamps: true,
            since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            tail_lines: Some(10),
            limit_bytes: Some(5),
            stream: None,
        };
        assert_eq!(all, LogOptions { previous: true, view });
        assert_eq!(options("tail=3&tailLines=7").unwrap().view.tail_lines, Some(3));
        let since = options("sinceTime=2026-01-01T02%3A00%3A00%2B02%3A00").unwrap().view.since;
        assert_eq!(since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(options("stream=Stderr").unwrap().view.stream, Some(LogStream::Stderr));
        assert_eq!(options("sinceSeconds=9223372036854775807").unwrap().view.since, Some(Timestamp::MIN));
    }

    #[test]
    fn log_stream_option_requires_its_feature_gate() {
        for text in ["stream=Stdout", "stream=All", "stream="] {
            let refused = read(&query::pairs(Some(text)), now(), false);
            assert_eq!(refused, Err(OptionsError::Invalid), "{text}");
        }
        assert!(read(&query::pairs(Some("follow=true")), now(), false).is_ok());
    }

    #[test]
    fn unparsable_and_invalid_options_are_distinguished() {
        for text in ["tailLines=x", "tail=some", "limitBytes=1k", "sinceSeconds=1.5", "sinceTime=yesterday"] {
            assert_eq!(options(text), Err(OptionsError::Unreadable), "{text}");
        }
        for text in [
            "tailLines=-1",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            "stream=Stdin",
            "stream=Stdout&tailLines=5",
        ] {
            assert_eq!(options(text), Err(OptionsError::Invalid), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_log_query_is_parsed_or_rejected(
            text in "((tail|tailLines|limitBytes|since(Seconds|Time)|follow|stream)=[-0-9a-zA-Z:.%+]{0,24}&){0,5}",
        ) {
            let _ = options(&text);
        }
    }
}
