//! Bind-mounts a part of a volume for a container without trusting the contents of the volume.
//!
//! A container that can write to the volume may turn any directory into a link at any moment. So every step is opened
//! relative to the descriptor of the one before, links are read and walked by us, `..` goes back to a descriptor we
//! already hold, and what is mounted is the descriptor, not a path. There is no moment at which the kernel resolves a
//! path that the container could have changed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions, Permissions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use ports::host::{HostError, HostResult};
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::{failed, fault, files, mounts};

/// As many links as the kernel itself would follow.
const MAX_LINKS: u32 = 40;
/// Directories deeper in the volume than this are refused; each costs a descriptor while we walk.
const DEEPEST: usize = 256;
/// How often a path component is opened again when it appears and disappears.
const TRIES: u32 = 16;
/// The mode of a new directory until its permissions are set.
const PRIVATE: Mode = Mode::RWXU;
/// Of the directory that holds the mount points.
const TARGETS_MODE: u32 = 0o750;

const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) fn bind_sub_path(volume: &Path, sub_path: &str, target: &Path) -> HostResult<()> {
    let opened = Walk::start(volume, sub_path)?.run()?;
    let what = stat_of(&opened, volume)?;
    if mounts::is_mount_point(target)? {
        if is_same(target, &what)? {
            return Ok(());
        }
        mounts::unmount_one(target)?;
    }
    prepare_target(target, FileType::from_raw_mode(what.st_mode) == FileType::Directory)?;
    let source = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let bound = fault::around("mount", target, || rustix::mount::mount_bind(&source, target));
    bound.map_err(failed("bind subPath to", target))?;
    if is_same(target, &what)? {
        return Ok(());
    }
    // Cannot happen while the descriptor is open; but a mount that was not checked must not stay.
    rustix::mount::unmount(target, UnmountFlags::NOFOLLOW).map_err(failed("unmount", target))?;
    Err(HostError::Invalid(format!("{} does not show {sub_path} after binding it", target.display())))
}

fn is_same(target: &Path, what: &Stat) -> HostResult<bool> {
    let mounted = rustix::fs::lstat(target).map_err(failed("stat", target))?;
    Ok(mounted.st_dev == what.st_dev && mounted.st_ino == what.st_ino)
}

/// An empty directory or file to mount on. The target's directory belongs to the kubelet and can be trusted.
fn prepare_target(target: &Path, as_dir: bool) -> HostResult<()> {
    if let Ok(there) = fs::symlink_metadata(target) {
        if there.is_dir() == as_dir && (as_dir || there.is_file()) {
            return Ok(());
        }
        let removed = if there.is_dir() { fs::remove_dir(target) } else { fs::remove_file(target) };
        removed.map_err(failed("replace", target))?;
    }
    if as_dir {
        return files::ensure_dir(target, TARGETS_MODE);
    }
    if let Some(parent) = target.parent() {
        files::ensure_dir(parent, TARGETS_MODE)?;
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(target);
    file.map(drop).map_err(failed("create file", target))
}

fn stat_of(opened: &OwnedFd, path: &Path) -> HostResult<Stat> {
    rustix::fs::fstat(opened).map_err(failed("stat", path))
}

struct Walk<'a> {
    volume: &'a Path,
    sub_path: &'a str,
    /// From the volume down to the current directory; never empty.
    way: Vec<OwnedFd>,
    /// Steps still to go, the next one last.
    steps: Vec<OsString>,
    links_left: u32,
    /// For directories that are created: the volume's own permissions.
    mode: u32,
}

