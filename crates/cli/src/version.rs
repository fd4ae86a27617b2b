//! `kubelet version`: which build this program is, and which Kubernetes it implements.

use clap::{ArgMatches, Command};
use model::BuildInfo;
use serde::Serialize;

use crate::output::{self, Format};
use crate::{CommandError, Outcome};

const FORMATS: &[Format] = &[Format::Text, Format::Json, Format::Yaml];

/// The document of `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    kubernetes_version: &'static str,
    version: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    commit: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    date: &'static str,
}

pub(crate) fn definition() -> Command {
    Command::new("version")
        .about("Print which build this is, and which Kubernetes it implements")
        .after_help("Examples:\n  kubelet version\n  kubelet version -o json\n\nThe only line of kubelet --version is that of Kubernetes, which programs read.")
        .arg(output::argument(FORMATS))
}

pub(crate) fn run(matches: &ArgMatches, build: BuildInfo) -> Result<Outcome, CommandError> {
    let text = match output::of(matches) {
        format @ (Format::Json | Format::Yaml) => {
            let BuildInfo { version, commit, date } = build;
            let kubernetes_version = config::KUBERNETES_VERSION;
            output::document(&Version { kubernetes_version, version, commit, date }, format)?
        }
        Format::Text | Format::Wide | Format::Name => {
            format!("{}\n{build}\n", config::version_line())
        }
    };
    Ok(Outcome { text, code: 0 })
}
