//! One configuration document: parses its text to a tree, and reports every error and warning in it.
//!
//! Owns `kind` and `apiVersion`, unknown and duplicate fields, wrong types, relative paths. Never merges documents.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::Value;
use yaml::{Located, Position};

use crate::error::{ConfigError, ConfigErrors, Place};
use crate::flags::nearest;
use crate::kubeletconfig::parts::ITEM_FIELDS;
use crate::kubeletconfig::{API_VERSION, KIND, KubeletConfiguration};
use crate::tree;

/// A document whose known fields have the right types. `null` values are kept: in a drop-in they remove a value.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) tree: Value,
    pub(crate) warnings: Vec<Warning>,
    /// Where each value is, by its path.
    pub(crate) positions: BTreeMap<String, Position>,
}

/// A field that does not mean what its author intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) place: Place,
    pub(crate) field: String,
    pub(crate) kind: WarningKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WarningKind {
    Duplicate,
    /// The nearest known field, if one is near.
    Unknown {
        near: Option<String>,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, field, kind } = self;
        match kind {
            WarningKind::Duplicate => write!(f, "{place}: duplicate field {field:?}, the last one counts"),
            WarningKind::Unknown { near: None } => write!(f, "{place}: unknown field {field:?} is ignored"),
            WarningKind::Unknown { near: Some(near) } => {
                write!(f, "{place}: unknown field {field:?} is ignored (did you mean {near}?)")
            }
        }
    }
}

/// Paths in the file that are relative to the file's own directory.
const PATH_FIELDS: [&str; 7] = [
    "staticPodPath",
    "authentication.x509.clientCAFile",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "resolvConf",
    "volumePluginDir",
    "podLogsDir",
];

/// Reads a document that came from `path`.
///
/// # Errors
/// It is empty, not YAML or JSON, of another kind, or has fields of a wrong type; each of them is reported.
pub(crate) fn read(text: &str, path: &Path) -> Result<Document, ConfigErrors> {
    let (document, errors) = read_all(text, path);
    if errors.is_empty() {
        return Ok(document);
    }
    let warnings = document.warnings.iter().map(ToString::to_string).collect();
    Err(ConfigErrors { errors, warnings })
}

/// What can be read of a document, and everything that is wrong with it. Values of a wrong type are left out.
pub(crate) fn read_all(text: &str, path: &Path) -> (Document, Vec<ConfigError>) {
    let mut document = Document { tree: tree::empty(), warnings: Vec::new(), positions: BTreeMap::new() };
    let wrong = |position, problem| ConfigError::Document {
        place: Place { path: path.to_owned(), position },
        problem,
    };
    let Located { json, positions, duplicates } = match yaml::read_located(text) {
        Ok(located) => located,
        Err(problem) => return (document, vec![wrong(problem.position, unreadable(text, &problem))]),
    };
    let mut tree = json;
    if tree.is_null() {
        let problem = format!("the file is empty: it must hold a {KIND} of {API_VERSION}");
        return (document, vec![wrong(None, problem)]);
    }
    let Value::Object(fields) = &mut tree else {
        let problem = format!("the file must hold a {KIND}, with a field on each line");
        return (document, vec![wrong(None, problem)]);
    };
    let mut errors = Vec::new();
    for (field, allowed) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let problem = match fields.remove(field) {
            Some(Value::String(value)) if value == allowed => continue,
            Some(other) => format!("{field} is {other}, but must be {allowed}"),
            None => format!("{field} is missing: it must be {allowed}"),
        };
        errors.push(wrong(positions.get(field).copied(), problem));
    }
    if !errors.is_empty() {
        return (document, errors);
    }
    let place = |field: &str| Place { path: path.to_owned(), position: position_of(&positions, field) };
    let warn = |field: String, kind| Warning { place: place(&field), field, kind };
    document.warnings.extend(duplicates.into_iter().map(|found| warn(found.path, WarningKind::Duplicate)));
    let shape = KubeletConfiguration::shape();
    for unknown in drop_unknown(&mut tree, &shape) {
        let near = nearest_field(&unknown, &shape);
        document.warnings.push(warn(unknown, WarningKind::Unknown { near }));
    }
    for (field, problem) in drop_wrong_types(&mut tree, &shape) {
        errors.push(ConfigError::Field { place: place(&field), field, problem });
    }
    resolve_paths(&mut tree, path);
    document.tree = tree;
    document.positions = positions;
    (document, errors)
}

/// The position of a value, or of the nearest one that contains it.
pub(crate) fn position_of(positions: &BTreeMap<String, Position>, path: &str) -> Option<Position> {
    // Keys of free-form maps are in brackets in messages, and behind a dot in paths of the text.
    let dotted = path.strip_suffix(']').and_then(|start| start.rsplit_once('['));
    let dotted = dotted.map(|(map, key)| format!("{map}.{key}"));
    let mut at = path;
    loop {
        let found = positions.get(at).or_else(|| positions.get(dotted.as_ref()?));
        match (found, at.rfind(['.', '['])) {
            (Some(position), _) => return Some(*position),
            (None, Some(end)) => at = at.get(..end)?,
            (None, None) => return None,
        }
    }
}

