//! Files of the kubelet that cannot be parsed: renamed, so that an operator can inspect them and the next write succeeds.

use std::path::Path;

use ports::Files;

use crate::error_chain::chain;

/// Renames the file to `<name>.damaged`. The caller continues as if the file did not exist.
pub(crate) async fn set_aside(files: &dyn Files, path: &Path) {
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
