//! `kubelet config check|show|diff`: what a configuration means, without starting anything.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use config::Disk;
use config::inspect::{Change, Effect, Finding, Inspection, Severity, compute_changes, inspect};
use serde::Serialize;
use serde_json::Value;

use crate::output::{self, Format};
use crate::table::table;
use crate::{ATTENTION, CommandError, FAILED, Machine, Outcome, USAGE, flags_and_format, kubelet_flags};

const FORMATS: &[Format] = &[Format::Text, Format::Json, Format::Yaml];

pub(crate) fn definition() -> Command {
    Command::new("config")
        .about("Check, show and compare configurations")
        .after_help("Examples:\n  kubelet config check --config /etc/kubernetes/kubelet.yaml\n  kubelet config show --config /etc/kubernetes/kubelet.yaml\n  kubelet config diff old.yaml new.yaml\n\nNone of them needs a kubelet that runs, or changes anything.")
        .subcommand_required(true)
        .subcommand(check_definition())
        .subcommand(show_definition())
        .subcommand(diff_definition())
}

fn check_definition() -> Command {
    Command::new("check")
        .about("Report everything that is wrong with flags, the file and drop-ins, also on this machine")
        .after_help("Examples:\n  kubelet config check --config /etc/kubernetes/kubelet.yaml --max-pods 50\n  kubelet config check --offline --config kubelet.yaml -o json\n\nExit code: 0 no problems, 3 warnings, 4 errors, 2 a wrong command line.")
        .arg(output::argument(FORMATS))
        .arg(
            Arg::new("offline")
                .long("offline")
                .action(clap::ArgAction::SetTrue)
                .help("Only the configuration: it is for another machine"),
        )
        .arg(kubelet_flags())
}

fn show_definition() -> Command {
    Command::new("show")
        .about("Print the effective configuration, and where each value came from")
        .after_help("Examples:\n  kubelet config show --config /etc/kubernetes/kubelet.yaml --config-dir /etc/kubernetes/kubelet.d\n  kubelet config show --config /etc/kubernetes/kubelet.yaml -o yaml\n\nExit code: 0, or 4 if the configuration has errors.")
        .arg(output::argument(FORMATS))
        .arg(
            Arg::new("changed")
                .long("changed")
                .action(clap::ArgAction::SetTrue)
                .help("Only values that do not come from a default"),
        )
        .arg(kubelet_flags())
}

fn diff_definition() -> Command {
    let file = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).value_name(value).required(true).value_parser(value_parser!(PathBuf)).help(help)
    };
    Command::new("diff")
        .about("Say what changes between two configuration files, and what a restart with the new one does")
        .after_help("Examples:\n  kubelet config diff /etc/kubernetes/kubelet.yaml new.yaml\n  kubelet config diff old.yaml new.yaml -o json\n\nExit code: 0 if the kubelet can just be restarted, 3 if the node has to be drained first, 4 if a file has errors.")
        .arg(file("old", "OLD", "The configuration file that is in use"))
        .arg(file("new", "NEW", "The one that replaces it"))
        .arg(output::argument(FORMATS))
}

pub(crate) fn run(matches: &ArgMatches, machine: &dyn Machine) -> Result<Outcome, CommandError> {
    match matches.subcommand() {
        Some(("check", matches)) => check(matches, machine),
        Some(("show", matches)) => show(matches),
        Some(("diff", matches)) => diff(matches),
        Some(_) | None => Ok(Outcome { text: String::new(), code: USAGE }),
    }
}

/// The document of `check -o json`.
#[derive(Serialize)]
struct Findings<'a> {
    severity: Severity,
    findings: &'a [Finding],
}

fn check(matches: &ArgMatches, machine: &dyn Machine) -> Result<Outcome, CommandError> {
    let (flags, format) = flags_and_format(matches, FORMATS)?;
    let (flags, is_offline) = without_own(flags, "--offline");
    let mut inspection = inspect(flags.into_iter(), &Disk);
    if let Some(kubelet) = inspection.kubelet.as_ref().filter(|_| !is_offline && !matches.get_flag("offline"))
    {
        let facts = machine.facts(kubelet, &inspection.flags);
        inspection.add_machine(&facts);
    }
    let (severity, findings) = (inspection.severity(), inspection.findings.as_slice());
    let text = match format {
        Format::Json | Format::Yaml => output::document(&Findings { severity, findings }, format)?,
        Format::Text | Format::Wide | Format::Name => findings_text(findings),
    };
    Ok(Outcome { text, code: code_of(severity) })
}

