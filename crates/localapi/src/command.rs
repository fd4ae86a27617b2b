//! The API server as a process: parses its flags, prints its address as one line of JSON, writes kubeconfigs, and, without a database, saves
//! its state to a file when it stops.

mod arguments;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::files;
use crate::options::State;
use crate::server::{LocalApi, Running};
use arguments::Arguments;

const STATE_FILE: &str = "state.json";

/// Runs until SIGTERM or SIGINT; `arguments` are those behind the name of the program. `release_memory` gives free memory of the heap back
/// to the machine.
pub fn run(arguments: impl Iterator<Item = String>, release_memory: Option<fn()>) -> ExitCode {
    let mut arguments = match Arguments::parse(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return fail(&error.to_string()),
    };
    arguments.options.release_memory = release_memory;
    if let Some(parent) = arguments.parent
        && let Err(error) = end_with(parent)
    {
        return fail(&error);
    }
    let filter = Targets::new().with_target("localapi", arguments.level);
    tracing_subscriber::registry().with(fmt::layer().with_writer(std::io::stderr)).with(filter).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(serve(arguments)),
        Err(error) => Err(format!("cannot start the runtime: {error}")),
    };
    result.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

fn fail(error: &str) -> ExitCode {
    // If standard error is closed, the error cannot be reported.
    let _ = writeln!(std::io::stderr(), "localapi: {error}");
    ExitCode::FAILURE
}

/// Ends this process when that one ends, however it does: every answered change is stored by then.
fn end_with(parent: u32) -> Result<(), String> {
    let killed = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(killed).map_err(|error| error.to_string())?;
    // It may have ended before.
    if std::os::unix::process::parent_id() == parent {
        Ok(())
    } else {
        Err(format!("process {parent} has ended"))
    }
}

async fn serve(mut arguments: Arguments) -> Result<(), String> {
    let directory = arguments.directory.clone();
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    let state_file = directory.join(STATE_FILE);
    let is_on_disk = arguments.options.database.is_some();
    if !is_on_disk && let Some(state) = read_state(&state_file, arguments.options.history)? {
        if arguments.compacted {
            state.compact();
        }
        arguments.options.state = Some(state);
    }
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut compacted = signal(SignalKind::user_defined1()).map_err(|error| error.to_string())?;
    let options = std::mem::take(&mut arguments.options);
    let running = LocalApi::start(options).await.map_err(|error| error.to_string())?;
    write_files(&running, &arguments)?;
    announce(&running).map_err(|error| format!("cannot write to standard output: {error}"))?;
    loop {
        tokio::select! {
            _ = terminated.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            _ = compacted.recv() => running.compact(),
            () = running.asked_to_end() => break,
        }
    }
    let state = running.stop().await;
    if is_on_disk { Ok(()) } else { write_private(&state_file, &state.to_json()) }
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

/// `admin.kubeconfig`, `<node>.kubeconfig` for each `--node`, `bootstrap.kubeconfig`, `ca.crt`, and the kubeconfigs that flags name.
fn write_files(running: &Running, arguments: &Arguments) -> Result<(), String> {
    let directory = &arguments.directory;
    let admin = running.kubeconfig("kubernetes-admin", Some("system:masters"));
    let admin = admin.map_err(|error| error.to_string())?;
    write_private(&directory.join("admin.kubeconfig"), &admin)?;
    if let Some(file) = &arguments.admin_kubeconfig {
        write_for_group(file, &admin, arguments.admin_kubeconfig_group)?;
    }
    let in_directory = |node: &String| (node.clone(), directory.join(format!("{node}.kubeconfig")));
    for (node, file) in arguments.nodes.iter().map(in_directory).chain(arguments.node_kubeconfig.clone()) {
        write_private(&file, &running.node_kubeconfig(&node).map_err(|error| error.to_string())?)?;
    }
    if let Some(token) = arguments.bootstrap_tokens.first() {
        write_private(&directory.join("bootstrap.kubeconfig"), &running.token_kubeconfig(token))?;
    }
    write_private(&directory.join("ca.crt"), running.ca_pem())
}

/// Writes a file atomically, readable by its owner only.
fn write_private(file: &Path, text: &str) -> Result<(), String> {
    write_for_group(file, text, None)
}

/// Writes a file atomically, readable by its owner and this group.
fn write_for_group(file: &Path, text: &str, group: Option<u32>) -> Result<(), String> {
    files::write_private(file, text, group)
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}
