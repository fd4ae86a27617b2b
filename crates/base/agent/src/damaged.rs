//! What power cuts and kills leave of the kubelet's files. One that cannot be parsed is renamed, so that an operator can inspect it and
//! the next write succeeds; one that was not finished is removed.

use std::fmt::Display;
use std::path::Path;

use ports::Files;
use ports::host::HostResult;

use crate::error_chain::chain;

/// A state file of an earlier run.
#[derive(Debug)]
pub enum StateFile<T> {
    Missing,
    /// It was set aside. The caller continues as if the file did not exist.
    Damaged,
    Intact(T),
}

impl<T> StateFile<T> {
    /// What is in it, if it is intact.
    #[must_use]
    pub fn intact(self) -> Option<T> {
        match self {
            Self::Missing | Self::Damaged => None,
            Self::Intact(content) => Some(content),
        }
    }
}

/// Reads a state file of at most `limit` bytes, and sets it aside if it cannot be parsed. `what` says in the log what it is.
///
/// # Errors
/// The disk does not return the file.
pub async fn load<T, E: Display>(
    files: &dyn Files,
    path: &Path,
    limit: usize,
    what: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, E> + Send,
) -> HostResult<StateFile<T>> {
    let bytes = match files.read_file(path, limit, false).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(StateFile::Missing),
        Err(error) => return Err(error),
    };
    let error = match parse(&bytes) {
        Ok(content) => return Ok(StateFile::Intact(content)),
        Err(error) => error.to_string(),
    };
    tracing::error!(path = %path.display(), err = error, "Failed to parse {what}");
    set_aside(files, path).await;
    Ok(StateFile::Damaged)
}

/// Renames the file to `<name>.damaged`. The caller continues as if the file did not exist.
pub async fn set_aside(files: &dyn Files, path: &Path) {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    let aside = Path::new(&name);
    match files.rename(path, aside).await {
        Ok(()) => {
            tracing::warn!(path = %path.display(), aside = %aside.display(), "Moved damaged file aside")
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), err = chain(&error), "Failed to move damaged file aside");
        }
    }
}

/// Removes the files in the directory that a killed kubelet did not finish. One that stays is only in the way of a Go kubelet, so that
/// a failure is only logged.
pub async fn remove_unfinished(files: &dyn Files, dir: &Path) {
    if let Err(error) = files.remove_unfinished(dir).await {
        tracing::warn!(path = %dir.display(), err = chain(&error), "Failed to remove unfinished files");
    }
}
