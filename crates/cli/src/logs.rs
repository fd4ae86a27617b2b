//! `kubelet logs`: what a container wrote.

use std::io::{ErrorKind, Write as _};
use std::ops::ControlFlow;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use jiff::Timestamp;

use crate::client::{Client, escaped};
use crate::selection::{Selection, container_argument};
use crate::{CommandError, Outcome, connection_arguments, selection};

const EXAMPLES: &str = "Examples:
  kubelet logs web                      of the only container of a pod
  kubelet logs shop/web -c app -f       and what it writes from now on, until it ends or Ctrl-C
  kubelet logs web --previous           of the instance before the last restart
  kubelet logs web --since 10m --tail 100 --timestamps

Exit code: 0 printed, 1 no answer, no such pod or container, or no log, 130 ended by Ctrl-C.";

pub(crate) fn definition() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let command = Command::new("logs")
        .about("Print what a container wrote")
        .after_help(EXAMPLES)
        .arg(container_argument())
        .arg(flag("follow", "Go on until the container ends").short('f'))
        .arg(flag("previous", "Of the instance before the last restart").short('p'))
        .arg(flag("timestamps", "Each line with the time at which it was written"))
        .arg(
            Arg::new("since")
                .long("since")
                .value_name("TIME")
                .value_parser(parse_since)
                .help("Only what was written in the last 30s, 10m, 2h, 1h30m or 1d, or since a time such as 2026-01-02T15:04:05Z"),
        )
        .arg(
            Arg::new("tail")
                .long("tail")
                .value_name("LINES")
                .value_parser(value_parser!(u64))
                .help("Only so many lines from the end"),
        );
    connection_arguments(selection::one_pod(command))
}

pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let mut output = std::io::stdout().lock();
    let mut failure = None;
    let write = |piece: &[u8]| match output.write_all(piece).and_then(|()| output.flush()) {
        Ok(()) => ControlFlow::Continue(()),
        // A reader that wants no more (`kubelet logs web | head`) is no failure.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ControlFlow::Break(()),
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    };
    client.stream(&path(matches, Timestamp::now()), write).await?;
    match failure {
        Some(source) => Err(CommandError::Write { path: "the standard output".into(), source }),
        None => Ok(Outcome::default()),
    }
}

fn path(matches: &ArgMatches, now: Timestamp) -> String {
    let mut path = Selection::of(matches).path("/v1/logs");
    let mut add = |name: &str, value: &str| path += &format!("&{name}={}", escaped(value));
    if let Some(container) = matches.get_one::<String>("container") {
        add("container", container);
    }
    for name in ["follow", "previous", "timestamps"] {
        if matches.get_flag(name) {
            add(name, "true");
        }
    }
    if let Some(since) = matches.get_one::<Since>("since") {
        add("sinceTime", &since.at(now).to_string());
    }
    if let Some(lines) = matches.get_one::<u64>("tail") {
        add("tailLines", &lines.to_string());
    }
    path
}

/// The value of `--since`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// So many seconds ago.
    Seconds(i64),
    Time(Timestamp),
}

impl Since {
    fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Seconds(seconds) => {
                now.checked_sub(jiff::SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
            }
            Self::Time(at) => at,
        }
    }
}

fn parse_since(text: &str) -> Result<Since, String> {
    let allowed =
        || "allowed are durations such as 30s, 10m, 2h, 1h30m and 1d, and times such as 2026-01-02T15:04:05Z";
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Since::Time(at));
    }
    let (mut seconds, mut rest) = (0_i64, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(allowed)?;
        let (number, unit) = rest.split_at(digits);
        let each = match unit.chars().next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            _ => return Err(allowed().to_owned()),
        };
        let number: i64 = number.parse().map_err(|_| allowed())?;
        seconds = number.checked_mul(each).and_then(|more| seconds.checked_add(more)).ok_or_else(allowed)?;
        rest = &unit[1..];
    }
    if text.is_empty() { Err(allowed().to_owned()) } else { Ok(Since::Seconds(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_duration_or_a_time() {
        let seconds = |text| match parse_since(text) {
            Ok(Since::Seconds(seconds)) => seconds,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(["30s", "10m", "1h30m", "2d"].map(seconds), [30, 600, 5400, 172_800]);
        let at = "2026-01-02T15:04:05Z";
        assert_eq!(parse_since(at), Ok(Since::Time(at.parse().unwrap())));
        for wrong in ["", "10", "m", "1w", "-5m", "9999999999999999999d", "yesterday"] {
            assert!(parse_since(wrong).unwrap_err().starts_with("allowed are"), "{wrong}");
        }
    }

    #[test]
    fn options_are_the_query_of_the_log() {
        let now = Timestamp::from_second(3600).unwrap();
        let query = |arguments: &[&str]| {
            let all = std::iter::once("logs").chain(arguments.iter().copied());
            path(&definition().try_get_matches_from(all).unwrap(), now)
        };
        assert_eq!(query(&["web"]), "/v1/logs?pod=web");
        let all = ["a/web", "-c", "app", "-f", "--previous", "--timestamps", "--since", "1h", "--tail", "5"];
        assert_eq!(
            query(&all),
            "/v1/logs?pod=a/web&container=app&follow=true&previous=true&timestamps=true&sinceTime=1970-01-01T00%3A00%3A00Z&tailLines=5"
        );
    }
}
