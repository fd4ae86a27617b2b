//! Binding a directory of the node into a pod's own place.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ports::host::HostResult;
use rustix::mount::MountFlags;

use crate::{failed, fault, files, mounts};

const TARGET_MODE: u32 = 0o750;

/// Idempotent; what else is mounted at the place goes first.
pub(crate) fn bind_volume(source: &Path, target: &Path, read_only: bool) -> HostResult<()> {
    let wanted = fs::metadata(source).map_err(failed("look at", source))?;
    if mounts::is_mount_point(target)? {
        let mounted = fs::symlink_metadata(target).map_err(failed("look at", target))?;
        if (mounted.dev(), mounted.ino()) == (wanted.dev(), wanted.ino()) {
            return set_read_only(target, read_only);
        }
        mounts::unmount_one(target)?;
    }
    files::ensure_dir(target, TARGET_MODE)?;
    let bound = fault::around("mount", target, || rustix::mount::mount_bind(source, target));
    bound.map_err(failed("bind volume to", target))?;
    set_read_only(target, read_only)
}

/// A bind takes its flags in a step of its own; who was killed in between comes by here again.
fn set_read_only(target: &Path, read_only: bool) -> HostResult<()> {
    if !read_only {
        return Ok(());
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    fault::around("remount", target, || rustix::mount::mount_remount(target, flags, ""))
        .map_err(failed("make read-only", target))
}
