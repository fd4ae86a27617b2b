//! The kubelet binary: resolves the configuration, starts adapters and agent, and waits for a signal.
//!
//! Only this crate uses every adapter. Exit codes: 0 after a signal, `--help` and `--version`; 1 for a start that
//! failed or was not by root, a second signal, and a run-once run in which a pod failed. `takeover` and the commands of `cli` have
//! their own.
#![forbid(unsafe_code)]

mod boot;
mod build;
mod cluster;
mod groups;
mod logging;
mod machine;
mod own_process;
mod private_paths;
mod process;
mod serve;
mod serving;
mod settings;
mod single_node;
mod start_error;
mod systemd;
mod takeover;
mod time_zone;
mod traces;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use build::BUILD;
use config::{ConfigErrors, Invocation, Resolved};
use machine::ThisMachine;

fn main() -> ExitCode {
    if let Some(code) = host::serve_as_volume_helper() {
        return code;
    }
    let has_own_lookups = host::process::use_built_in_name_lookups();
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|argument| argument == takeover::COMMAND).is_some() {
        return takeover::run(arguments);
    }
    // Started by a kubelet with --single-node.
    if arguments.next_if(|argument| argument == single_node::COMMAND).is_some() {
        host::process::share_one_arena();
        return localapi::command::run(arguments, Some(host::process::release_free_memory));
    }
    let mut arguments: Vec<String> = arguments.collect();
    match arguments.first() {
        // Without the name of a command it is the help of the kubelet itself.
        Some(first) if first == "help" && arguments.len() == 1 => arguments = vec!["--help".to_owned()],
        Some(first) if cli::is_command(first) => {
            return cli::run(arguments.into_iter().map(Into::into), BUILD, &ThisMachine);
        }
        _ => {}
    }
    run_flags(arguments.into_iter(), has_own_lookups)
}

/// A command line of flags only, as of the Go kubelet.
fn run_flags(arguments: impl Iterator<Item = String>, has_own_lookups: bool) -> ExitCode {
    match config::from_args(arguments, &config::Disk) {
        Ok(Invocation::Help(text)) => print(&format!("{}\n{COMMANDS}{}", text.trim_end(), cli::summary())),
        Ok(Invocation::Version { raw: false }) => print(&config::version_line()),
        Ok(Invocation::Version { raw: true }) => print(&raw_version()),
        Ok(Invocation::Run(_)) | Err(_) if !host::process::is_root() => fail(&not_root()),
        Ok(Invocation::Run(resolved)) => run(&resolved, has_own_lookups),
        Err(errors) => print_errors(&errors),
    }
}

/// The heading of the commands, below the flags.
const COMMANDS: &str = "
Commands, each with a help of its own (--help):
  kubelet takeover     Report what a start with the same flags would do to the pods that run here
";

/// The only line of a process that would fail later, at the first directory that it cannot make or read.
pub(crate) fn not_root() -> String {
    format!("kubelet needs to run as uid `0`. It is being run as {}", host::process::uid())
}

fn run(resolved: &Resolved, has_own_lookups: bool) -> ExitCode {
    host::process::share_one_arena();
    let verbosity =
        logging::Verbosity { of_all: resolved.verbosity().into(), of_files: resolved.vmodule().to_vec() };
    let (spans, finished) = traces::prepare(resolved.kubelet.tracing.as_ref()).unzip();
    logging::start(log_output(resolved), verbosity, spans);
    if !has_own_lookups {
        tracing::warn!(
            "The C library refused files and dns as the only sources of host names, looking them up as nsswitch.conf says"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(host::blocking_threads() + OTHER_BLOCKING_THREADS)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start threads: {error}")),
    };
    let outcome = runtime.block_on(boot::run(resolved, finished));
    // Blocking work may hang on a dead disk forever; the process does not wait for it.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => {
            logging::flush(logging::FLUSH_TIMEOUT);
            code
        }
        Err(error) => fail(&format!("{error:#}")),
    }
}

/// Threads for blocking work that is not the host's, each kind of which has a bound of its own: certificates and credentials are read
/// again, one after the other. Everything else runs on the first thread, which needs a few milliseconds a second for hundreds of pods;
/// more threads would cost more in handing over work than they save. A thread without work ends.
const OTHER_BLOCKING_THREADS: usize = 8;
const STACK_BYTES: usize = 1 << 20;

fn log_output(resolved: &Resolved) -> logging::Output {
    let logging = &resolved.kubelet.logging;
    if logging.format == "json" {
        logging::Output { format: logging::LogFormat::Json, is_split: logging.options.json.split_stream }
    } else {
        logging::Output { format: logging::LogFormat::Text, is_split: logging.options.text.split_stream }
    }
}

fn raw_version() -> String {
    format!(
        "version.Info{{GitVersion:\"{}\", GitCommit:\"{}\", BuildDate:\"{}\", Implementation:\"kubelet-rs {}\"}}",
        config::KUBERNETES_VERSION,
        BUILD.commit,
        BUILD.date,
        BUILD.version
    )
}

/// A reader that wants no more (`kubelet --help | head`) is no failure.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut output = std::io::stdout().lock();
    let written = writeln!(output, "{}", text.trim_end()).and_then(|()| output.flush());
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write to the standard output: {error}")),
    }
}

fn print_errors(errors: &ConfigErrors) -> ExitCode {
    for warning in &errors.warnings {
        logging::write_last(&format!("W: {warning}\n"));
    }
    fail(&errors.to_string())
}

pub(crate) fn fail(text: &str) -> ExitCode {
    logging::write_last(&format!("E: {text}\n"));
    ExitCode::FAILURE
}
