//! Names that files have for a moment, before they replace another file.
//!
//! A kill in that moment leaves the file. [`remove_unfinished`] removes what is not in use; what a write of a later kubelet with the same
//! process id finds under its name is replaced (see `atomic`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ports::host::{HostError, HostResult};

use crate::files::{list_names, remove_file};

/// The numbers of those that this process uses now.
static IN_USE: LazyLock<Mutex<BTreeSet<u64>>> = LazyLock::new(Mutex::default);

/// A name that no other write of this process uses, until it is dropped.
#[derive(Debug)]
pub(crate) struct Temporary {
    number: u64,
    path: PathBuf,
}

impl Temporary {
    /// In the same directory, so that a rename stays on one filesystem. Hidden, because directories of manifests are read without
    /// dot files.
    pub(crate) fn next_to(path: &Path) -> HostResult<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(parent) = path.parent() else {
            return Err(HostError::Invalid(format!("{} is not the path of a file", path.display())));
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        IN_USE.lock().insert(number);
        Ok(Self { number, path: parent.join(name(std::process::id(), number)) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        IN_USE.lock().remove(&self.number);
    }
}

fn name(process: u32, number: u64) -> String {
    format!(".kubelet-{process}-{number}.tmp")
}

/// The process and the number in such a name.
fn parse(name: &str) -> Option<(u32, u64)> {
    let numbers = name.strip_prefix(".kubelet-")?.strip_suffix(".tmp")?;
    let (process, number) = numbers.split_once('-')?;
    Some((process.parse().ok()?, number.parse().ok()?))
}

/// Removes what killed kubelets left in the directory; writes of this one go on. Success if the directory does not exist.
pub(crate) fn remove_unfinished(dir: &Path) -> HostResult<()> {
    for entry in list_names(dir)? {
        let Some((process, number)) = parse(&entry) else { continue };
        let is_in_use = process == std::process::id() && IN_USE.lock().contains(&number);
        if !is_in_use && fs::symlink_metadata(dir.join(&entry)).is_ok_and(|found| !found.is_dir()) {
            remove_file(&dir.join(&entry))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_killed_kubelets_left_are_removed_and_those_in_use_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let in_use = Temporary::next_to(&dir.path().join("file")).unwrap();
        fs::write(in_use.path(), "half").unwrap();
        let own_name = name(std::process::id(), u64::MAX);
        for left in [".kubelet-1-0.tmp", ".kubelet-4194304-17.tmp", &own_name] {
            fs::write(dir.path().join(left), "half").unwrap();
        }
        std::os::unix::fs::symlink("nowhere", dir.path().join(".kubelet-1-1.tmp")).unwrap();
        let others =
            [".kubelet-.tmp", ".kubelet-1.tmp", ".kubelet-1-x.tmp", "kubelet-1-0.tmp", "vol_data.json"];
        for other in others {
            fs::write(dir.path().join(other), "kept").unwrap();
        }
        fs::create_dir(dir.path().join(".kubelet-1-2.tmp")).unwrap();
        remove_unfinished(dir.path()).unwrap();
        let mut expected: Vec<String> = others.map(str::to_owned).to_vec();
        expected.push(".kubelet-1-2.tmp".to_owned());
        expected.push(in_use.path().file_name().unwrap().to_str().unwrap().to_owned());
        expected.sort();
        assert_eq!(list_names(dir.path()).unwrap(), expected);

        drop(in_use);
        remove_unfinished(dir.path()).unwrap();
        assert_eq!(list_names(dir.path()).unwrap().len(), others.len() + 1);
        remove_unfinished(&dir.path().join("missing")).unwrap();
    }
}
