//! One configuration document: parses its text to a tree, and reports every error and warning in it.
//!
//! Owns `kind` and `apiVersion`, unknown and duplicate fields, wrong types, relative paths. Never merges documents.

use std::path::Path;

use serde_json::Value;

use crate::error::{ConfigError, ConfigErrors};
use crate::kubeletconfig::parts::ITEM_FIELDS;
use crate::kubeletconfig::{API_VERSION, KIND, KubeletConfiguration};
use crate::tree;

/// A document whose known fields have the right types. `null` values are kept: in a drop-in they remove a value.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) tree: Value,
    pub(crate) warnings: Vec<String>,
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
    let wrong =
        |problem: String| ConfigErrors::from(ConfigError::Document { path: path.to_owned(), problem });
    let mut warnings = Vec::new();
    let mut tree = parse(text, path, &mut warnings).map_err(wrong)?;
    if tree.is_null() {
        return Err(wrong(format!("the file is empty: it must hold a {KIND} of {API_VERSION}")));
    }
    let Value::Object(fields) = &mut tree else {
        return Err(wrong(format!("the file must hold a {KIND}, with a field on each line")));
    };
    let mut errors = ConfigErrors::default();
    for (field, allowed) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let problem = match fields.remove(field) {
            Some(Value::String(value)) if value == allowed => continue,
            Some(other) => format!("{field} is {other}, but must be {allowed}"),
            None => format!("{field} is missing: it must be {allowed}"),
        };
        errors.push(ConfigError::Document { path: path.to_owned(), problem });
    }
    errors.into_result()?;
    let shape = KubeletConfiguration::shape();
    for unknown in drop_unknown(&mut tree, &shape) {
        warnings.push(format!("{}: unknown field {unknown:?} is ignored", path.display()));
    }
    if let Err(wrong) = check_types(&tree, &shape, path) {
        return Err(wrong.after(warnings));
    }
    resolve_paths(&mut tree, path);
    Ok(Document { tree, warnings })
}

/// A duplicate key is no error: its last value is used, with a warning.
fn parse(text: &str, path: &Path, warnings: &mut Vec<String>) -> Result<Value, String> {
    let (tree, duplicates) = plain_tree(text)?;
    let twice = |field| format!("{}: duplicate field {field:?}, the last one counts", path.display());
    warnings.extend(duplicates.into_iter().map(twice));
    Ok(tree)
}

/// YAML or JSON as a tree, and the paths of the duplicate keys. A document without content is `null`.
pub(crate) fn plain_tree(text: &str) -> Result<(Value, Vec<String>), String> {
    yaml::read_json(text)
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

/// Decodes every field separately, so that each error is reported and not only the first.
fn check_types(tree: &Value, shape: &Value, path: &Path) -> Result<(), ConfigErrors> {
    let mut plain = tree.clone();
    tree::drop_nulls(&mut plain);
    let mut errors = ConfigErrors::default();
    for (field, value) in tree::leaves(&plain, shape) {
        for (field, problem) in wrong_types(field, value, shape) {
            errors.push(ConfigError::Field { origin: path.display().to_string(), field, problem });
        }
    }
    errors.into_result()
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
