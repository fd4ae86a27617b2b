//! What the house rules are, as code that checks them: [`tidy`] reads the sources, [`parity`] the list of what is built and
//! the page that is generated from it. The tests in `tests/it` run the checks over this repository.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

pub mod compare;
pub(crate) mod files;
pub mod parity;
pub mod site;
pub mod source;
pub mod tidy;

/// A violation of a rule: its position and the problem.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path below the workspace root.
    pub file: String,
    /// Counted from 1; 0 when the finding is about the whole file.
    pub line: usize,
    /// The problem and what to do, in one sentence.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// A check failed to run.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A file or directory could not be read.
    #[error("read {path}")]
    Read {
        /// Path of the file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// `cargo metadata` failed, or its output is malformed.
    #[error("failed to run cargo metadata: {0}")]
    Metadata(String),
}

/// The repository this program was built from.
pub fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

pub(crate) fn read(path: &Path) -> Result<String, CheckError> {
    std::fs::read_to_string(path).map_err(|source| CheckError::Read { path: path.to_path_buf(), source })
}
