//! Changes the group of a volume and everything in it (`fsGroup`, docs/behaviour/volumes.md).
//!
//! A container may change the contents at the same time, so `walk` goes through it: links are never followed, and other
//! filesystems mounted inside are left alone.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use ports::host::{GroupPolicy, HostResult};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::failed;
use crate::walk::{Entry, OPEN_DIR, TreeWork, Visit, Visitor, Walk};

/// Group members may read and write.
const READ_WRITE: u32 = 0o660;
/// They may enter directories, and files created there inherit the group.
const ENTER: u32 = 0o2110;
const PERMISSIONS: u32 = 0o7777;

/// The change of one volume, as far as it has come.
#[derive(Debug)]
pub(crate) struct Ownership {
    volume: PathBuf,
    gid: u32,
    policy: GroupPolicy,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    walk: Walk,
    owner: Owner,
    top: OwnedFd,
    /// Device, inode and mode of the root directory when it was opened.
    root: Stat,
}

impl Ownership {
    pub(crate) const fn new(volume: PathBuf, gid: u32, policy: GroupPolicy) -> Self {
        Self { volume, gid, policy, current: None }
    }

    /// `None`: nothing has to be changed.
    fn begin(&self) -> HostResult<Option<Current>> {
        let volume = &*self.volume;
        let top = rustix::fs::open(volume, OPEN_DIR, Mode::empty()).map_err(failed("open volume", volume))?;
        let root = rustix::fs::fstat(&top).map_err(failed("stat", volume))?;
        if self.policy == GroupPolicy::OnRootMismatch && is_given(&root, self.gid) {
            return Ok(None);
        }
        let owner = Owner { device: root.st_dev, gid: self.gid };
        let walked = top.try_clone().map_err(failed("open volume", volume))?;
        let walk = Walk::new(walked, volume).map_err(failed("stat", volume))?;
        Ok(Some(Current { walk, owner, top, root }))
    }
}

impl TreeWork for Ownership {
    type Output = ();

    fn advance(&mut self, entries: usize) -> HostResult<Option<()>> {
        let current = match self.current.take() {
            Some(current) => Some(current),
            None => self.begin()?,
        };
        let Some(mut current) = current else { return Ok(Some(())) };
        if !current.walk.advance(&mut current.owner, entries)? {
            self.current = Some(current);
            return Ok(None);
        }
        // The root directory last: its group records that the rest is done.
        let Current { owner, top, root, .. } = current;
        owner.give(top.as_fd(), c"", &root).map_err(failed("set the group of", &self.volume)).map(Some)
    }
}

fn is_given(stat: &Stat, gid: u32) -> bool {
    stat.st_gid == gid && stat.st_mode & wanted_bits(stat) == wanted_bits(stat)
}

fn wanted_bits(stat: &Stat) -> u32 {
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if is_dir { READ_WRITE | ENTER } else { READ_WRITE }
}

#[derive(Debug)]
struct Owner {
    device: u64,
    gid: u32,
}

impl Visitor for Owner {
    fn visit(&mut self, entry: &Entry<'_>) -> HostResult<Visit> {
        self.give_entry(entry).map_err(|error| failed("set the group of", &entry.path())(error))
    }

    fn unreadable(&mut self, path: PathBuf, why: Errno) -> HostResult<()> {
        match why {
            // Removed, replaced, or another filesystem since it was listed.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::AGAIN => Ok(()),
            error => Err(failed("open", &path)(error)),
        }
    }
}

