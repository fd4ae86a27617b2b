//! One thing that is to be said about a configuration.

use std::fmt;

use serde::Serialize;

use crate::document::{Warning, WarningKind};
use crate::error::{ConfigError, Place};
use crate::flags::{Flag, Target};

/// How bad it is. The exit code of the commands follows from the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing, and nothing is wrong.
    #[default]
    Note,
    /// The kubelet starts, but it may not do what is meant.
    Warning,
    /// The kubelet does not start, or runs no pods.
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingKind {
    /// No such flag, field or feature gate.
    Unknown,
    Deprecated,
    /// It has no effect.
    Ignored,
    /// Two settings do not go together, or one overrides the other.
    Conflicting,
    /// A value that is not allowed.
    Invalid,
    /// A file that cannot be read.
    Unreadable,
    /// This machine does not allow it.
    Impossible,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub severity: Severity,
    pub kind: FindingKind,
    /// `maxPods`, `--max-pods`; empty for the configuration as a whole.
    pub setting: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    pub message: String,
    /// Which values are allowed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub allowed: String,
    /// What an operator can do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

/// `error: /etc/kubelet.yaml:3:10: maxPods is -1, but must be 0 or more`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: ")?;
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            for number in [self.line, self.column].into_iter().flatten() {
                write!(f, "{number}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.message)
    }
}

impl Finding {
    #[must_use]
    pub fn new(severity: Severity, kind: FindingKind, setting: &str, message: impl Into<String>) -> Self {
        Self {
            severity,
            kind,
            setting: setting.to_owned(),
            file: None,
            line: None,
            column: None,
            message: message.into(),
            allowed: String::new(),
            advice: String::new(),
        }
    }

    #[must_use]
    pub fn advising(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    pub(super) fn at(mut self, place: &Place) -> Self {
        self.file = Some(place.path.display().to_string());
        self.line = place.position.map(|at| at.line);
        self.column = place.position.map(|at| at.column);
        self
    }

    pub(super) fn of_error(error: &ConfigError) -> Self {
        let text = || error.to_string();
        let whole = |kind, setting: &str| Self::new(Severity::Error, kind, setting, text());
        match error {
            ConfigError::UnknownCommand { argument } => whole(FindingKind::Unknown, argument),
            ConfigError::UnknownFlag { flag, .. } => whole(FindingKind::Unknown, flag),
            ConfigError::RemovedFlag { flag, instead } => {
                whole(FindingKind::Unknown, &format!("--{flag}")).advising(*instead)
            }
            ConfigError::MissingValue { flag, expected } => {
                let finding = whole(FindingKind::Invalid, &format!("--{flag}"));
                Self { allowed: (*expected).to_owned(), ..finding }
            }
            ConfigError::FlagValue { flag, problem, .. } => {
                let allowed = problem.split_once("must be ").map_or("", |(_, allowed)| allowed);
                let finding = whole(FindingKind::Invalid, &format!("--{flag}"));
                Self { allowed: allowed.to_owned(), ..finding }
            }
            ConfigError::Read { what, path, .. } => {
                whole(FindingKind::Unreadable, what).at(&Place::file(path))
            }
            ConfigError::Document { place, problem } => {
                Self::new(Severity::Error, FindingKind::Invalid, "", problem.clone()).at(place)
            }
            ConfigError::Field { place, field, problem } => {
                let allowed = problem.split_once("expected ").map_or("", |(_, allowed)| allowed);
                let message = format!("{field}: {problem}");
                let finding = Self::new(Severity::Error, FindingKind::Invalid, field, message).at(place);
                Self { allowed: allowed.to_owned(), ..finding }
            }
            ConfigError::Invalid { field, value, allowed } => {
                let message = format!("{field} is {value}, but must be {allowed}");
                let setting = field.split(' ').next().unwrap_or_default();
                let finding = Self::new(Severity::Error, FindingKind::Invalid, setting, message);
                Self { allowed: allowed.clone(), ..finding }
            }
            ConfigError::Conflict { problem } => {
                Self::new(Severity::Error, FindingKind::Conflicting, first_setting(problem), problem.clone())
            }
            ConfigError::Gate(gate) => {
                let kind = match gate {
                    crate::GateError::Unknown { .. } => FindingKind::Unknown,
                    crate::GateError::Locked { .. } | crate::GateError::Needs { .. } => FindingKind::Invalid,
                };
                Self::new(Severity::Error, kind, "featureGates", gate.to_string())
            }
        }
    }

    pub(super) fn of_deprecated_flag(flag: &Flag) -> Option<Self> {
        let kind = match flag.target {
            Target::Ignored => FindingKind::Ignored,
            Target::Field(_)
            | Target::DeprecatedField(_)
            | Target::Node(_)
            | Target::DeprecatedNode(_)
            | Target::Action => FindingKind::Deprecated,
        };
        let setting = format!("--{}", flag.name);
        flag.deprecation().map(|text| Self::new(Severity::Warning, kind, &setting, text))
    }

    pub(super) fn of_warning(warning: &Warning) -> Self {
        let Warning { place, field, kind } = warning;
        let (kind, message, allowed) = match kind {
            WarningKind::Duplicate => {
                (FindingKind::Conflicting, format!("{field} is set twice, the last one counts"), None)
            }
            WarningKind::Unknown { near: None } => {
                (FindingKind::Unknown, format!("unknown field {field} is ignored"), None)
            }
            WarningKind::Unknown { near: Some(near) } => {
                let message = format!("unknown field {field} is ignored (did you mean {near}?)");
                (FindingKind::Unknown, message, Some(near.clone()))
            }
        };
        let finding = Self::new(Severity::Warning, kind, field, message).at(place);
        Self { allowed: allowed.unwrap_or_default(), ..finding }
    }

    /// A warning of a start.
    pub(super) fn of_text(text: &str) -> Self {
        let (kind, setting) = match text.split(' ').next() {
            Some("Setting") => (FindingKind::Deprecated, "featureGates"),
            _ => (FindingKind::Invalid, first_setting(text)),
        };
        Self::new(Severity::Warning, kind, setting, text)
    }

    pub(super) fn of_ignored(name: &str) -> Self {
        let message = format!("{name} has no effect in this kubelet");
        let setting = if name.starts_with("featureGates.") { "featureGates" } else { name };
        Self::new(Severity::Warning, FindingKind::Ignored, setting, message)
    }
}

/// The first word that is the name of a field: it begins with a small letter, and has a large one or a dot.
fn first_setting(text: &str) -> &str {
    let is_name = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.contains(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
    };
    text.split([' ', ',', ':', ';']).find(is_name).unwrap_or_default()
}
