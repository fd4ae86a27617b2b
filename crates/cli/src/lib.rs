//! The commands of the kubelet: those that ask the running one, over its local socket (`kubelet why`, `kubelet get` and others), and those
//! that need none (`kubelet config`, `kubelet doctor`, `kubelet version`).
//!
//! Owns their definitions, from which help and completion are made, and what they print. What a pod's state means is decided in
//! `explain-core`. Exit codes: 0 as desired, 3 something waits, 4 something failed, 1 no answer or nothing of that name, 2 a wrong command
//! line, 130 ended by Ctrl-C.
#![forbid(unsafe_code)]

mod client;
mod configuration;
mod describe;
mod doctor;
mod events;
mod exec;
mod get;
mod logs;
mod output;
mod selection;
mod single_node;
mod stats;
mod table;
mod terminal;
mod ui;
mod version;
mod websocket;
mod why;

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use config::{KubeletConfiguration, NodeFlags};
use explain_core::doctor::DoctorFacts;
use model::BuildInfo;

use client::{Client, ClientError};
use output::Format;

/// Where a kubelet with the usual root directory listens.
pub const SOCKET: &str = "/run/kubelet/kubelet.sock";
const USUAL_ROOT: &str = "/var/lib/kubelet";

/// A wrong command line.
const USAGE: u8 = 2;
/// Something waits, or needs a look.
const ATTENTION: u8 = 3;
/// Something failed, or keeps the kubelet from working.
const FAILED: u8 = 4;
/// As of a shell whose program Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The socket of a kubelet with this root directory: below it, unless it is the usual one.
#[must_use]
pub fn socket_of(root_dir: &str) -> PathBuf {
    match root_dir.trim_end_matches('/') {
        USUAL_ROOT => PathBuf::from(SOCKET),
        other => PathBuf::from(other).join("kubelet.sock"),
    }
}

/// What `config check` and `doctor` find out about this machine. Whatever takes longer than some seconds is an error.
pub trait Machine {
    /// For the settings of this configuration.
    fn facts(&self, kubelet: &KubeletConfiguration, flags: &NodeFlags) -> config::inspect::Machine;

    /// For a first start with this configuration, and what `facts` returns.
    fn examine(
        &self,
        kubelet: &KubeletConfiguration,
        flags: &NodeFlags,
    ) -> (DoctorFacts, config::inspect::Machine);
}

/// What a command printed, and what its exit code says.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) text: String,
    pub(crate) code: u8,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    NotFound(String),
    /// The command line is wrong in a way that its definition does not say.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    #[error("failed to write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("failed to encode the answer: {0}")]
    Encode(String),
}

/// Whether the first argument names one of the commands.
#[must_use]
pub fn is_command(argument: &str) -> bool {
    argument == "help" || definition().get_subcommands().any(|command| command.get_name() == argument)
}

/// Takes `-o` out of the flags of the kubelet, which has none of that name: it may stand before or after them.
pub(crate) fn flags_and_format(
    matches: &ArgMatches,
    formats: &[Format],
) -> Result<(Vec<String>, Format), CommandError> {
    let given: Vec<String> = matches.get_many("flags").into_iter().flatten().cloned().collect();
    let (mut flags, mut format) = (Vec::new(), output::of(matches));
    let mut given = given.into_iter();
    while let Some(argument) = given.next() {
        let value = match &*argument {
            "-o" | "--output" => Some(given.next().unwrap_or_default()),
            _ => {
                argument.strip_prefix("--output=").or_else(|| argument.strip_prefix("-o=")).map(str::to_owned)
            }
        };
        match value {
            Some(name) => {
                format = output::named(&name)
                    .filter(|format| formats.contains(format))
                    .ok_or_else(|| CommandError::NotFound(format!("invalid output format {name:?}")))?;
            }
            None => flags.push(argument),
        }
    }
    Ok((flags, format))
}

/// The flags of the kubelet, as it would be started.
pub(crate) fn kubelet_flags() -> Arg {
    Arg::new("flags")
        .value_name("FLAGS")
        .num_args(0..)
        .allow_hyphen_values(true)
        .trailing_var_arg(true)
        .help("The flags that the kubelet is started with, such as --config FILE")
}

/// A line for each command, for the help of the kubelet itself.
#[must_use]
pub fn summary() -> String {
    let line = |command: &Command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  kubelet {:<12} {about}\n", command.get_name())
    };
    definition().get_subcommands().map(line).collect()
}

/// The definitions of all commands.
#[must_use]
pub fn definition() -> Command {
    Command::new("kubelet")
        .about("Asks the kubelet that runs on this machine")
        .subcommand_required(true)
        .subcommand(why::definition())
        .subcommand(get::definition())
        .subcommand(events::definition())
        .subcommand(describe::definition())
        .subcommand(logs::definition())
        .subcommand(exec::definition())
        .subcommand(stats::definition())
        .subcommand(ui::definition())
        .subcommand(configuration::definition())
        .subcommand(doctor::definition())
        .subcommand(single_node::definition())
        .subcommand(version::definition())
        .subcommand(
            Command::new("completion")
                .about("Print a completion script for a shell")
                .after_help("Example:\n  kubelet completion bash >/etc/bash_completion.d/kubelet")
                .arg(Arg::new("shell").required(true).value_parser(value_parser!(Shell))),
        )
}

