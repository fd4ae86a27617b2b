//! Files of this server: private ones that are written whole or not at all, and the removal of those that may not exist.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// A file that only its owner can read, next to the one in whose place it is put when it is whole.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) file: File,
    path: PathBuf,
    target: PathBuf,
}

impl NewFile {
    /// Replaces what an earlier process left of a new file.
    pub(crate) fn create(target: &Path) -> io::Result<Self> {
        let path = new_path(target);
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        Ok(Self { file, path, target: target.to_owned() })
    }

    /// Lets a group read it.
    pub(crate) fn allow_group(&self, group: u32) -> io::Result<()> {
        fchown(&self.file, None, Some(group))?;
        self.file.set_permissions(Permissions::from_mode(0o640))
    }

    /// Puts it in its place. After a crash of the machine the place may have the old file or the new one, or an empty one.
    pub(crate) fn replace(self) -> io::Result<()> {
        std::fs::rename(&self.path, &self.target)
    }

    /// Puts it in its place when its content is on disk: after a crash of the machine the place has the old file or the new one.
    pub(crate) fn sync_and_replace(self) -> io::Result<()> {
        self.file.sync_all()?;
        self.replace()
    }
}

/// Where a file is written before it is put in its place.
pub(crate) fn new_path(target: &Path) -> PathBuf {
    target.with_extension("new")
}

/// Replaces a file by this text, readable by its owner only; and by this group, if there is one.
pub(crate) fn write_private(target: &Path, text: &str, group: Option<u32>) -> io::Result<()> {
    let mut new = NewFile::create(target)?;
    new.file.write_all(text.as_bytes())?;
    if let Some(group) = group {
        new.allow_group(group)?;
    }
    new.replace()
}

/// Makes the name of a new file last.
pub(crate) fn sync_directory(file: &Path) -> io::Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Removes a file, if it exists.
pub(crate) fn remove(file: &Path) -> io::Result<()> {
    unless_missing(std::fs::remove_file(file))
}

/// A file that does not exist is no error.
pub(crate) fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Err(_) | Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_file_is_replaced_whole_and_removed_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.kubeconfig");
        std::fs::write(new_path(&file), "what a crash left of a longer text").unwrap();
        write_private(&file, "one", None).unwrap();
        write_private(&file, "two", None).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!new_path(&file).exists());
        sync_directory(&file).unwrap();
        remove(&file).unwrap();
        remove(&file).unwrap();
        assert!(remove(directory.path()).is_err());
    }
}
