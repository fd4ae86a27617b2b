//! Removes a whole tree without ever leaving its filesystem.
//!
//! A pod's directory may still hold a mount (an unmount that failed, a volume that another program mounted); entering it
//! would delete the user's data. So the mount table is read first, then `walk` goes through the tree by file descriptor, and
//! every directory that is the root of a mount or lies on another device ends the removal. Links are removed, never followed.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ports::host::{HostError, HostResult};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::walk::{Entry, HELD, OPEN_DIR, TreeWork, Visit, Visitor, Walk};
use crate::{failed, fault, mounts};

/// The removal of one tree, as far as it has come.
#[derive(Debug)]
pub(crate) struct Removal {
    path: PathBuf,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Begin,
    RemoveDirectory(Directory),
    /// What is in the directory.
    Empty(Directory, Walk, Remover),
}

/// A directory by its name in its parent.
#[derive(Debug)]
struct Directory {
    parent: OwnedFd,
    name: CString,
}

impl Removal {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, step: Step::Begin }
    }

    /// `None`: it is gone, or was no directory.
    fn begin(&self) -> HostResult<Option<Directory>> {
        let path = &*self.path;
        if let Some(mounted) = mounts::mounted_below(path)?.first() {
            return Err(refuse(path, mounted));
        }
        match fault::around("remove", path, || rustix::fs::unlink(path)) {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(failed("remove", path)(error)),
        }
        let Some(name) = path.file_name() else {
            return Err(HostError::Invalid(format!("{} cannot be removed", path.display())));
        };
        let parent = mounts::directory_of(path);
        let name =
            CString::new(name.as_bytes()).map_err(|bad| failed("remove", path)(io::Error::other(bad)))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, parent, flags, Mode::empty());
        Ok(Some(Directory { parent: opened.map_err(failed("open", parent))?, name }))
    }

    /// `None`: it is gone.
    fn remove_directory(&self, directory: Directory) -> HostResult<Option<Step>> {
        let (path, Directory { parent, name }) = (&*self.path, &directory);
        let removed =
            fault::around("remove", path, || rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR));
        match removed {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::BUSY) => return Err(refuse(path, path)),
            Err(error) => return Err(failed("remove", path)(error)),
        }
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let top = match rustix::fs::openat2(parent, name, OPEN_DIR, Mode::empty(), inside) {
            Ok(top) => top,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::XDEV) => return Err(refuse(path, path)),
            Err(error) => return Err(failed("open", path)(error)),
        };
        let moved_to = top.try_clone().map_err(failed("open", path))?;
        let walk = Walk::new(top, path).map_err(failed("open", path))?;
        let remover = Remover { tree: path.to_path_buf(), top: moved_to, moved: 0 };
        Ok(Some(Step::Empty(directory, walk, remover)))
    }
}

impl TreeWork for Removal {
    type Output = ();

    /// Until nothing is left: entries come while we walk, and deep directories are moved up.
    fn advance(&mut self, entries: usize) -> HostResult<Option<()>> {
        loop {
            let next = match std::mem::replace(&mut self.step, Step::Begin) {
                Step::Begin => self.begin()?.map(Step::RemoveDirectory),
                Step::RemoveDirectory(directory) => self.remove_directory(directory)?,
                Step::Empty(directory, mut walk, mut remover) => {
                    let is_empty = walk.advance(&mut remover, entries)?;
                    self.step = match is_empty {
                        true => Step::RemoveDirectory(directory),
                        false => Step::Empty(directory, walk, remover),
                    };
                    return Ok(None);
                }
            };
            match next {
                Some(step) => self.step = step,
                None => return Ok(Some(())),
            }
        }
    }
}

fn refuse(tree: &Path, mounted: &Path) -> HostError {
    HostError::Invalid(format!(
        "refusing to remove {}: {} is a mount point",
        tree.display(),
        mounted.display()
    ))
}

#[derive(Debug)]
struct Remover {
    tree: PathBuf,
    top: OwnedFd,
    /// Directories moved up to the top so far.
    moved: u64,
}

impl Visitor for Remover {
    /// A directory is entered until it is empty. A deep one is moved up to the top, where a later round finds it, so that
    /// every directory that has to be revisited is one that stays open.
    fn visit(&mut self, entry: &Entry<'_>) -> HostResult<Visit> {
        fault::around_entry("remove", || entry.path(), || self.remove(entry))
    }

    fn unreadable(&mut self, path: PathBuf, why: Errno) -> HostResult<()> {
        match why {
            // Removed or replaced meanwhile; the next round sees what it is.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Ok(()),
            Errno::XDEV => Err(refuse(&self.tree, &path)),
            error => Err(failed("open", &path)(error)),
        }
    }
}

impl Remover {
    fn remove(&mut self, entry: &Entry<'_>) -> HostResult<Visit> {
        let unlinked = match rustix::fs::unlinkat(entry.dir, entry.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(Visit::Next),
            Err(Errno::BUSY) => return Err(refuse(&self.tree, &entry.path())),
            Err(error @ (Errno::ISDIR | Errno::PERM)) => error,
            Err(error) => return Err(failed("remove", &entry.path())(error)),
        };
        match rustix::fs::unlinkat(entry.dir, entry.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(Visit::Next),
            Err(Errno::NOTEMPTY | Errno::EXIST) if entry.level + 1 < HELD => Ok(Visit::EnterAndRevisit),
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.move_up(entry).map(|()| Visit::Next),
            Err(Errno::BUSY) => Err(refuse(&self.tree, &entry.path())),
            // Not a directory after all: an immutable file, say.
            Err(Errno::NOTDIR) => Err(failed("remove", &entry.path())(unlinked)),
            Err(error) => Err(failed("remove directory", &entry.path())(error)),
        }
    }

    fn move_up(&mut self, entry: &Entry<'_>) -> HostResult<()> {
        loop {
            self.moved += 1;
            let Ok(name) = CString::new(format!(".kubelet-deep-{}", self.moved)) else { return Ok(()) };
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(entry.dir, entry.name, &self.top, &name, flags) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(Errno::BUSY) => return Err(refuse(&self.tree, &entry.path())),
                Err(error) => return Err(failed("move", &entry.path())(error)),
            }
        }
    }
}
