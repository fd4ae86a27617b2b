//! `kubelet doctor`: what a machine needs before the kubelet starts on it.

use clap::{ArgMatches, Command};
use config::Disk;
use config::inspect::{Severity, inspect};
use explain_core::doctor::{Health, Report, compute_doctor_report};

use crate::output::{self, Format};
use crate::{ATTENTION, CommandError, FAILED, Machine, Outcome, flags_and_format, kubelet_flags};

const FORMATS: &[Format] = &[Format::Text, Format::Json, Format::Yaml];

pub(crate) fn definition() -> Command {
    Command::new("doctor")
        .about("Check this machine before the first start of the kubelet, with a remedy for each problem")
        .after_help("Examples:\n  kubelet doctor\n  kubelet doctor --config /etc/kubernetes/kubelet.yaml --kubeconfig /etc/kubernetes/kubelet.conf\n  kubelet doctor -o json\n\nEach check takes five seconds at most, all at the same time. It changes nothing.\nExit code: 0 fine, 3 warnings, 4 errors, 2 a wrong command line.")
        .arg(output::argument(FORMATS))
        .arg(kubelet_flags())
}

pub(crate) fn run(matches: &ArgMatches, machine: &dyn Machine) -> Result<Outcome, CommandError> {
    let (flags, format) = flags_and_format(matches, FORMATS)?;
    let mut inspection = inspect(flags.into_iter(), &Disk);
    let kubelet = inspection.kubelet.clone().unwrap_or_default();
    let (mut facts, machine) = machine.examine(&kubelet, &inspection.flags);
    inspection.add_machine(&machine);
    let count = |severity| inspection.findings.iter().filter(|finding| finding.severity == severity).count();
    facts.configuration = (count(Severity::Error), count(Severity::Warning));
    let report = compute_doctor_report(&facts);
    let text = match format {
        Format::Json | Format::Yaml => output::document(&report, format)?,
        Format::Text | Format::Wide | Format::Name => text(&report),
    };
    let code = match report.health {
        Health::Fine => 0,
        Health::Warning => ATTENTION,
        Health::Error => FAILED,
    };
    Ok(Outcome { text, code })
}

fn text(report: &Report) -> String {
    let widest = report.checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for check in &report.checks {
        let health = match check.health {
            Health::Fine => "ok",
            Health::Warning => "warning",
            Health::Error => "error",
        };
        text += &format!("{health:7}  {:widest$}  {}\n", check.name, check.what);
        let below = " ".repeat(widest + 11);
        for (name, words) in [("error", &check.error), ("do", &check.remedy)] {
            if !words.is_empty() {
                text += &format!("{below}{name:5}  {}\n", words.replace('\n', " "));
            }
        }
    }
    text
}
