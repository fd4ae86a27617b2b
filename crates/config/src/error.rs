//! The errors of flags and configuration, and their messages. Prints nothing.

use std::fmt;
use std::path::{Path, PathBuf};

use yaml::Position;

/// A file, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub path: PathBuf,
    pub position: Option<Position>,
}

impl Place {
    pub(crate) fn file(path: &Path) -> Self {
        Self { path: path.to_owned(), position: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(Position { line, column }) => write!(f, "{}:{line}:{column}", self.path.display()),
            None => write!(f, "{}", self.path.display()),
        }
    }
}

/// One problem: the flag or field, its value, and the values that are allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("unknown command {argument:?}")]
    UnknownCommand { argument: String },
    #[error("unknown flag: {flag}{hint}")]
    UnknownFlag { flag: String, hint: String },
    #[error("unknown flag: --{flag} was removed from Kubernetes; {instead}")]
    RemovedFlag { flag: String, instead: &'static str },
    #[error("flag needs an argument: --{flag} takes {expected}")]
    MissingValue { flag: &'static str, expected: &'static str },
    #[error("invalid argument {value:?} for \"--{flag}\" flag: {problem}")]
    FlagValue { flag: &'static str, value: String, problem: String },
    #[error("cannot read {what} {}: {source}", path.display())]
    Read { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{place}: {problem}")]
    Document { place: Place, problem: String },
    #[error("{place}: field {field}: {problem}")]
    Field { place: Place, field: String, problem: String },
    #[error("invalid configuration: {field} is {value}, but must be {allowed}")]
    Invalid { field: String, value: String, allowed: String },
    #[error("invalid configuration: {problem}")]
    Conflict { problem: String },
    #[error("{0}")]
    Gate(#[from] crate::gates::GateError),
}

/// All problems, displayed one per line, and the warnings that were found before them, which are not displayed. It has at
/// least one error when it is returned as an error.
#[derive(Debug, Default)]
pub struct ConfigErrors {
    pub errors: Vec<ConfigError>,
    pub warnings: Vec<String>,
}

impl ConfigErrors {
    pub(crate) fn push(&mut self, error: ConfigError) {
        self.errors.push(error);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
    }

    /// The same errors, with earlier warnings before theirs.
    pub(crate) fn after(mut self, mut warnings: Vec<String>) -> Self {
        warnings.append(&mut self.warnings);
        Self { warnings, ..self }
    }

    pub(crate) fn into_result(self) -> Result<(), Self> {
        if self.errors.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self { errors: vec![error], warnings: Vec::new() }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
