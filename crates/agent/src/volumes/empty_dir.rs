//! Directories of the pod's own, on disk or in memory.

use std::path::Path;

use kubelet_core::volumes::engine::ReadyVolume;
use kubelet_core::volumes::plan::Medium;
use model::Amount;
use ports::HostError;

use super::mount_context::{MakeError, MountContext};
use super::{EMPTY_DIRS, quota};

const MARKS: &str = "plugins/kubernetes.io~empty-dir";

pub(super) async fn make(mount_context: &MountContext<'_>, medium: Medium) -> Result<ReadyVolume, MakeError> {
    let path = mount_context.pod_dir().join(EMPTY_DIRS).join(&mount_context.volume.name);
    ensure_backing(mount_context, &path, &mount_context.volume.name, medium).await?;
    quota::ensure(mount_context, &path).await;
    Ok(ReadyVolume::at(path))
}

/// No more than all pods together may use; that much where nothing else is said.
fn bounded(mount_context: &MountContext<'_>, size_bytes: u64) -> u64 {
    let of_node =
        mount_context.facts.allocatable.get("memory").and_then(|quantity| Amount::of(quantity).ok());
    let of_node = of_node.and_then(|amount| u64::try_from(amount.units()).ok()).unwrap_or(0);
    [size_bytes, of_node].into_iter().filter(|size| *size > 0).min().unwrap_or(0)
}

/// A directory for a volume is made once: what its containers do to its permissions later is theirs, also over restarts
/// of the kubelet. A mark next to the volumes says that it is ready; one in memory is gone after a reboot all the same.
pub(super) async fn ensure_backing(
    mount_context: &MountContext<'_>,
    path: &Path,
    mark_name: &str,
    medium: Medium,
) -> Result<(), HostError> {
    let ctx = mount_context.ctx;
    let mark_dir = mount_context.pod_dir().join(MARKS).join(mark_name);
    let mark = mark_dir.join("ready");
    let was_ready = ctx.files.read_file(&mark, 1, false).await.is_ok();
    if was_ready && (medium == Medium::Disk || ctx.mounts.is_mount_point(path).await?) {
        return Ok(());
    }
    match medium {
        Medium::Disk => ctx.files.ensure_dir(path, 0o777).await?,
        // The mount has permissions of its own, which include the sticky bit.
        Medium::Memory { size_bytes } => {
            ctx.mounts.ensure_tmpfs(path, bounded(mount_context, size_bytes)).await?
        }
        Medium::HugePages { page_bytes, size_bytes } => {
            ctx.files.ensure_dir(path, 0o777).await?;
            ctx.mounts.ensure_huge_pages(path, page_bytes, size_bytes).await?;
        }
    }
    if let Some(gid) = mount_context.group() {
        ctx.mounts.give_to_group(path, gid).await?;
    }
    ctx.files.ensure_dir(&mark_dir, 0o750).await?;
    ctx.files.write_file(&mark, b"", 0o644).await
}
