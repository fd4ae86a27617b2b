//! The API server as a process: parses its flags, prints its address as one line of JSON, writes kubeconfigs, and saves
//! its state to a file when it stops. Everything else is in the library.
#![forbid(unsafe_code)]

mod arguments;

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use localapi::{LocalApi, Running, State};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use arguments::Arguments;

const STATE_FILE: &str = "state.json";

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => return fail(&error.to_string()),
    };
    let filter = Targets::new().with_target("localapi", arguments.level);
    tracing_subscriber::registry().with(fmt::layer().with_writer(std::io::stderr)).with(filter).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(format!("cannot start the runtime: {error}")),
    };
    result.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

fn fail(error: &str) -> ExitCode {
    // If standard error is closed, the error cannot be reported.
    let _ = writeln!(std::io::stderr(), "localapi: {error}");
    ExitCode::FAILURE
}

async fn run(mut arguments: Arguments) -> Result<(), String> {
    let directory = arguments.directory.clone();
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    let state_file = directory.join(STATE_FILE);
    if let Some(state) = read_state(&state_file, arguments.options.history)? {
        if arguments.compacted {
            state.compact();
        }
        arguments.options.state = Some(state);
    }
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut compacted = signal(SignalKind::user_defined1()).map_err(|error| error.to_string())?;
    let running = LocalApi::start(arguments.options).await.map_err(|error| error.to_string())?;
    write_kubeconfigs(&running, &directory, &arguments.nodes, &arguments.bootstrap_tokens)?;
    announce(&running).map_err(|error| format!("cannot write to standard output: {error}"))?;
    loop {
        tokio::select! {
            _ = terminated.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            _ = compacted.recv() => running.compact(),
        }
    }
    let state = running.stop().await;
    write_private(&state_file, &state.to_json())
}

fn read_state(file: &Path, history: usize) -> Result<Option<State>, String> {
    match std::fs::read_to_string(file) {
        Ok(text) => {
            State::from_json(&text, history).map(Some).map_err(|error| format!("{}: {error}", file.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

fn announce(running: &Running) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{{\"address\":\"{}\",\"url\":\"{}\"}}", running.address(), running.url())?;
    out.flush()
}

/// `admin.kubeconfig`, `<node>.kubeconfig` for each `--node`, `bootstrap.kubeconfig`, and `ca.crt`.
fn write_kubeconfigs(
    running: &Running,
    directory: &Path,
    nodes: &[String],
    bootstrap_tokens: &[String],
) -> Result<(), String> {
    let admin =
        running.kubeconfig("kubernetes-admin", Some("system:masters")).map_err(|error| error.to_string())?;
    write_private(&directory.join("admin.kubeconfig"), &admin)?;
    for node in nodes {
        let own = running.node_kubeconfig(node).map_err(|error| error.to_string())?;
        write_private(&directory.join(format!("{node}.kubeconfig")), &own)?;
    }
    if let Some(token) = bootstrap_tokens.first() {
        write_private(&directory.join("bootstrap.kubeconfig"), &running.token_kubeconfig(token))?;
    }
    write_private(&directory.join("ca.crt"), running.ca_pem())
}

/// Writes a file atomically, readable by its owner only.
fn write_private(file: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", file.display());
    let new = file.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut open = options.write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
    open.write_all(text.as_bytes()).map_err(failed)?;
    std::fs::rename(&new, file).map_err(failed)
}
