//! Errors of the configuration, and the text of transport errors.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// An invalid setting of an [`crate::Access`]. The text has the value, and which values are allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccessError(String);

impl AccessError {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }

    pub(crate) fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self(format!("failed to read {}: {error}", path.display()))
    }
}

/// An invalid kubeconfig file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    #[error("failed to read kubeconfig {}: {problem}", path.display())]
    Unreadable { path: PathBuf, problem: String },
    #[error("kubeconfig {} is {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },
    #[error("kubeconfig {}: {field}: {problem}", path.display())]
    Field { path: PathBuf, field: String, problem: String },
}

/// An error with all its causes, in one line.
pub(crate) fn in_full(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let _ = fmt::Write::write_fmt(&mut text, format_args!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}
