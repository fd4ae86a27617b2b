//! Parses YAML and JSON text into trees whose nodes have their position, deserializes trees into any type, and writes YAML.
//!
//! The only crate with a YAML parser: manifests, configuration and kubeconfigs are parsed by the same functions, so that they
//! are interpreted the same way (and the parser is in the binary once). Because parsing has two steps, text to tree and tree
//! to type, every error has its line and field, and unknown fields can be reported. Knows no field names, reads no files.

#![forbid(unsafe_code)]

mod reading;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde_saphyr::{DuplicateKeyPolicy, Options};

pub use reading::Reading;
pub use tree::Node;

/// A line and a column, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u64,
    pub column: u64,
}

/// An error in a text, or in one value of it. Its text has the field, but not the position, which is a separate field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub position: Option<Position>,
    /// The field, like `spec.containers[0].image`; empty for the document as a whole.
    pub path: String,
    pub(crate) message: String,
}

impl Problem {
    /// The text with the position.
    #[must_use]
    pub fn with_place(&self) -> String {
        match self.position {
            Some(Position { line, column }) => format!("{self} at line {line}, column {column}"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

impl std::error::Error for Problem {}

/// All documents of a text.
#[derive(Debug)]
pub struct Documents {
    pub documents: Vec<Node>,
    /// A duplicate key: the last value counts, but it should be reported.
    pub duplicate: Option<Problem>,
}

/// Parses all documents of a text; empty ones are skipped.
///
/// # Errors
/// The text is neither YAML nor JSON.
pub fn read(text: &str) -> Result<Documents, Problem> {
    match documents(text, DuplicateKeyPolicy::Error) {
        Ok(documents) => Ok(Documents { documents, duplicate: None }),
        Err(duplicate) => {
            let documents = documents(text, DuplicateKeyPolicy::LastWins)?;
            Ok(Documents { documents, duplicate: Some(duplicate) })
        }
    }
}

/// Parses the only document of a text, in which duplicate keys are an error; `None` if there are only comments.
///
/// # Errors
/// The text is neither YAML nor JSON, or contains several documents.
pub fn read_one(text: &str) -> Result<Option<Node>, Problem> {
    only(documents(text, DuplicateKeyPolicy::Error)?)
}

/// Parses the only document of a text as plain JSON, with the duplicate keys, of which the last value counts. Only comments
/// become `null`.
///
/// # Errors
/// As [`read_one`].
pub fn read_json(text: &str) -> Result<(serde_json::Value, Vec<Duplicate>), Problem> {
    read_located(text).map(|located| (located.json, located.duplicates))
}

/// The document as YAML.
///
/// # Errors
/// The document has a value that YAML cannot express.
pub fn write(document: &impl serde::Serialize) -> Result<String, String> {
    serde_saphyr::to_string(document).map_err(|error| error.to_string())
}

/// A key that its map has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Such as `spec.containers[0].image`.
    pub path: String,
    pub key: String,
    pub position: Option<Position>,
}

/// A document as plain JSON, with the position of each value by its path, such as `spec.containers[0].image`.
#[derive(Clone, Debug, Default)]
pub struct Located {
    /// Of duplicate keys the last value.
    pub json: serde_json::Value,
    pub positions: BTreeMap<String, Position>,
    pub duplicates: Vec<Duplicate>,
}

/// Parses the only document of a text as plain JSON with positions. Only comments become `null`.
///
/// # Errors
/// As [`read_one`].
pub fn read_located(text: &str) -> Result<Located, Problem> {
    let document = only(documents(text, DuplicateKeyPolicy::PassThrough)?)?;
    let mut located = Located::default();
    if let Some(node) = document {
        located.json = node.into_json("", &mut located.positions, &mut located.duplicates);
    }
    Ok(located)
}

/// The format of a text that could not be parsed, for errors.
#[must_use]
pub fn format_of(text: &str) -> &'static str {
    if text.trim_start().starts_with('{') { "JSON" } else { "YAML" }
}

fn only(documents: Vec<Node>) -> Result<Option<Node>, Problem> {
    let mut documents = documents.into_iter();
    let first = documents.next();
    match documents.next() {
        None => Ok(first),
        Some(second) => Err(second.problem("only one document is expected".to_owned())),
    }
}

fn documents(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Vec<Node>, Problem> {
    let read = |text: &str| {
        serde_saphyr::from_multiple_with_options(text, options(duplicate_keys))
            .map_err(|error| problem(&error))
    };
    match read(text) {
        // JSON may be indented with tabs, which YAML forbids.
        Err(_) if format_of(text) == "JSON" && text.contains('\t') => read(&text.replace('\t', " ")),
        result => result,
    }
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn problem(error: &serde_saphyr::Error) -> Problem {
    let position = error.location().and_then(tree::position);
    let text = error.to_string();
    // The position is a separate field, and not repeated in the message.
    let place = position.map(|at| format!(" at line {}, column {}", at.line, at.column));
    let message = place.and_then(|place| text.strip_suffix(&place).map(str::to_owned)).unwrap_or(text);
    Problem { position, path: String::new(), message }
}
