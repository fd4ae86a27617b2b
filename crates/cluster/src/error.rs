//! What can be wrong before any call is made, and what a transport reports.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// A setting of an [`crate::Access`] cannot be used. Says which value, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccessError(String);

impl AccessError {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }

    pub(crate) fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self(format!("cannot read {}: {error}", path.display()))
    }
}

/// A kubeconfig file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    #[error("cannot read the kubeconfig {}: {problem}", path.display())]
    Unreadable { path: PathBuf, problem: String },
    #[error("the kubeconfig {} is {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },
    #[error("the kubeconfig {}: {field}: {problem}", path.display())]
    Field { path: PathBuf, field: String, problem: String },
}

/// Why a request got no answer: with all the causes, in one line.
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
