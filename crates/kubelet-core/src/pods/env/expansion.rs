//! `$(VAR)` expansion (docs/behaviour/pod-environment.md) within the limits of execve(2). Never builds a text that is
//! longer than its limit: a pod that doubles a value forty times costs no more than one that does not.

use std::collections::{BTreeMap, BTreeSet};

/// The longest string in an environment or a command line that the kernel accepts, including its NUL (`MAX_ARG_STRLEN`: 32
/// pages of 4 KiB; execve(2)).
pub(super) const MAX_STRING: usize = 128 << 10;
/// Maximum size of environment and command line together: a quarter of the usual stack limit of 8 MiB (execve(2)).
pub const MAX_TOTAL: usize = 2 << 20;
/// The longest path that the kernel accepts (`PATH_MAX`).
const MAX_PATH: usize = 4096;

/// The environment or the command line of a container cannot be passed on; the message of waiting reason
/// `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpansionError {
    #[error(
        "environment variable {:?} is longer than the limit of {MAX_STRING} bytes",
        model::text::cut(name, 128)
    )]
    Variable { name: String },
    #[error("an argument of the command is longer than the limit of {MAX_STRING} bytes after expansion")]
    Argument,
    #[error("environment and command are larger than the limit of {MAX_TOTAL} bytes together")]
    Total,
    /// The CRI has text for commands, but bytes for variables.
    #[error("the command refers to environment variables that are not valid UTF-8: {}", listed(names))]
    NotText { names: BTreeSet<String> },
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// A text would be longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Memory of a string in a new process: its bytes, a NUL, and a pointer to it.
pub(super) const fn cost(length: usize) -> usize {
    length.saturating_add(1 + size_of::<u64>())
}

/// Replaces `$(NAME)` by its value and `$$` by `$`. Names without a value, and anything that is no reference, stay as
/// written.
///
/// # Errors
/// The text would be longer than `max` bytes.
pub(super) fn expand<'v>(
    text: &str,
    max: usize,
    mut value_of: impl FnMut(&str) -> Option<&'v [u8]>,
) -> Result<Vec<u8>, TooLong> {
    let mut expanded = Bounded { text: Vec::with_capacity(text.len().min(max)), max };
    let mut rest = text;
    // A text of nothing but `$(` must not be searched to its end for each of them.
    let mut has_closing = true;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push(before.as_bytes())?;
        let reference = after.strip_prefix('(').filter(|_| has_closing);
        rest = if let Some(escaped) = after.strip_prefix('$') {
            expanded.push(b"$")?;
            escaped
        } else if let Some((name, behind)) = reference.and_then(|inner| inner.split_once(')')) {
            match value_of(name) {
                Some(value) => expanded.push(value)?,
                None => ["$(", name, ")"].into_iter().try_for_each(|part| expanded.push(part.as_bytes()))?,
            }
            behind
        } else {
            has_closing &= reference.is_none();
            expanded.push(b"$")?;
            after
        };
    }
    expanded.push(rest.as_bytes())?;
    Ok(expanded.text)
}

struct Bounded {
    text: Vec<u8>,
    max: usize,
}

impl Bounded {
    fn push(&mut self, part: &[u8]) -> Result<(), TooLong> {
        if part.len() > self.max.saturating_sub(self.text.len()) {
            return Err(TooLong);
        }
        self.text.extend_from_slice(part);
        Ok(())
    }
}

/// Expands command lines with a complete environment; all of them must fit together.
#[derive(Debug)]
pub struct CommandExpander<'a> {
    values: BTreeMap<&'a str, &'a [u8]>,
    total: usize,
}

impl<'a> CommandExpander<'a> {
    /// # Errors
    /// The environment alone is too large.
    pub fn new<V: AsRef<[u8]>>(env: &'a [(String, V)]) -> Result<Self, ExpansionError> {
        let total = env.iter().map(|(name, value)| cost(name.len() + 1 + value.as_ref().len())).sum();
        if total > MAX_TOTAL {
            return Err(ExpansionError::Total);
        }
        Ok(Self { values: values_by_name(env), total })
    }

    /// # Errors
    /// An argument is too long or not UTF-8, or environment and arguments together are too large.
    pub fn expand(&mut self, words: &[String]) -> Result<Vec<String>, ExpansionError> {
        let mut expanded = Vec::new();
        for word in words {
            let left = MAX_TOTAL.saturating_sub(self.total).saturating_sub(cost(0));
            let max = left.min(MAX_STRING - 1);
            let is_last_of_total = left < MAX_STRING - 1;
            let mut not_text = BTreeSet::new();
            let word =
                expand(word, max, |name| value_of(&self.values, name, &mut not_text)).map_err(|TooLong| {
                    if is_last_of_total { ExpansionError::Total } else { ExpansionError::Argument }
                })?;
            self.total += cost(word.len());
            if self.total > MAX_TOTAL {
                return Err(ExpansionError::Total);
            }
            expanded.push(String::from_utf8(word).map_err(|_| ExpansionError::NotText { names: not_text })?);
        }
        Ok(expanded)
    }
}

/// Expands every argument of one command line with a complete environment.
///
/// # Errors
/// As [`CommandExpander::expand`].
pub fn expand_all<V: AsRef<[u8]>>(
    words: &[String],
    env: &[(String, V)],
) -> Result<Vec<String>, ExpansionError> {
    CommandExpander::new(env)?.expand(words)
}

/// Why a `subPathExpr` is not a valid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubPathError {
    #[error("missing value for {}", listed(names))]
    MissingValue { names: BTreeSet<String> },
    #[error("environment variables are not valid UTF-8: {}", listed(names))]
    NotText { names: BTreeSet<String> },
    #[error("the path is longer than {MAX_PATH} bytes after expansion")]
    TooLong,
}

/// The variables of a container by name, for all expressions of one container.
#[must_use]
pub fn values_by_name<V: AsRef<[u8]>>(env: &[(String, V)]) -> BTreeMap<&str, &[u8]> {
    env.iter().map(|(name, value)| (name.as_str(), value.as_ref())).collect()
}

/// The value of a variable. Adds the variable to `not_text` if it is not UTF-8.
fn value_of<'v>(
    values: &BTreeMap<&str, &'v [u8]>,
    name: &str,
    not_text: &mut BTreeSet<String>,
) -> Option<&'v [u8]> {
    let value = values.get(name).copied();
    if value.is_some_and(|value| std::str::from_utf8(value).is_err()) {
        not_text.insert(name.to_owned());
    }
    value
}

/// Expands a `subPathExpr`. Unlike elsewhere, a variable that does not exist or is empty is an error: the literal text
/// would be a path, and an empty one the whole volume.
///
/// # Errors
/// Some names have no value or one that is not UTF-8, or the path is longer than the kernel accepts.
pub fn expand_sub_path(expression: &str, values: &BTreeMap<&str, &[u8]>) -> Result<String, SubPathError> {
    let (mut names, mut not_text) = (BTreeSet::new(), BTreeSet::new());
    let expanded = expand(expression, MAX_PATH - 1, |name| {
        let value = value_of(values, name, &mut not_text).unwrap_or_default();
        if value.is_empty() {
            names.insert(name.to_owned());
        }
        Some(value)
    });
    if !names.is_empty() {
        return Err(SubPathError::MissingValue { names });
    }
    let path = expanded.map_err(|TooLong| SubPathError::TooLong)?;
    String::from_utf8(path).map_err(|_| SubPathError::NotText { names: not_text })
}
