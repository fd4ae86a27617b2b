//! A path of the node, used where it is.

use std::path::PathBuf;

use kubelet_core::volumes::engine::ReadyVolume;
use ports::host::HostPathKind;

use super::mount_context::{MakeError, MountContext};

pub(super) async fn make(
    mount_context: &MountContext<'_>,
    path: &str,
    kind: &str,
    read_only: bool,
) -> Result<ReadyVolume, MakeError> {
    let path = PathBuf::from(path);
    let kind = match kind {
        "" => HostPathKind::Unset,
        "DirectoryOrCreate" => HostPathKind::DirectoryOrCreate,
        "Directory" => HostPathKind::Directory,
        "FileOrCreate" => HostPathKind::FileOrCreate,
        "File" => HostPathKind::File,
        "Socket" => HostPathKind::Socket,
        "CharDevice" => HostPathKind::CharDevice,
        "BlockDevice" => HostPathKind::BlockDevice,
        other => return Err(MakeError::Failed(format!("hostPath type {other:?} is unknown"))),
    };
    mount_context.unless_leaving(mount_context.ctx.mounts.ensure_host_path(&path, kind)).await?;
    Ok(ReadyVolume { read_only, ..ReadyVolume::at(path) })
}
