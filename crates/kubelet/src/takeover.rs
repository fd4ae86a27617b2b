//! `kubelet takeover --check`: reports what a start with the same flags would do to the pods that run on this node, and changes nothing.
//!
//! Exit codes: 0 if nothing would be restarted, stopped, removed or refused; 3 if something would; 1 if that is not known.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use agent::takeover::{CheckError, CheckPorts, check};
use config::{Invocation, Resolved};
use cri::CriRuntime;
use host::process::CgroupVersion;
use host::{LinuxCgroups, LinuxHost};
use kubelet_core::takeover::TakeoverReport;
use ports::{Clock, Host};

use crate::boot::CGROUP_ROOT;
use crate::settings;

/// The first argument of the command.
pub(crate) const COMMAND: &str = "takeover";
/// Something would be restarted, stopped, removed or refused.
const WOULD_CHANGE: u8 = 3;
const HELP: &str = "kubelet takeover --check [-o text|json] [flags of the kubelet]

Reports what a start of this kubelet with the same flags would do on this node: which kubelet ran its pods, which of them would
keep running, be restarted or stopped and why, which volumes they have, and which state files would be used or refused.
It reads the root directory and the manifests, asks the container runtime, and changes nothing.

Exit code: 0 if nothing would be restarted, stopped, removed or refused; 3 if something would; 1 for an error, or not run by root.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Check { format: Format, flags: Vec<String> },
}

/// Separates the flags of the command from those of the kubelet.
fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut is_check, mut format, mut flags) = (false, Format::Text, Vec::new());
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--check" => is_check = true,
            "-h" | "--help" => return Ok(Command::Help),
            "-o" | "--output" => format = format_of(&arguments.next().unwrap_or_default())?,
            _ => match argument.strip_prefix("--output=").or_else(|| argument.strip_prefix("-o=")) {
                Some(name) => format = format_of(name)?,
                None => flags.push(argument),
            },
        }
    }
    if is_check { Ok(Command::Check { format, flags }) } else { Err(format!("--check is missing\n\n{HELP}")) }
}

fn format_of(name: &str) -> Result<Format, String> {
    match name {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        other => Err(format!("invalid output format {other:?}: it is text or json")),
    }
}

/// Runs the command with the arguments that follow its name.
pub(crate) fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let (format, flags) = match parse(arguments) {
        Ok(Command::Check { format, flags }) => (format, flags),
        Ok(Command::Help) => return crate::print(HELP),
        Err(error) => return crate::fail(&error),
    };
    if !host::process::is_root() {
        return crate::fail(&crate::not_root());
    }
    let resolved = match config::from_args(flags.into_iter(), &config::Disk) {
        Ok(Invocation::Run(resolved)) => resolved,
        Ok(Invocation::Help(_) | Invocation::Version { .. }) => return crate::print(HELP),
        Err(errors) => return crate::fail(&errors.to_string()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = match runtime {
        Ok(runtime) => runtime.block_on(report(&resolved)),
        Err(error) => return crate::fail(&format!("cannot start threads: {error}")),
    };
    match report.and_then(|report| Ok((show(&report, format)?, report.is_harmless))) {
        Ok((text, is_harmless)) => {
            let printed = crate::print(&text);
            if is_harmless { printed } else { ExitCode::from(WOULD_CHANGE) }
        }
        Err(error) => crate::fail(&error),
    }
}

fn show(report: &TakeoverReport, format: Format) -> Result<String, String> {
    match format {
        Format::Text => Ok(report.to_string()),
        Format::Json => serde_json::to_string_pretty(report).map_err(|error| error.to_string()),
    }
}

async fn report(resolved: &Resolved) -> Result<TakeoverReport, String> {
    let kubelet = &resolved.kubelet;
    let host = Host::new(LinuxHost::new());
    let machine = host.machine.info();
    let node_name = resolved.node_name(&machine.hostname).map_err(|error| error.to_string())?;
    let version = host::process::cgroup_version(Path::new(CGROUP_ROOT));
    let version = version.map_err(|error| format!("detect the cgroup version at {CGROUP_ROOT}: {error}"))?;
    let runtime = CriRuntime::new(
        &kubelet.container_runtime_endpoint,
        kubelet.image_endpoint(),
        kubelet.runtime_request_timeout.as_std(),
    )
    .map_err(|error| error.to_string())?;
    let ports = CheckPorts {
        runtime: Arc::new(runtime),
        host,
        cgroups: Arc::new(LinuxCgroups::new(CGROUP_ROOT.into(), version)),
        clock: Clock::system(),
    };
    let facts = settings::node_facts(resolved, machine, version == CgroupVersion::V2, false);
    let settings = settings::settings(resolved, node_name, Vec::new());
    check(&ports, &settings, &facts).await.map_err(|error: CheckError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_of_the_kubelet_are_passed_on() {
        let expected = |format| {
            let flags = ["--config", "k.yaml", "-v", "2"].map(str::to_owned).to_vec();
            Ok(Command::Check { format, flags })
        };
        assert_eq!(parsed("--check --config k.yaml -v 2"), expected(Format::Text));
        assert_eq!(parsed("--config k.yaml -o json --check -v 2"), expected(Format::Json));
        assert_eq!(parsed("--output=json --config k.yaml -v 2 --check"), expected(Format::Json));
    }

    #[test]
    fn command_without_check_and_other_formats_are_errors() {
        assert!(parsed("--config k.yaml").is_err_and(|error| error.starts_with("--check is missing")));
        assert!(parsed("--check -o yaml").is_err_and(|error| error.contains("yaml")));
        assert_eq!(parsed("--help"), Ok(Command::Help));
    }
}
