//! Bind-mounts a directory or a device of the node in a pod's directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ports::host::{HostError, HostResult};
use rustix::mount::MountFlags;

use crate::{failed, fault, files, mounts};

const TARGET_MODE: u32 = 0o750;

/// The options that a bind mount can have independently of its filesystem.
const FLAGS: [(&str, MountFlags); 9] = [
    ("rw", MountFlags::empty()),
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
];

fn flags_of(options: &str) -> HostResult<MountFlags> {
    let mut flags = MountFlags::empty();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let known = FLAGS.iter().find(|(name, _)| *name == option);
        let unknown =
            || HostError::Invalid(format!("a directory cannot be mounted with the option {option:?}"));
        flags |= known.ok_or_else(unknown)?.1;
    }
    Ok(flags)
}

/// Idempotent; anything else that is mounted at the target is unmounted first.
pub(crate) fn bind_volume(source: &Path, target: &Path, options: &str) -> HostResult<()> {
    let flags = flags_of(options)?;
    let wanted = fs::metadata(source).map_err(failed("stat", source))?;
    if mounts::is_mount_point(target)? {
        let mounted = fs::symlink_metadata(target).map_err(failed("stat", target))?;
        if (mounted.dev(), mounted.ino()) == (wanted.dev(), wanted.ino()) {
            return set_flags(target, flags);
        }
        mounts::unmount_one(target)?;
    }
    match wanted.is_dir() {
        true => files::ensure_dir(target, TARGET_MODE)?,
        false => ensure_file(target)?,
    }
    let bound = fault::around("mount", target, || rustix::mount::mount_bind(source, target));
    bound.map_err(failed("bind volume to", target))?;
    set_flags(target, flags)
}

/// What a device is mounted on.
fn ensure_file(target: &Path) -> HostResult<()> {
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(false).mode(TARGET_MODE).open(target);
    opened.map(drop).map_err(failed("create", target))
}

/// The flags of a bind mount are set in a step of their own; a kubelet that was killed in between repeats it.
fn set_flags(target: &Path, flags: MountFlags) -> HostResult<()> {
    if flags.is_empty() {
        return Ok(());
    }
    fault::around("remount", target, || rustix::mount::mount_remount(target, flags | MountFlags::BIND, ""))
        .map_err(failed("set the mount options of", target))
}
