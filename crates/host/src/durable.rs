//! Files that survive a power cut: written under another name, flushed, renamed, and the directory flushed.
//!
//! Without the first flush the new name may be on disk before its content is, so that an empty file replaces a
//! good one. Without the second, a caller may act on a file that does not exist after a power cut.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ports::host::HostResult;

use crate::files::{PERMISSIONS, sibling};
use crate::{failed, fault};

/// The steps that a durable write is made of.
trait Disk {
    type File;
    /// Fails if the name is taken.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Self::File>;
    fn write(&self, file: &mut Self::File, content: &[u8]) -> io::Result<()>;
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path);
}

/// This machine's.
struct Local;

impl Disk for Local {
    type File = File;

    fn create(&self, path: &Path, mode: u32) -> io::Result<File> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.set_permissions(Permissions::from_mode(mode & PERMISSIONS))?;
        Ok(file)
    }

    fn write(&self, file: &mut File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(target, link)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn remove(&self, path: &Path) {
        // Best effort: the error that led here is the one worth reporting.
        let _ = fs::remove_file(path);
    }
}

/// Creates or replaces a file.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
    let temporary = sibling(path)?;
    replace(&Local, path, &temporary, |disk, temporary| {
        let mut file = disk.create(temporary, mode)?;
        disk.write(&mut file, content)?;
        disk.sync(&file)
    })
    .map_err(failed("write file", path))
}

/// Makes `link` point to `target`, replacing what it pointed to.
pub(crate) fn link(target: &Path, link: &Path) -> HostResult<()> {
    let temporary = sibling(link)?;
    replace(&Local, link, &temporary, |disk, temporary| disk.symlink(target, temporary))
        .map_err(failed("create link", link))
}