/// Arguments that each command which asks the kubelet has.
pub(crate) fn connection_arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("socket")
                .long("socket")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help(format!("The socket of the kubelet; {SOCKET} without it")),
        )
        .arg(
            Arg::new("root-dir")
                .long("root-dir")
                .value_name("DIR")
                .conflicts_with("socket")
                .help("The root directory of a kubelet that has not the usual one"),
        )
}

/// Runs a command with the arguments that follow the name of the program.
pub fn run(arguments: impl Iterator<Item = OsString>, build: BuildInfo, machine: &dyn Machine) -> ExitCode {
    let all = std::iter::once(OsString::from("kubelet")).chain(arguments);
    let matches = match definition().try_get_matches_from(all) {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match matches.subcommand() {
        Some(("completion", matches)) => completion(matches),
        Some(("config", matches)) => finish(configuration::run(matches, machine)),
        Some(("doctor", matches)) => finish(doctor::run(matches, machine)),
        Some(("version", matches)) => finish(version::run(matches, build)),
        Some((name, matches)) => ask(name, matches),
        None => ExitCode::from(USAGE),
    }
}

fn completion(matches: &ArgMatches) -> ExitCode {
    let Some(shell) = matches.get_one::<Shell>("shell") else { return ExitCode::from(USAGE) };
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut definition(), "kubelet", &mut script);
    print(&String::from_utf8_lossy(&script))
}

fn ask(name: &str, matches: &ArgMatches) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    let client = Client::new(socket(matches));
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = answer(name, &client, matches) => outcome,
            // What was printed so far is what the user wanted.
            _ = tokio::signal::ctrl_c() => Ok(Outcome { text: String::new(), code: INTERRUPTED }),
        }
    });
    // A read of the standard input may never end.
    runtime.shutdown_background();
    finish(outcome)
}

fn finish(outcome: Result<Outcome, CommandError>) -> ExitCode {
    match outcome {
        Ok(Outcome { text, code }) => {
            let printed = print(&text);
            if code == 0 { printed } else { ExitCode::from(code) }
        }
        Err(error @ CommandError::Usage(_)) => {
            fail(&error.to_string());
            ExitCode::from(USAGE)
        }
        Err(error) => fail(&error.to_string()),
    }
}

async fn answer(name: &str, client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    match name {
        "why" => why::run(client, matches).await,
        "events" => events::run(client, matches).await,
        "describe" => describe::run(client, matches).await,
        "logs" => logs::run(client, matches).await,
        "exec" => exec::run(client, matches).await,
        "stats" => stats::run(client, matches).await,
        "ui" => ui::run(client, matches).await,
        "single-node" => single_node::run(matches).await,
        _ => get::run(client, matches).await,
    }
}

fn socket(matches: &ArgMatches) -> PathBuf {
    // Commands that do not ask the kubelet have neither.
    let given = |name| matches.try_get_one::<String>(name).ok().flatten();
    match (matches.try_get_one::<PathBuf>("socket").ok().flatten(), given("root-dir")) {
        (Some(socket), _) => socket.clone(),
        (None, Some(root)) => socket_of(root),
        (None, None) => PathBuf::from(SOCKET),
    }
}

/// A reader that wants no more (`kubelet why | head`) is no failure.
pub(crate) fn print(text: &str) -> ExitCode {
    match write(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write to the standard output: {error}")),
    }
}

/// Prints a part of an answer that goes on. False: no more of it is to be printed.
pub(crate) fn print_part(text: &str) -> bool {
    write(text).is_ok()
}

fn write(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush())
}

fn fail(message: &str) -> ExitCode {
    report(message);
    ExitCode::FAILURE
}

/// Something that the user must know and that is not part of the answer.
pub(crate) fn report(message: &str) {
    let _ = writeln!(std::io::stderr(), "kubelet: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_consistent_and_each_command_has_an_example() {
        definition().debug_assert();
        let mut rest = vec![definition()];
        while let Some(command) = rest.pop() {
            for below in command.get_subcommands() {
                let help = below.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.starts_with("Example"), "{} has no example", below.get_name());
                rest.push(below.clone());
            }
        }
    }

    #[test]
    fn first_argument_is_a_command_or_a_flag_of_the_kubelet() {
        assert!(is_command("why") && is_command("get") && is_command("help"));
        assert!(!is_command("--config") && !is_command("takeover") && !is_command(""));
    }

    #[test]
    fn socket_follows_from_the_root_directory() {
        assert_eq!(socket_of("/var/lib/kubelet/"), PathBuf::from(SOCKET));
        assert_eq!(socket_of("/srv/node"), PathBuf::from("/srv/node/kubelet.sock"));
    }
}
