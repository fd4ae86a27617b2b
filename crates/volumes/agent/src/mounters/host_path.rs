//! A path of the node, used where it is.

use std::path::PathBuf;

use async_trait::async_trait;
use ports::host::HostPathKind;
use volumes_core::engine::ReadyVolume;
use volumes_core::types::HostPathPlan;

use super::super::mount_context::{MountContext, MountError};
use super::Mounter;

#[async_trait]
impl Mounter for HostPathPlan {
    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        let path = PathBuf::from(&self.path);
        let kind = host_path_kind(&self.kind).map_err(MountError::Failed)?;
        mount_context.unless_leaving(mount_context.ctx.mounts.ensure_host_path(&path, kind)).await?;
        Ok(ReadyVolume::at(path))
    }
}

fn host_path_kind(kind: &str) -> Result<HostPathKind, String> {
    Ok(match kind {
        "" => HostPathKind::Unset,
        "DirectoryOrCreate" => HostPathKind::DirectoryOrCreate,
        "Directory" => HostPathKind::Directory,
        "FileOrCreate" => HostPathKind::FileOrCreate,
        "File" => HostPathKind::File,
        "Socket" => HostPathKind::Socket,
        "CharDevice" => HostPathKind::CharDevice,
        "BlockDevice" => HostPathKind::BlockDevice,
        other => return Err(format!("hostPath type {other:?} is unknown")),
    })
}
