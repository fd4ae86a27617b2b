//! `kubelet exec`: a command in a container, with its input, output, terminal and exit code.
//!
//! A message of the WebSocket begins with the number of its channel: 0 standard input, 1 standard output, 2 standard error, 3 the result,
//! 4 the size of the terminal, 255 the end of a channel (`v5.channel.k8s.io`).

use std::io::{self, IsTerminal as _, Read as _};
use std::pin::pin;

use clap::{Arg, ArgAction, ArgMatches, Command};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use crate::client::{Client, ClientError, escaped};
use crate::selection::{Selection, container_argument};
use crate::terminal::RawMode;
use crate::websocket::{message, next_message};
use crate::{CommandError, Outcome, connection_arguments, report, selection, terminal};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESULT: u8 = 3;
const RESIZE: u8 = 4;
const END_OF: u8 = 255;
/// Size of one read of the standard input.
const PIECE_BYTES: usize = 8 << 10;
/// A command that did not run, or whose result is not known.
const FAILED: u8 = 1;

const EXAMPLES: &str = "Examples:
  kubelet exec web -- ls -l /data
  kubelet exec -it shop/web -c app -- sh          a shell in a terminal
  echo hello | kubelet exec -i web -- cat

Exit code: that of the command; 1 also if it could not be run, 2 a wrong command line.";

pub(crate) fn definition() -> Command {
    let flag = |name: &'static str, short: char, help: &'static str| {
        Arg::new(name).long(name).short(short).action(ArgAction::SetTrue).help(help)
    };
    let command = Command::new("exec").about("Run a command in a container").after_help(EXAMPLES);
    let command = selection::one_pod(command)
        .arg(container_argument())
        .arg(flag("stdin", 'i', "Pass the standard input on to the command"))
        .arg(flag("tty", 't', "Give the command a terminal"))
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .required(true)
                .num_args(1..)
                .last(true)
                .help("The command and its arguments, after --"),
        );
    connection_arguments(command)
}

pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let has_input = matches.get_flag("stdin");
    let mut is_terminal = matches.get_flag("tty");
    if is_terminal && !io::stdin().is_terminal() {
        report("the standard input is not a terminal, so the command gets none");
        is_terminal = false;
    }
    let path = path(matches, has_input, is_terminal);
    let code = client.upgrade(&path, |stream| talk(stream, has_input, is_terminal)).await?;
    Ok(Outcome { text: String::new(), code })
}

fn path(matches: &ArgMatches, has_input: bool, is_terminal: bool) -> String {
    let mut path = Selection::of(matches).path("/v1/exec");
    if let Some(container) = matches.get_one::<String>("container") {
        path += &format!("&container={}", escaped(container));
    }
    for word in matches.get_many::<String>("command").into_iter().flatten() {
        path += &format!("&command={}", escaped(word));
    }
    path += if has_input { "&input=1" } else { "" };
    path + if is_terminal { "&output=1&tty=1" } else { "&output=1&error=1" }
}

/// Carries input and output until the command has ended. Returns its exit code.
async fn talk(stream: Upgraded, has_input: bool, is_terminal: bool) -> Result<u8, ClientError> {
    let (mut from, mut to) = tokio::io::split(TokioIo::new(stream));
    let failed = |error: io::Error| ClientError::Broken(error.to_string());
    let restored_at_the_end = is_terminal.then(RawMode::enter).transpose().map_err(failed)?;
    let mut received = pin!(receive(&mut from));
    let result = tokio::select! {
        result = &mut received => result,
        sent = send(&mut to, has_input, is_terminal) => match sent {
            // The command has ended: its result is still to be read.
            Ok(()) => received.await,
            Err(error) => Err(failed(error)),
        },
    };
    drop(restored_at_the_end);
    let (code, problem) = result?;
    problem.iter().for_each(|problem| report(problem));
    Ok(code)
}

/// The exit code, and what is to be reported.
type CommandResult = (u8, Option<String>);

/// Prints the output until the stream ends, and returns the result.
async fn receive(from: &mut (impl AsyncRead + Unpin)) -> Result<CommandResult, ClientError> {
    let mut result = None;
    while let Some(message) = next_message(from).await.map_err(|_| ClientError::BrokenOff)? {
        let Some((channel, content)) = message.split_first() else { continue };
        let written = match *channel {
            STDOUT => write(&mut io::stdout().lock(), content),
            STDERR => write(&mut io::stderr().lock(), content),
            RESULT => {
                result = Some(parse_result(content));
                Ok(())
            }
            _ => Ok(()),
        };
        match written {
            // A reader that wants no more is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok((0, None)),
            written => written.map_err(|error| ClientError::Broken(error.to_string()))?,
        }
    }
    result.ok_or(ClientError::BrokenOff)
}

