//! SCSI disks as sysfs shows them: multipath devices on top of them, and the removal of a disk from the kernel.

use std::path::{Path, PathBuf};

use ports::HostError;

use crate::context::Context;

const BLOCK: &str = "/sys/block";
const DEVICES: &str = "/dev";
/// Of files of the kernel that are written only.
const WRITE_ONLY: u32 = 0o200;

/// The multipath device that one of these disks is part of; `None` if there is none, yet.
pub(super) async fn multipath_device(ctx: &Context, disks: &[PathBuf]) -> Option<PathBuf> {
    let mut names = Vec::with_capacity(disks.len());
    for disk in disks {
        let resolved = ctx.files.resolve(disk).await.ok()?;
        names.extend(resolved.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    let blocks = ctx.files.list_names(Path::new(BLOCK)).await.unwrap_or_default();
    for mapped in blocks.iter().filter(|name| name.starts_with("dm-")) {
        let slaves = Path::new(BLOCK).join(mapped).join("slaves");
        let slaves = ctx.files.list_names(&slaves).await.unwrap_or_default();
        if names.iter().any(|name| name == mapped || slaves.contains(name)) {
            return Some(Path::new(DEVICES).join(mapped));
        }
    }
    None
}

/// Removes a disk from the kernel; its data stays.
pub(super) async fn delete_device(ctx: &Context, name: &str) -> Result<(), HostError> {
    let path = Path::new(BLOCK).join(name).join("device/delete");
    write(ctx, &path, "1").await
}

/// Writes to a file of the kernel.
pub(super) async fn write(ctx: &Context, path: &Path, value: &str) -> Result<(), HostError> {
    ctx.files.rewrite_file(path, value.as_bytes(), WRITE_ONLY).await
}