impl Owner {
    fn give_entry(&self, entry: &Entry<'_>) -> Result<Visit, Errno> {
        let stat = match rustix::fs::statat(entry.dir, entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Visit::Next),
            Err(error) => return Err(error),
        };
        if stat.st_dev != self.device {
            return Ok(Visit::Next);
        }
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        match self.give(entry.dir, entry.name, &stat) {
            Ok(()) | Err(Errno::NOENT) => Ok(if is_directory { Visit::Enter } else { Visit::Next }),
            Err(error) => Err(error),
        }
    }

    /// An entry that has the group and the permissions already costs only a `stat`.
    fn give(&self, dir: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> Result<(), Errno> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if is_given(stat, self.gid) || (kind == FileType::Symlink && stat.st_gid == self.gid) {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match name.is_empty() {
            true => dir.try_clone_to_owned().map_err(|_| Errno::MFILE)?,
            false => rustix::fs::openat(dir, name, flags, Mode::empty())?,
        };
        rustix::fs::chownat(&opened, c"", None, Some(Gid::from_raw(self.gid)), AtFlags::EMPTY_PATH)?;
        if kind == FileType::Symlink {
            return Ok(());
        }
        // The descriptor, not the name: a link that replaced it is not followed.
        let now = rustix::fs::fstat(&opened)?;
        let mode = Mode::from_raw_mode((now.st_mode | wanted_bits(&now)) & PERMISSIONS);
        rustix::fs::chmod(format!("/proc/self/fd/{}", opened.as_raw_fd()), mode)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::walk::complete;

    fn give_tree(volume: &Path, gid: u32, policy: GroupPolicy) -> HostResult<()> {
        complete(Ownership::new(volume.to_path_buf(), gid, policy))
    }

    fn seen(path: &Path) -> (u32, u32) {
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.gid(), metadata.mode() & PERMISSIONS)
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("volume/a/b")).unwrap();
        fs::write(at("volume/a/file"), "").unwrap();
        fs::write(at("volume/script"), "").unwrap();
        fs::write(at("outside"), "").unwrap();
        symlink(at("outside"), at("volume/a/link")).unwrap();
        for (name, mode) in [("volume/a/file", 0o600), ("volume/script", 0o755), ("outside", 0o600)] {
            File::open(at(name)).unwrap().set_permissions(Permissions::from_mode(mode)).unwrap();
        }
        for name in ["volume", "volume/a", "volume/a/b"] {
            File::open(at(name)).unwrap().set_permissions(Permissions::from_mode(0o700)).unwrap();
        }
        dir
    }

    #[test]
    fn fs_group_may_read_write_and_enter_only_the_volume() {
        let dir = tree();
        let at = |name: &str| dir.path().join(name);
        let outside = seen(&at("outside"));
        give_tree(&at("volume"), 4242, GroupPolicy::Always).unwrap();
        for name in ["volume", "volume/a", "volume/a/b"] {
            assert_eq!(seen(&at(name)), (4242, 0o2770), "{name}");
        }
        assert_eq!(seen(&at("volume/a/file")), (4242, 0o660));
        assert_eq!(seen(&at("volume/script")), (4242, 0o775));
        assert_eq!(seen(&at("volume/a/link")).0, 4242);
        assert_eq!(seen(&at("outside")), outside);
    }

    #[test]
    fn on_root_mismatch_inspects_only_the_root_directory() {
        let dir = tree();
        let at = |name: &str| dir.path().join(name);
        give_tree(&at("volume"), 4242, GroupPolicy::OnRootMismatch).unwrap();
        assert_eq!(seen(&at("volume/a/file")), (4242, 0o660), "it did not match");
        fs::write(at("volume/a/new"), "").unwrap();
        File::open(at("volume/a/new")).unwrap().set_permissions(Permissions::from_mode(0o600)).unwrap();
        give_tree(&at("volume"), 4242, GroupPolicy::OnRootMismatch).unwrap();
        assert_eq!(seen(&at("volume/a/new")).1, 0o600, "it matched");
        give_tree(&at("volume"), 4242, GroupPolicy::Always).unwrap();
        assert_eq!(seen(&at("volume/a/new")), (4242, 0o660));
    }

    #[test]
    fn missing_volume_is_an_error() {
        assert!(give_tree(Path::new("/nowhere/volume"), 1, GroupPolicy::Always).is_err());
    }
}
