//! Files in memory, and a text form of what a command line resolves to.
#![expect(
    clippy::expect_used,
    reason = "test support: each test binary uses its own part, and a broken fixture should stop it"
)]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use config::{Files, Invocation, Resolved, from_args};
use serde_json::Value;

/// The first lines of a configuration file.
pub(crate) const HEAD: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";

/// Files by path.
#[derive(Debug, Default)]
pub(crate) struct Memory(BTreeMap<PathBuf, String>);

impl Memory {
    /// A file with the usual head.
    pub(crate) fn with(mut self, path: &str, body: &str) -> Self {
        self.0.insert(path.into(), format!("{HEAD}{body}"));
        self
    }

    /// A file exactly as given.
    pub(crate) fn raw(mut self, path: &str, text: &str) -> Self {
        self.0.insert(path.into(), text.to_owned());
        self
    }
}

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.0.get(path).cloned().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }

    fn list_conf_files(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let inside = |path: &&PathBuf| path.starts_with(dir) && path.extension().is_some_and(|e| e == "conf");
        Ok(self.0.keys().filter(inside).cloned().collect())
    }

    fn list_dir(&self, dir: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        let inside: Vec<PathBuf> = self.0.keys().filter(|path| path.parent() == Some(dir)).cloned().collect();
        Ok(Some(inside).filter(|inside| !inside.is_empty()))
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        Ok("/work".into())
    }
}

/// Parses a command line written with spaces; the error is the text of all errors.
pub(crate) fn invoke(line: &str, files: &Memory) -> Result<Invocation, String> {
    from_args(line.split_whitespace().map(str::to_owned), files).map_err(|errors| errors.to_string())
}

pub(crate) fn resolve(line: &str, files: &Memory) -> Result<Resolved, String> {
    match invoke(line, files)? {
        Invocation::Run(resolved) => Ok(*resolved),
        other @ (Invocation::Version { .. } | Invocation::Help(_)) => Err(format!("{other:?}")),
    }
}

/// The difference to an empty command line: fields, node flags, warnings, settings without effect; or the errors.
pub(crate) fn outcome(line: &str, files: &Memory) -> String {
    let resolved = match resolve(line, files) {
        Ok(resolved) => resolved,
        Err(errors) => return format!("{errors}\n"),
    };
    let plain = resolve("", &Memory::default()).expect("the defaults are valid");
    let json = |value: &dyn Fn(&Resolved) -> Value| (value(&plain), value(&resolved));
    let mut lines = Vec::new();
    let (old, new) = json(&|resolved| serde_json::to_value(&resolved.kubelet).expect("serializes"));
    differences("", &old, &new, &mut lines);
    let (old, new) = json(&|resolved| serde_json::to_value(&resolved.flags).expect("serializes"));
    differences("node ", &old, &new, &mut lines);
    lines.extend(resolved.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.extend(resolved.not_yet_warning().map(|warning| format!("not yet: {warning}")));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn differences(prefix: &str, old: &Value, new: &Value, lines: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if !old.is_empty() => {
            let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let dot = if prefix.is_empty() || prefix.ends_with(' ') { "" } else { "." };
                let null = Value::Null;
                let (old, new) = (old.get(key).unwrap_or(&null), new.get(key).unwrap_or(&null));
                differences(&format!("{prefix}{dot}{key}"), old, new, lines);
            }
        }
        _ if old == new => {}
        _ => lines.push(format!("{prefix} = {new}")),
    }
}
