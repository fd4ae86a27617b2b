//! Binding a directory of the node into a pod's own place.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ports::host::{HostError, HostResult};
use rustix::mount::MountFlags;

use crate::{failed, fault, files, mounts};

const TARGET_MODE: u32 = 0o750;

/// What a bind can have of its own, whatever the filesystem is mounted with.
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

/// Idempotent; what else is mounted at the place goes first.
pub(crate) fn bind_volume(source: &Path, target: &Path, options: &str) -> HostResult<()> {
    let flags = flags_of(options)?;
    let wanted = fs::metadata(source).map_err(failed("look at", source))?;
    if mounts::is_mount_point(target)? {
        let mounted = fs::symlink_metadata(target).map_err(failed("look at", target))?;
        if (mounted.dev(), mounted.ino()) == (wanted.dev(), wanted.ino()) {
            return set_flags(target, flags);
        }
        mounts::unmount_one(target)?;
    }
    files::ensure_dir(target, TARGET_MODE)?;
    let bound = fault::around("mount", target, || rustix::mount::mount_bind(source, target));
    bound.map_err(failed("bind volume to", target))?;
    set_flags(target, flags)
}

/// A bind takes its flags in a step of its own; who was killed in between comes by here again.
fn set_flags(target: &Path, flags: MountFlags) -> HostResult<()> {
    if flags.is_empty() {
        return Ok(());
    }
    fault::around("remount", target, || rustix::mount::mount_remount(target, flags | MountFlags::BIND, ""))
        .map_err(failed("set the mount options of", target))
}
