//! Where each value of a configuration came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::finding::{Finding, FindingKind, Severity};
use crate::document::{self, Document};
use crate::error::Place;
use crate::flags::{Flag, Target};
use crate::{KubeletConfiguration, NodeFlags, flags, tree};

/// What set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(Place),
    DropIn(Place),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) | Self::DropIn(place) => write!(f, "{place}"),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// One setting with its effective value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// `authentication.anonymous.enabled`, or `--root-dir` for a setting that only the command line has.
    pub name: String,
    pub value: Value,
    pub origin: Origin,
}

#[derive(Debug, Default)]
pub(super) struct Origins(BTreeMap<String, Origin>);

impl Origins {
    pub(super) fn set_document(&mut self, document: &Document, path: &Path, is_drop_in: bool) {
        let shape = KubeletConfiguration::shape();
        for (field, value) in tree::leaves(&document.tree, &shape) {
            let position = document::position_of(&document.positions, &field);
            let place = Place { path: path.to_owned(), position };
            let origin = if is_drop_in { Origin::DropIn(place) } else { Origin::File(place) };
            // A null removes the value.
            if value.is_null() {
                self.0.remove(&field);
            } else {
                self.0.insert(field, origin);
            }
        }
    }

    pub(super) fn set_flag(&mut self, flag: &Flag) {
        let name = match flag.target {
            Target::Field(path) | Target::DeprecatedField(path) => path.to_owned(),
            Target::Node(_) | Target::DeprecatedNode(_) => format!("--{}", flag.name),
            Target::Ignored | Target::Action => return,
        };
        self.0.insert(name, Origin::Flag(flag.name));
    }

    /// A flag that overrides another value of a file.
    pub(super) fn overridden(&self, flag: &Flag, of_file: Option<&Value>, value: &Value) -> Option<Finding> {
        let field = flag.field()?;
        let (Origin::File(place) | Origin::DropIn(place)) = self.0.get(field)? else { return None };
        let of_file = of_file.filter(|of_file| *of_file != value && flag.name != "feature-gates")?;
        let message = match is_secret(field) {
            true => format!("--{} overrides {field} of this file", flag.name),
            false => format!("--{} overrides {field} {of_file} of this file", flag.name),
        };
        Some(Finding::new(Severity::Note, FindingKind::Conflicting, field, message).at(place))
    }

    /// The finding with the place of its setting.
    pub(super) fn place(&self, finding: Finding) -> Finding {
        if finding.file.is_some() {
            return finding;
        }
        match self.0.get(&finding.setting) {
            Some(Origin::File(place) | Origin::DropIn(place)) => finding.at(place),
            Some(Origin::Flag(_) | Origin::Default) | None => finding,
        }
    }

    /// Every setting with its value. Those that are secret have none.
    pub(super) fn settings(&self, kubelet: &KubeletConfiguration, flags: &NodeFlags) -> Vec<Setting> {
        // Both hold plain values, so that this cannot fail.
        let [fields, own] =
            [serde_json::to_value(kubelet), serde_json::to_value(flags)].map(Result::unwrap_or_default);
        let origin = |name: &str| self.0.get(name).cloned().unwrap_or(Origin::Default);
        let shape = KubeletConfiguration::shape();
        let of_fields = tree::leaves(&fields, &shape).into_iter().map(|(name, value)| {
            let value = shown(&name, value);
            Setting { origin: origin(&name), name, value }
        });
        let of_flags = flags::FLAGS.iter().filter_map(|flag| {
            let (Target::Node(field) | Target::DeprecatedNode(field)) = flag.target else { return None };
            let name = format!("--{}", flag.name);
            Some(Setting { origin: origin(&name), value: tree::get(&own, field)?.clone(), name })
        });
        of_fields.chain(of_flags).collect()
    }
}

/// Headers carry credentials.
pub(super) fn is_secret(field: &str) -> bool {
    field == "staticPodURLHeader"
}

/// The value as it may be shown.
pub(super) fn shown(field: &str, value: &Value) -> Value {
    let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty);
    if is_secret(field) && !is_empty { Value::from("<redacted>") } else { value.clone() }
}
