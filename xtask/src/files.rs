//! The files below a folder that a check reads.

use std::path::{Path, PathBuf};

use crate::CheckError;

/// Every file below `folder` that `is_wanted`, in order of path. Folders with a name in `skipped` are left out.
pub(crate) fn below(
    folder: &Path,
    skipped: &[&str],
    is_wanted: fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, CheckError> {
    let mut paths = Vec::new();
    collect(folder, skipped, is_wanted, &mut paths)?;
    paths.sort();
    Ok(paths)
}

/// Whether the name of the file ends with a dot and one of `extensions`.
pub(crate) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known))
}

fn collect(
    folder: &Path,
    skipped: &[&str],
    is_wanted: fn(&Path) -> bool,
    paths: &mut Vec<PathBuf>,
) -> Result<(), CheckError> {
    let failed = |source| CheckError::Read { path: folder.to_path_buf(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_skipped = path.file_name().is_some_and(|name| skipped.iter().any(|other| name == *other));
        if path.is_dir() {
            if !is_skipped {
                collect(&path, skipped, is_wanted, paths)?;
            }
        } else if is_wanted(&path) {
            paths.push(path);
        }
    }
    Ok(())
}
