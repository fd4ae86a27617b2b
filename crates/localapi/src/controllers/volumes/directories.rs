//! The directories of volumes. A name is that of a volume, which has no slash.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::files;

/// Removed directories, until their content is gone.
const REMOVED: &str = ".removed";

fn none() -> io::Error {
    io::Error::other("this server makes no local volumes")
}

/// Any user of a container may write: which one it is, is not known. Others of this machine do not reach it, because the directories above
/// belong to root.
pub(super) fn make(parent: Option<&Path>, name: &str) -> io::Result<PathBuf> {
    let parent = parent.ok_or_else(none)?;
    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let path = parent.join(name);
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) | Ok(()) => {}
    }
    fs::set_permissions(&path, Permissions::from_mode(0o777))?;
    Ok(path)
}

/// Takes the directory away at once; its content is removed by a thread, which may take long.
pub(super) fn remove(parent: Option<&Path>, name: &str) -> io::Result<()> {
    let parent = parent.ok_or_else(none)?;
    let removed = parent.join(REMOVED);
    DirBuilder::new().recursive(true).mode(0o700).create(&removed)?;
    files::unless_missing(fs::rename(parent.join(name), removed.join(name)))?;
    // What an earlier process had not removed goes with it.
    std::thread::spawn(move || {
        if let Err(error) = fs::remove_dir_all(&removed) {
            tracing::warn!(err = %error, path = %removed.display(), "failed to remove the directories of volumes");
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_made_once_and_removed_with_its_content() {
        let parent = tempfile::tempdir().unwrap();
        let volumes = parent.path().join("volumes");
        let path = make(Some(&volumes), "pvc-1").unwrap();
        fs::write(path.join("file"), "data").unwrap();
        assert_eq!(make(Some(&volumes), "pvc-1").unwrap(), path);
        assert_eq!(fs::read(path.join("file")).unwrap(), b"data");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
        remove(Some(&volumes), "pvc-1").unwrap();
        assert!(!path.exists());
        remove(Some(&volumes), "pvc-1").unwrap();
        assert!(make(None, "pvc-1").is_err());
    }
}