impl<'a> Walk<'a> {
    fn start(volume: &'a Path, sub_path: &'a str) -> HostResult<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let top = rustix::fs::open(volume, flags, Mode::empty()).map_err(failed("open volume", volume))?;
        let mode = stat_of(&top, volume)?.st_mode & 0o7777;
        let mut walk =
            Self { volume, sub_path, way: vec![top], steps: Vec::new(), links_left: MAX_LINKS, mode };
        let requested = Path::new(sub_path);
        if requested.is_absolute() {
            return Err(HostError::Invalid(format!("subPath {sub_path:?} must not be absolute")));
        }
        if requested.components().any(|step| step == Component::ParentDir) {
            return Err(HostError::Invalid(format!("subPath {sub_path:?} must not contain '..'")));
        }
        walk.queue(requested);
        Ok(walk)
    }

    fn queue(&mut self, path: &Path) {
        let steps = path.components().filter_map(|step| match step {
            Component::Normal(name) => Some(name.to_os_string()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        });
        let at = self.steps.len();
        self.steps.extend(steps);
        if let Some(added) = self.steps.get_mut(at..) {
            added.reverse();
        }
    }

    fn run(mut self) -> HostResult<OwnedFd> {
        while let Some(name) = self.steps.pop() {
            if name == ".." {
                self.way.pop();
                if self.way.is_empty() {
                    return Err(self.escapes());
                }
                continue;
            }
            let step = self.open_or_create(&name)?;
            let seen = stat_of(&step, &self.shown())?;
            if FileType::from_raw_mode(seen.st_mode) == FileType::Symlink {
                self.follow(&step)?;
            } else if self.way.len() >= DEEPEST {
                return Err(self.too("deep"));
            } else {
                self.way.push(step);
            }
        }
        self.way.pop().ok_or_else(|| self.escapes())
    }

    fn here(&self) -> HostResult<&OwnedFd> {
        self.way.last().ok_or_else(|| self.escapes())
    }

    fn open_or_create(&self, name: &OsStr) -> HostResult<OwnedFd> {
        let here = self.here()?;
        for _ in 0..TRIES {
            match rustix::fs::openat(here, name, STEP, Mode::empty()) {
                Ok(step) => return Ok(step),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed("open", &self.shown())(error)),
            }
            match rustix::fs::mkdirat(here, name, PRIVATE) {
                Ok(()) => self.set_mode(here, name)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed("create directory", &self.shown())(error)),
            }
        }
        Err(HostError::Invalid(format!("{} keeps coming and going", self.shown().display())))
    }

    /// Sets the volume's permissions on the directory that was just created, whatever the umask. A container may have replaced
    /// it; only an empty one that root owns is changed.
    fn set_mode(&self, here: &OwnedFd, name: &OsStr) -> HostResult<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match rustix::fs::openat(here, name, flags, Mode::empty()) {
            Ok(dir) => dir,
            // Already replaced; the next attempt inspects it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(failed("open", &self.shown())(error)),
        };
        let owner = stat_of(&dir, &self.shown())?.st_uid;
        if owner != rustix::process::geteuid().as_raw() || !is_empty(&dir) {
            return Ok(());
        }
        let mode = Permissions::from_mode(self.mode);
        fs::File::from(dir).set_permissions(mode).map_err(failed("set permissions of", &self.shown()))
    }

    fn follow(&mut self, link: &OwnedFd) -> HostResult<()> {
        self.links_left = self.links_left.checked_sub(1).ok_or_else(|| self.too("many links"))?;
        let target =
            rustix::fs::readlinkat(link, c"", Vec::new()).map_err(failed("read link", &self.shown()))?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if !target.is_absolute() {
            self.queue(target);
            return Ok(());
        }
        // As seen from the node, not from the container: only a way back into this volume is one.
        let volume = self.volume.canonicalize().map_err(failed("resolve", self.volume))?;
        let inside = target
            .strip_prefix(&volume)
            .or_else(|_| target.strip_prefix(self.volume))
            .map_err(|_| self.escapes())?;
        self.way.truncate(1);
        self.queue(inside);
        Ok(())
    }

    /// For messages: the requested path, without its links resolved.
    fn shown(&self) -> PathBuf {
        self.volume.join(self.sub_path)
    }

    fn escapes(&self) -> HostError {
        HostError::Invalid(format!(
            "subpath {:?} not within volume path {:?}",
            self.shown().display(),
            self.volume.display()
        ))
    }

    fn too(&self, much: &str) -> HostError {
        HostError::Invalid(format!("subPath {:?} in {}: too {much}", self.sub_path, self.volume.display()))
    }
}

fn is_empty(dir: &impl AsFd) -> bool {
    let entries = Dir::read_from(dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    entries.is_ok_and(|entries| {
        entries.iter().all(|entry| entry.file_name() == c"." || entry.file_name() == c"..")
    })
}
