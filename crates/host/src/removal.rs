//! Removing a whole tree without ever leaving its filesystem.
//!
//! A pod's directory may still hold a mount (an unmount that failed, a volume somebody else mounted); going into it
//! would delete the user's data. So: look at the mount table first, then walk by file descriptor, and refuse every
//! directory that is the root of a mount or lies on another device. Links are removed, never followed.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ports::host::{HostError, HostResult};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::{failed, mounts};

/// A directory below this depth is first moved up to the top, so that a pod cannot make us run out of descriptors.
const DEEPEST: usize = 64;
/// So many names are held at a time, so that a pod cannot make us run out of memory.
const NAMES_AT_ONCE: usize = 4096;

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory on the way down.
struct Level {
    dir: OwnedFd,
    name: CString,
    /// For messages only.
    path: PathBuf,
    names: Vec<CString>,
}

pub(crate) fn remove_tree(path: &Path) -> HostResult<()> {
    if let Some(mounted) = mounts::mounted_below(path)?.first() {
        return Err(refuse(path, mounted));
    }
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(failed("remove", path)(error)),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(HostError::Unfit(format!("{} cannot be removed", path.display())));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let name = CString::new(name.as_bytes()).map_err(|bad| failed("remove", path)(io::Error::other(bad)))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let outside = rustix::fs::openat(CWD, parent, flags, Mode::empty()).map_err(failed("open", parent))?;
    Walk { top: path, device: None, stack: Vec::new(), moved: 0 }.run(&outside, name)
}

fn refuse(tree: &Path, mounted: &Path) -> HostError {
    HostError::Unfit(format!("refusing to remove {}: {} is a mount point", tree.display(), mounted.display()))
}

struct Walk<'a> {
    top: &'a Path,
    /// Of the tree's own filesystem; known once its top is open.
    device: Option<(u32, u32)>,
    stack: Vec<Level>,
    /// Directories moved up to the top so far.
    moved: u64,
}

impl Walk<'_> {
    fn run(mut self, outside: &OwnedFd, name: CString) -> HostResult<()> {
        let Some(top) = self.open(outside, name, self.top.to_path_buf())? else { return Ok(()) };
        self.stack.push(top);
        while let Some(mut level) = self.stack.pop() {
            if let Some(name) = level.names.pop() {
                let below = self.remove_entry(&mut level, name)?;
                self.stack.push(level);
                self.stack.extend(below);
                continue;
            }
            level.names = list(&level)?;
            if !level.names.is_empty() {
                self.stack.push(level);
                continue;
            }
            let parent = self.stack.last().map_or(outside, |above| &above.dir);
            match rustix::fs::unlinkat(parent, &level.name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                // Somebody added to it; look again.
                Err(Errno::NOTEMPTY) => self.stack.push(level),
                Err(error) => return Err(failed("remove directory", &level.path)(error)),
            }
        }
        Ok(())
    }

    /// Removes one entry that is not a directory, or answers the directory to empty first.
    fn remove_entry(&mut self, level: &mut Level, name: CString) -> HostResult<Option<Level>> {
        let path = level.path.join(OsStr::from_bytes(name.to_bytes()));
        match rustix::fs::unlinkat(&level.dir, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(None),
            Err(error @ (Errno::ISDIR | Errno::PERM)) => {
                let opened = self.open(&level.dir, name, path.clone());
                // Not a directory after all: an immutable file, say.
                let opened = opened.map_err(|other| {
                    if is_not_a_directory(&other) { failed("remove", &path)(error) } else { other }
                });
                let Some(below) = opened? else { return Ok(None) };
                if self.stack.len() < DEEPEST {
                    return Ok(Some(below));
                }
                self.move_up(level, &below)?;
                Ok(None)
            }
            Err(Errno::BUSY) => Err(refuse(self.top, &path)),
            Err(error) => Err(failed("remove", &path)(error)),
        }
    }

    /// Puts a deep directory directly below the top, where a later turn finds it.
    fn move_up(&mut self, level: &Level, below: &Level) -> HostResult<()> {
        let Some(top) = self.stack.first_mut() else { return Ok(()) };
        loop {
            self.moved += 1;
            let Ok(name) = CString::new(format!(".kubelet-deep-{}", self.moved)) else { return Ok(()) };
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&level.dir, &below.name, &top.dir, &name, flags) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed("move", &below.path)(error)),
            }
        }
    }

    /// Opens a directory if it lies on the tree's own filesystem; None if it has gone.
    fn open(&mut self, parent: &impl AsFd, name: CString, path: PathBuf) -> HostResult<Option<Level>> {
        let dir = match rustix::fs::openat(parent, &name, OPEN_DIR, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        let seen = rustix::fs::statx(&dir, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(failed("look at", &path))?;
        let device = (seen.stx_dev_major, seen.stx_dev_minor);
        let is_mount = seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        if is_mount || *self.device.get_or_insert(device) != device {
            return Err(refuse(self.top, &path));
        }
        Ok(Some(Level { dir, name, path, names: Vec::new() }))
    }
}

fn is_not_a_directory(error: &HostError) -> bool {
    match error {
        HostError::Io { source, .. } => source.kind() == io::ErrorKind::NotADirectory,
        HostError::Unfit(_) | HostError::GivenUp(_) => false,
    }
}

/// Some names in the directory; none only if it is empty.
fn list(level: &Level) -> HostResult<Vec<CString>> {
    let mut names = Vec::new();
    let entries = Dir::read_from(&level.dir).map_err(failed("list", &level.path))?;
    for entry in entries {
        let entry = entry.map_err(failed("list", &level.path))?;
        let name: &CStr = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
        if names.len() >= NAMES_AT_ONCE {
            break;
        }
    }
    Ok(names)
}
