//! Directories of the pod's own, on disk or in memory.

use std::path::Path;

use async_trait::async_trait;
use ports::HostError;
use volumes_core::engine::ReadyVolume;
use volumes_core::types::{EmptyDirPlan, Medium, size_on_node};

use super::super::mount_context::{MountContext, MountError};
use super::super::quota;
use super::Mounter;

const MARKS: &str = "plugins/kubernetes.io~empty-dir";

#[async_trait]
impl Mounter for EmptyDirPlan {
    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        let path = mount_context.volume_dir();
        ensure_backing(mount_context, &path, mount_context.volume, self.medium).await?;
        quota::ensure(mount_context, &path).await;
        Ok(ReadyVolume::at(path))
    }
}

/// A directory for a volume is made once: what its containers change about its permissions later stays, also after a restart
/// of the kubelet. A mark in the pod's directory records that it is ready; one in memory is lost with a reboot all the same.
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
            let size_bytes = size_on_node(size_bytes, mount_context.facts.allocatable.get("memory"));
            ctx.mounts.ensure_tmpfs(path, size_bytes).await?
        }
        Medium::HugePages { page_bytes } => {
            ctx.files.ensure_dir(path, 0o777).await?;
            ctx.mounts.ensure_huge_pages(path, page_bytes).await?;
        }
    }
    if let Some(gid) = mount_context.group() {
        ctx.mounts.set_group(path, gid).await?;
    }
    ctx.files.ensure_dir(&mark_dir, 0o750).await?;
    ctx.files.write_file(&mark, b"", 0o644).await
}
