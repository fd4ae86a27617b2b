//! What power cuts and kills leave of the kubelet's files. One that cannot be parsed is renamed, so that an operator can inspect it and
//! the next write succeeds; one that was not finished is removed.

use std::path::Path;

use ports::Files;

use crate::error_chain::chain;

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