/// The known field that an unknown one was probably meant to be.
fn nearest_field(unknown: &str, shape: &Value) -> Option<String> {
    let (parent, name) = unknown.rsplit_once('.').unwrap_or(("", unknown));
    let list = parent.split('[').next().unwrap_or_default();
    let items = ITEM_FIELDS.iter().find(|(field, _)| *field == list && parent.ends_with(']'));
    if let Some((_, known)) = items {
        return nearest(name, known.iter().copied()).map(str::to_owned);
    }
    let fields = if parent.is_empty() { Some(shape) } else { tree::get(shape, parent) };
    let siblings = fields.and_then(Value::as_object).into_iter().flat_map(|fields| fields.keys());
    let near = nearest(name, siblings.map(String::as_str));
    let elsewhere = || {
        let is_end = |path: &&String| path.rsplit('.').next() == Some(name);
        let leaves: Vec<String> = tree::leaves(shape, shape).into_iter().map(|(path, _)| path).collect();
        leaves.iter().find(is_end).cloned()
    };
    let whole = |near: &str| if parent.is_empty() { near.to_owned() } else { format!("{parent}.{near}") };
    near.map(whole).or_else(elsewhere)
}

fn unreadable(text: &str, problem: &yaml::Problem) -> String {
    format!("not valid {}: {problem}", yaml::format_of(text))
}

/// YAML or JSON as a tree, and the paths of the duplicate keys. A document without content is `null`.
pub(crate) fn plain_tree(text: &str) -> Result<(Value, Vec<String>), String> {
    let read = yaml::read_json(text);
    read.map(|(tree, duplicates)| (tree, duplicates.into_iter().map(|found| found.path).collect()))
        .map_err(|problem| format!("not valid {}: {}", yaml::format_of(text), problem.with_place()))
}

fn drop_unknown(tree: &mut Value, shape: &Value) -> Vec<String> {
    let unknown: Vec<String> = tree::leaves(tree, shape)
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| tree::get(shape, path).is_none() && !path.is_empty())
        .collect();
    // A key with a dot looks like a path: it is reported here, and ignored when the tree is decoded.
    unknown.iter().for_each(|path| tree::remove(tree, path));
    let mut found = unknown;
    for (list, known) in ITEM_FIELDS {
        let Some(items) = tree::get(tree, list).and_then(Value::as_array) else { continue };
        for (index, item) in items.iter().enumerate() {
            let fields = item.as_object().into_iter().flat_map(|fields| fields.keys());
            let strange = fields.filter(|field| !known.contains(&field.as_str()));
            found.extend(strange.map(|field| format!("{list}[{index}].{field}")));
        }
    }
    found
}

/// Decodes every field separately, so that each error is found and not only the first, and removes those of a wrong type.
fn drop_wrong_types(tree: &mut Value, shape: &Value) -> Vec<(String, String)> {
    let mut plain = tree.clone();
    tree::drop_nulls(&mut plain);
    let mut found = Vec::new();
    for (field, value) in tree::leaves(&plain, shape) {
        let wrong = wrong_types(field.clone(), value, shape);
        if !wrong.is_empty() {
            tree::remove(tree, &field);
        }
        found.extend(wrong);
    }
    found
}

fn wrong_types(field: String, value: &Value, shape: &Value) -> Vec<(String, String)> {
    let wants_fields =
        tree::get(shape, &field).and_then(Value::as_object).is_some_and(|known| !known.is_empty());
    if wants_fields && !value.is_object() {
        return vec![(field, format!("is {value}, but must have fields of its own"))];
    }
    let items = ITEM_FIELDS.iter().any(|(list, _)| *list == field);
    if items && value.as_array().is_some_and(|items| !items.iter().all(Value::is_object)) {
        return vec![(field, "every item must have fields of its own".to_owned())];
    }
    // Each entry of a free-form map, under its own name.
    let entries: Vec<(String, Value)> = match value.as_object().filter(|entries| !entries.is_empty()) {
        Some(entries) => {
            let alone = |(key, value): (&String, &Value)| {
                (
                    format!("{field}[{key}]"),
                    Value::Object([(key.clone(), value.clone())].into_iter().collect()),
                )
            };
            entries.iter().map(alone).collect()
        }
        None => vec![(field.clone(), value.clone())],
    };
    entries.into_iter().filter_map(|(name, value)| Some((name, wrong_type(&field, value)?))).collect()
}

fn wrong_type(field: &str, value: Value) -> Option<String> {
    let mut alone = tree::empty();
    tree::set(&mut alone, field, value);
    let error = serde_json::from_value::<KubeletConfiguration>(alone).err()?;
    Some(describe_types(error.to_string()))
}

/// Replaces serde's names of Rust types.
fn describe_types(mut problem: String) -> String {
    for (rust, ours) in [
        ("expected i32", "expected a whole number from -2147483648 to 2147483647"),
        ("expected i64", "expected a whole number"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected names with values"),
        ("expected a string", "expected a string (put it in quotes)"),
        ("expected a boolean", "expected true or false"),
    ] {
        if let Some(start) = problem.strip_suffix(rust) {
            problem = format!("{start}{ours}");
            break;
        }
    }
    problem
}

fn resolve_paths(tree: &mut Value, path: &Path) {
    let Some(dir) = path.parent() else { return };
    for field in PATH_FIELDS {
        let Some(given) = tree::get(tree, field).and_then(Value::as_str) else { continue };
        if !given.is_empty() && Path::new(given).is_relative() {
            let resolved = dir.join(given).display().to_string();
            tree::set(tree, field, resolved.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reading_a_document_never_panics(text in "\\PC{0,200}") {
            let _ = read(&text, Path::new("/etc/kubelet.yaml"));
        }

        #[test]
        fn reading_lines_that_look_like_yaml_never_panics(
            lines in prop::collection::vec("( {0,4})(- )?[a-zA-Z&*!]{0,12}: ?[\\[{\"'|>]?[0-9a-z.~]{0,8}[\\]}\"']?", 0..12)
        ) {
            let text = format!("kind: {KIND}\napiVersion: {API_VERSION}\n{}", lines.join("\n"));
            let _ = read(&text, Path::new("/etc/kubelet.yaml"));
        }
    }
}
