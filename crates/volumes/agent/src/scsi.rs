//! SCSI disks as sysfs shows them: multipath devices on top of them, and the removal of a disk from the kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use ports::HostError;
use volumes_core::fc::RESCAN;

use super::program;

const HOSTS: &str = "/sys/class/scsi_host";
/// For programs that flush what the kernel has in memory.
const DEADLINE: Duration = Duration::from_secs(180);

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

/// The disks that a multipath device is on top of.
pub(super) async fn disks_below(ctx: &Context, mapped: &Path) -> Vec<PathBuf> {
    let name = mapped.file_name().unwrap_or_default();
    let slaves = Path::new(BLOCK).join(name).join("slaves");
    let names = ctx.files.list_names(&slaves).await.unwrap_or_default();
    names.iter().map(|name| Path::new(DEVICES).join(name)).collect()
}

/// # Errors
/// The device is still in use, or the program is missing.
pub(super) async fn remove_multipath_device(ctx: &Context, mapped: &Path) -> Result<(), String> {
    let args = vec!["-f".to_owned(), mapped.display().to_string()];
    let flushed = ctx.processes.run_program(&program("multipath", args, DEADLINE)).await;
    flushed
        .map(drop)
        .map_err(|error| format!("failed to flush multipath device {}: {}", mapped.display(), chain(&error)))
}

/// Every SCSI host looks for disks that it does not know. A host that cannot is left out.
pub(super) async fn rescan_hosts(ctx: &Context) {
    for host in ctx.files.list_names(Path::new(HOSTS)).await.unwrap_or_default() {
        let path = Path::new(HOSTS).join(&host).join("scan");
        if let Err(err) = write(ctx, &path, RESCAN).await {
            tracing::debug!(host, err = chain(&err), "Failed to scan SCSI host");
        }
    }
}

/// Writes what the kernel has in memory for the disk, and removes it. What fails is not tried again.
pub(super) async fn flush_and_delete(ctx: &Context, disk: &Path) {
    let args = vec!["--flushbufs".to_owned(), disk.display().to_string()];
    if let Err(err) = ctx.processes.run_program(&program("blockdev", args, DEADLINE)).await {
        tracing::warn!(device = %disk.display(), err = chain(&err), "Failed to flush device");
    }
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    if let Err(err) = delete_device(ctx, &name).await {
        tracing::warn!(device = %disk.display(), err = chain(&err), "Failed to delete block device");
    }
}

/// Removes a disk from the kernel; its data stays.
pub(super) async fn delete_device(ctx: &Context, name: &str) -> Result<(), HostError> {
    let path = Path::new(BLOCK).join(name).join("device/delete");
    write(ctx, &path, "1").await
}

/// Writes to a file of the kernel.
pub(crate) async fn write(ctx: &Context, path: &Path, value: &str) -> Result<(), HostError> {
    ctx.files.rewrite_file(path, value.as_bytes(), WRITE_ONLY).await
}
