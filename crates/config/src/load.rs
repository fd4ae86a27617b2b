//! Reads the configuration file and finds drop-ins. Nothing else in this crate reads the disk.

use std::io;
use std::path::{Path, PathBuf};

/// What the configuration needs from the file system. Tests have files in memory.
pub trait Files {
    /// The whole file as text.
    ///
    /// # Errors
    /// The file is missing, unreadable, or not UTF-8.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Every `*.conf` file below `dir`, at any depth, in lexical order of the whole path.
    ///
    /// # Errors
    /// The directory, or one below it, cannot be read.
    fn list_conf_files(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// The files directly in `dir`, in lexical order; `None` if it is no directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn list_dir(&self, dir: &Path) -> io::Result<Option<Vec<PathBuf>>>;

    /// The directory that relative paths on the command line start from.
    ///
    /// # Errors
    /// The current directory was removed or is unreadable.
    fn current_dir(&self) -> io::Result<PathBuf>;
}

/// The real disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn list_conf_files(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut open = vec![dir.to_owned()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(&dir)? {
                let entry = entry?;
                // A symbolic link to a directory is not followed, because it could be part of a loop.
                if entry.file_type()?.is_dir() {
                    open.push(entry.path());
                } else if entry.path().extension().is_some_and(|ending| ending == "conf") {
                    found.push(entry.path());
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn list_dir(&self, dir: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        if !dir.is_dir() {
            return Ok(None);
        }
        let entries = std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path()));
        let mut found = entries.collect::<io::Result<Vec<PathBuf>>>()?;
        // Symbolic links to files are followed: the files of a mounted ConfigMap are links.
        found.retain(|path| path.is_file());
        found.sort();
        Ok(Some(found))
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        std::env::current_dir()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_are_found_at_any_depth_in_lexical_order() {
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::create_dir(dir.path().join("10-sub")).expect("mkdir");
        for name in ["20-b.conf", "05-a.conf", "10-sub/z.conf", "10-sub/readme.txt", "30.yaml"] {
            std::fs::write(dir.path().join(name), "").expect("write");
        }
        let found = Disk.list_conf_files(dir.path()).expect("list");
        let names: Vec<_> = found.iter().map(|path| path.strip_prefix(dir.path()).expect("below")).collect();
        assert_eq!(names, ["05-a.conf", "10-sub/z.conf", "20-b.conf"].map(Path::new));
    }
}