fn write(to: &mut impl io::Write, content: &[u8]) -> io::Result<()> {
    to.write_all(content)?;
    to.flush()
}

/// The status that a runtime sends at the end of a command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    status: String,
    message: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<StatusCause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusCause {
    reason: String,
    message: String,
}

fn parse_result(content: &[u8]) -> CommandResult {
    let status: Status = match serde_json::from_slice(content) {
        Ok(status) => status,
        Err(_) => return (FAILED, Some(String::from_utf8_lossy(content).into_owned())),
    };
    if status.status == "Success" {
        return (0, None);
    }
    let is_code = |cause: &&StatusCause| cause.reason == "ExitCode";
    let code = status.details.causes.iter().find(is_code).and_then(|cause| cause.message.parse().ok());
    match code {
        Some(code) => (code, None),
        None => (FAILED, Some(status.message)),
    }
}

/// Passes on the input and the sizes of the terminal. Returns once the other side takes no more.
async fn send(to: &mut (impl AsyncWrite + Unpin), has_input: bool, is_terminal: bool) -> io::Result<()> {
    let mut resized = if is_terminal { Some(signal(SignalKind::window_change())?) } else { None };
    let mut reading = has_input.then(read_input);
    let mut frame = if is_terminal { size_message() } else { Vec::new() };
    loop {
        if to.write_all(&frame).await.is_err() || to.flush().await.is_err() {
            return Ok(());
        }
        frame = tokio::select! {
            piece = input(&mut reading) => match piece? {
                piece if piece.is_empty() => message(&[&[END_OF, STDIN]]),
                piece => {
                    reading = Some(read_input());
                    message(&[&[STDIN], &piece])
                }
            },
            () = window_changed(&mut resized) => size_message(),
        };
    }
}

/// Reads a piece of the standard input, which is empty at its end. The read may never end; the process does not wait for it.
fn read_input() -> JoinHandle<io::Result<Vec<u8>>> {
    tokio::task::spawn_blocking(|| {
        let mut piece = vec![0; PIECE_BYTES];
        let length = io::stdin().lock().read(&mut piece)?;
        piece.truncate(length);
        Ok(piece)
    })
}

/// Cancel safe. Never returns without a read under way.
async fn input(reading: &mut Option<JoinHandle<io::Result<Vec<u8>>>>) -> io::Result<Vec<u8>> {
    let Some(read) = reading else { return std::future::pending().await };
    let piece = read.await;
    *reading = None;
    piece.map_err(io::Error::other)?
}

async fn window_changed(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Empty if the size is not known.
fn size_message() -> Vec<u8> {
    let Some((columns, rows)) = terminal::size() else { return Vec::new() };
    let size = json!({"Width": columns, "Height": rows}).to_string();
    message(&[&[RESIZE], size.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_the_exit_code_or_the_reason_why_there_is_none() {
        assert_eq!(parse_result(br#"{"metadata":{},"status":"Success"}"#), (0, None));
        let failed = br#"{"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}"#;
        assert_eq!(parse_result(failed), (42, None));
        let other = br#"{"status":"Failure","message":"no such file"}"#;
        assert_eq!(parse_result(other), (1, Some("no such file".to_owned())));
        assert_eq!(parse_result(b"broken"), (1, Some("broken".to_owned())));
    }

    #[test]
    fn command_and_streams_are_the_query() {
        let query = |arguments: &[&str]| {
            let all = std::iter::once("exec").chain(arguments.iter().copied());
            let matches = definition().try_get_matches_from(all).unwrap();
            path(&matches, matches.get_flag("stdin"), matches.get_flag("tty"))
        };
        assert_eq!(
            query(&["web", "--", "ls", "-l", "a b"]),
            "/v1/exec?pod=web&command=ls&command=-l&command=a%20b&output=1&error=1"
        );
        assert_eq!(
            query(&["-it", "web", "-c", "app", "--", "sh"]),
            "/v1/exec?pod=web&container=app&command=sh&input=1&output=1&tty=1"
        );
        assert!(definition().try_get_matches_from(["exec", "web", "ls"]).is_err(), "without --");
    }

    #[test]
    fn output_before_and_after_the_result_is_read_until_the_stream_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = |bytes: &[u8]| {
            let mut from = bytes;
            runtime.block_on(receive(&mut from))
        };
        let status = br#"{"status":"Success"}"#;
        let length = u8::try_from(status.len() + 1).unwrap();
        let result = [&[0x82, length, RESULT][..], status, &[0x82, 1, STDOUT]].concat();
        assert_eq!(read(&result).unwrap(), (0, None));
        assert!(matches!(read(&[0x82, 1, STDOUT]), Err(ClientError::BrokenOff)));
    }
}