fn replace<D: Disk>(
    disk: &D,
    path: &Path,
    temporary: &Path,
    create: impl FnOnce(&D, &Path) -> io::Result<()>,
) -> io::Result<()> {
    let created = fault::around("write", temporary, || create(disk, temporary));
    let renamed = created.and_then(|()| fault::around("rename to", path, || disk.rename(temporary, path)));
    if let Err(error) = renamed {
        disk.remove(temporary);
        return Err(error);
    }
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;

    const PATH: &str = "/d/current";
    const TEMPORARY: &str = "/d/.tmp";

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Node {
        File(usize),
        Link(&'static str),
    }

    #[derive(Clone, Debug)]
    enum Change {
        Name(PathBuf, Node),
        Rename(PathBuf, PathBuf),
        Remove(PathBuf),
    }

    /// A disk that keeps changes in memory until they are flushed, and fails at one step.
    #[derive(Debug, Default)]
    struct Volatile(RefCell<State>);

    #[derive(Clone, Debug, Default)]
    struct State {
        on_disk: BTreeMap<PathBuf, Node>,
        /// Changes of names since the directory was flushed, in their order.
        names: Vec<Change>,
        contents: Vec<&'static str>,
        flushed: Vec<bool>,
        steps: usize,
        fails_at: Option<usize>,
        /// What the disk held after each step.
        history: Vec<State>,
    }

    impl Volatile {
        fn step<T>(&self, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
            let mut state = self.0.borrow_mut();
            state.steps += 1;
            if state.fails_at == Some(state.steps) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let done = change(&mut state);
            let now = State { history: Vec::new(), ..state.clone() };
            state.history.push(now);
            Ok(done)
        }
    }

    impl Disk for Volatile {
        type File = usize;

        fn create(&self, path: &Path, _mode: u32) -> io::Result<usize> {
            self.step(|state| {
                state.contents.push("");
                state.flushed.push(false);
                let file = state.contents.len() - 1;
                state.names.push(Change::Name(path.to_owned(), Node::File(file)));
                file
            })
        }

        fn write(&self, file: &mut usize, content: &[u8]) -> io::Result<()> {
            let content = if content == b"new" { "new" } else { "old" };
            self.step(|state| state.contents[*file] = content)
        }

        fn sync(&self, file: &usize) -> io::Result<()> {
            self.step(|state| state.flushed[*file] = true)
        }

        fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
            let target = if target == Path::new("new") { "new" } else { "old" };
            self.step(|state| state.names.push(Change::Name(link.to_owned(), Node::Link(target))))
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.step(|state| state.names.push(Change::Rename(from.to_owned(), to.to_owned())))
        }

        fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
            self.step(|state| {
                let all = state.names.len();
                state.on_disk = state.names_after(all);
                state.names.clear();
            })
        }

        fn remove(&self, path: &Path) {
            self.0.borrow_mut().names.push(Change::Remove(path.to_owned()));
        }
    }

    impl State {
        /// What the directory holds if so many of the changes have reached the disk.
        fn names_after(&self, count: usize) -> BTreeMap<PathBuf, Node> {
            let mut names = self.on_disk.clone();
            for change in &self.names[..count] {
                match change {
                    Change::Name(path, node) => drop(names.insert(path.clone(), *node)),
                    Change::Rename(from, to) => {
                        let node = names.remove(from).unwrap();
                        names.insert(to.clone(), node);
                    }
                    Change::Remove(path) => drop(names.remove(path)),
                }
            }
            names
        }

        /// What may stand at the path after a power cut: names reach the disk in order, contents whenever they like.
        fn after_power_cut(&self) -> Vec<Option<&'static str>> {
            let mut possible = Vec::new();
            for count in 0..=self.names.len() {
                match self.names_after(count).get(Path::new(PATH)) {
                    None => possible.push(None),
                    Some(Node::Link(target)) => possible.push(Some(*target)),
                    Some(Node::File(file)) => {
                        possible.push(Some(self.contents[*file]));
                        if !self.flushed[*file] {
                            possible.push(Some(""));
                        }
                    }
                }
            }
            possible
        }
    }

    fn write_on(disk: &Volatile, content: &str) -> io::Result<()> {
        replace(disk, Path::new(PATH), Path::new(TEMPORARY), |disk, temporary| {
            let mut file = disk.create(temporary, 0o600)?;
            disk.write(&mut file, content.as_bytes())?;
            disk.sync(&file)
        })
    }

    fn link_on(disk: &Volatile, target: &str) -> io::Result<()> {
        replace(disk, Path::new(PATH), Path::new(TEMPORARY), |disk, temporary| {
            disk.symlink(Path::new(target), temporary)
        })
    }

    #[test]
    fn a_power_cut_after_any_step_leaves_the_old_content_or_the_new() {
        for write in [write_on, link_on] {
            let disk = Volatile::default();
            write(&disk, "old").unwrap();
            disk.0.borrow_mut().history.clear();
            write(&disk, "new").unwrap();
            let state = disk.0.borrow();
            for after in &state.history {
                let possible = after.after_power_cut();
                assert!(
                    possible.iter().all(|found| [Some("old"), Some("new")].contains(found)),
                    "{possible:?}"
                );
            }
            assert_eq!(state.after_power_cut(), [Some("new")], "what was reported as written is there");
        }
    }

    /// The model detects the mistakes that it is for.
    #[test]
    fn without_a_flush_a_power_cut_leaves_an_empty_file() {
        let disk = Volatile::default();
        write_on(&disk, "old").unwrap();
        let mut file = disk.create(Path::new(TEMPORARY), 0o600).unwrap();
        disk.write(&mut file, b"new").unwrap();
        disk.rename(Path::new(TEMPORARY), Path::new(PATH)).unwrap();
        assert!(disk.0.borrow().after_power_cut().contains(&Some("")));
    }

    #[test]
    fn a_full_disk_at_any_step_leaves_the_old_content_and_no_other_file() {
        for write in [write_on, link_on] {
            for fails_at in 1.. {
                let disk = Volatile::default();
                write(&disk, "old").unwrap();
                {
                    let mut state = disk.0.borrow_mut();
                    state.fails_at = Some(state.steps + fails_at);
                }
                if write(&disk, "new").is_ok() {
                    assert!(fails_at > 2);
                    break;
                }
                let state = disk.0.borrow();
                let names = state.names_after(state.names.len());
                assert!(!names.contains_key(Path::new(TEMPORARY)), "step {fails_at}");
                // A flush of the directory that fails comes after the rename.
                assert!(
                    state.after_power_cut().iter().all(|found| [Some("old"), Some("new")].contains(found))
                );
            }
        }
    }

    #[test]
    fn durable_files_and_links_are_made_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (file, current) = (dir.path().join("file"), dir.path().join("current"));
        for content in ["old", "new"] {
            write(&file, content.as_bytes(), 0o640).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & PERMISSIONS, 0o640);
        }
        fs::write(&current, "was a file").unwrap();
        link(&file, &current).unwrap();
        assert_eq!(fs::read_link(&current).unwrap(), file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(write(&dir.path().join("missing/file"), b"x", 0o600).is_err());
    }
}