/// A flag of the command itself may stand behind flags of the kubelet, too.
fn without_own(mut flags: Vec<String>, own: &str) -> (Vec<String>, bool) {
    let before = flags.len();
    flags.retain(|flag| flag != own);
    let was_given = flags.len() < before;
    (flags, was_given)
}

const fn code_of(severity: Severity) -> u8 {
    match severity {
        Severity::Note => 0,
        Severity::Warning => ATTENTION,
        Severity::Error => FAILED,
    }
}

fn findings_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        text += &format!("{finding}\n");
        // Most messages say it already.
        if !finding.allowed.is_empty() && !finding.message.contains(&finding.allowed) {
            text += &format!("    allowed: {}\n", finding.allowed);
        }
        if !finding.advice.is_empty() {
            text += &format!("    do: {}\n", finding.advice);
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    match (count(Severity::Error), count(Severity::Warning)) {
        (0, 0) => text + "The configuration has no problems.\n",
        (errors, warnings) => text + &format!("Errors: {errors}, warnings: {warnings}.\n"),
    }
}

fn show(matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let (flags, format) = flags_and_format(matches, FORMATS)?;
    let (flags, is_changed) = without_own(flags, "--changed");
    let inspection = inspect(flags.into_iter(), &Disk);
    let Some(kubelet) = inspection.kubelet.as_ref().filter(|_| inspection.severity() < Severity::Error)
    else {
        return Ok(Outcome { text: errors_text(&inspection), code: FAILED });
    };
    let is_shown = |origin: &str| origin != "default" || !(is_changed || matches.get_flag("changed"));
    let text = match format {
        Format::Json | Format::Yaml => output::document(&without_secrets(kubelet.configz()), format)?,
        Format::Text | Format::Wide | Format::Name => {
            let rows = inspection.settings.iter().map(|setting| {
                vec![setting.name.clone(), setting.value.to_string(), setting.origin.to_string()]
            });
            let rows: Vec<_> = rows.filter(|row| row.last().is_some_and(|origin| is_shown(origin))).collect();
            table(&["SETTING", "VALUE", "FROM"], &rows)
        }
    };
    Ok(Outcome { text, code: 0 })
}

/// Headers carry credentials.
fn without_secrets(mut document: Value) -> Value {
    if let Some(headers) = document.get_mut("staticPodURLHeader").and_then(Value::as_object_mut) {
        headers.values_mut().for_each(|values| *values = Value::from(vec!["<redacted>"]));
    }
    document
}

fn errors_text(inspection: &Inspection) -> String {
    let errors = inspection.findings.iter().filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| format!("{finding}\n")).collect()
}

/// The document of `diff -o json`.
#[derive(Serialize)]
struct Changes {
    changes: Vec<Change>,
}

fn diff(matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let read = |name: &str| {
        let path =
            matches.get_one::<PathBuf>(name).map(|path| path.display().to_string()).unwrap_or_default();
        inspect(["--config".to_owned(), path].into_iter(), &Disk)
    };
    let (old, new) = (read("old"), read("new"));
    let errors = errors_text(&old) + &errors_text(&new);
    let (Some(before), Some(after), true) = (&old.kubelet, &new.kubelet, errors.is_empty()) else {
        return Ok(Outcome { text: errors, code: FAILED });
    };
    let changes = compute_changes(before, after);
    let needs_drain = changes.iter().any(|change| change.effect == Effect::Drain);
    let format = output::of(matches);
    let text = match format {
        Format::Json | Format::Yaml => output::document(&Changes { changes }, format)?,
        Format::Text | Format::Wide | Format::Name => changes_text(&changes, needs_drain),
    };
    Ok(Outcome { text, code: if needs_drain { ATTENTION } else { 0 } })
}

fn changes_text(changes: &[Change], needs_drain: bool) -> String {
    if changes.is_empty() {
        return "Nothing changes.\n".to_owned();
    }
    let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
    let end = match needs_drain {
        true => "Drain the node before the kubelet is restarted with the new configuration.\n",
        false => "The kubelet can be restarted with the new configuration while pods run.\n",
    };
    lines + end
}
