//! Everything that is to be said about a configuration, at once: `kubelet config check`, `show` and `diff`.
//!
//! Unlike a start, which ends at the first stage with errors, it goes on with what can be read. Owns the findings, and where each value
//! came from. The facts about the machine are an argument; nothing here reads them.

mod difference;
mod finding;
mod machine;
mod origins;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::document;
use crate::error::{ConfigError, ConfigErrors};
use crate::flags::{self, Parsed};
use crate::kubeletconfig::defaults;
use crate::load::Files;
use crate::resolve::{self, Merged};
use crate::{KubeletConfiguration, NodeFlags, Resolved, tree};

pub use difference::{Change, Effect, compute_changes};
pub use finding::{Finding, FindingKind, Severity};
pub use machine::{Machine, PortInUse, Space, compute_machine_findings};
pub use origins::{Origin, Setting};

use origins::Origins;

/// A configuration, with what is to be said about it.
#[derive(Debug, Default)]
pub struct Inspection {
    pub findings: Vec<Finding>,
    /// Every setting, by name; empty if the values cannot be decoded.
    pub settings: Vec<Setting>,
    /// The effective values, valid or not; `None` if they cannot be decoded.
    pub kubelet: Option<KubeletConfiguration>,
    pub flags: NodeFlags,
    /// `None` if it has errors.
    pub resolved: Option<Resolved>,
    origins: Origins,
}

impl Inspection {
    /// The worst of the findings.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or_default()
    }

    /// Adds what the machine has to do with it.
    pub fn add_machine(&mut self, machine: &Machine) {
        let Some(kubelet) = &self.kubelet else { return };
        let found = compute_machine_findings(kubelet, &self.flags, machine);
        let placed: Vec<_> = found.into_iter().map(|finding| self.origins.place(finding)).collect();
        self.findings.extend(placed);
    }
}

/// Reads flags, the file and drop-ins, and collects what is wrong with any of them.
#[must_use]
pub fn inspect(args: impl Iterator<Item = String>, files: &dyn Files) -> Inspection {
    let (parsed, errors) = flags::parse_all(args);
    let mut inspection = Inspection::default();
    inspection.findings.extend(errors.errors.iter().map(Finding::of_error));
    inspection
        .findings
        .extend(parsed.given.values().filter_map(|(flag, _)| Finding::of_deprecated_flag(flag)));
    match resolve::node_flags(&parsed) {
        Ok(flags) => inspection.flags = flags,
        Err(errors) => inspection.findings.extend(errors.errors.iter().map(Finding::of_error)),
    }
    let set = read_all(&mut inspection, files);
    let is_overridden =
        |flag: &&'static flags::Flag| flag.field().is_some_and(|field| tree::get(&set, field).is_some());
    for (flag, value) in parsed.given.values() {
        if is_overridden(flag) {
            inspection.findings.extend(inspection.origins.overridden(
                flag,
                tree::get(&set, flag.field().unwrap_or_default()),
                value,
            ));
        }
        inspection.origins.set_flag(flag);
    }
    let merged = resolve::merge(&parsed, set, !inspection.flags.config.is_empty());
    finish(&mut inspection, &parsed, &merged, files);
    inspection
}

/// The values of the file and the drop-ins.
fn read_all(inspection: &mut Inspection, files: &dyn Files) -> Value {
    let mut set = tree::empty();
    for (path, is_drop_in) in paths(inspection, files) {
        let (text, absolute) = match resolve::read_text(&path, files) {
            Ok(read) => read,
            Err(error) => {
                inspection.findings.push(Finding::of_error(&error));
                continue;
            }
        };
        let (document, errors) = document::read_all(&text, &absolute);
        inspection.findings.extend(document.warnings.iter().map(Finding::of_warning));
        inspection.findings.extend(errors.iter().map(Finding::of_error));
        inspection.origins.set_document(&document, &absolute, is_drop_in);
        tree::merge_patch(&mut set, document.tree);
    }
    tree::drop_nulls(&mut set);
    defaults::drop_unset(&mut set);
    set
}

fn paths(inspection: &mut Inspection, files: &dyn Files) -> Vec<(PathBuf, bool)> {
    let flags = &inspection.flags;
    let mut paths = Vec::new();
    if !flags.config.is_empty() {
        paths.push((PathBuf::from(&flags.config), false));
    }
    if !flags.config_dir.is_empty() {
        let dir = Path::new(&flags.config_dir);
        match files.list_conf_files(dir) {
            Ok(found) => paths.extend(found.into_iter().map(|path| (path, true))),
            Err(source) => {
                let error = ConfigError::Read { what: "--config-dir", path: dir.to_owned(), source };
                inspection.findings.push(Finding::of_error(&error));
            }
        }
    }
    paths
}

fn finish(inspection: &mut Inspection, parsed: &Parsed, merged: &Merged, files: &dyn Files) {
    let mut warnings = Vec::new();
    let has_errors = inspection.severity() == Severity::Error;
    let resolved = resolve::finish(parsed, inspection.flags.clone(), merged, files, &mut warnings);
    let mut found: Vec<Finding> = warnings.iter().map(|text| Finding::of_text(text)).collect();
    match resolved {
        Ok(resolved) => {
            found.extend(resolved.not_yet.iter().map(|name| Finding::of_ignored(name)));
            inspection.resolved = Some(resolved).filter(|_| !has_errors);
        }
        Err(ConfigErrors { errors, .. }) => found.extend(errors.iter().map(Finding::of_error)),
    }
    let origins = &inspection.origins;
    inspection.findings.extend(found.into_iter().map(|finding| origins.place(finding)));
    inspection.kubelet = resolve::decode(&merged.tree).ok();
    if let Some(kubelet) = &inspection.kubelet {
        inspection.settings = inspection.origins.settings(kubelet, &inspection.flags);
    }
}

#[cfg(test)]
mod tests;
