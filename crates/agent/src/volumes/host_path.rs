//! A path of the node, used where it is.

use std::path::PathBuf;

use kubelet_core::volume::engine::ReadyVolume;
use ports::host::HostPathKind;

use super::make::{MakeError, Scene};

pub(super) async fn make(scene: &Scene<'_>) -> Result<ReadyVolume, MakeError> {
    let source = scene.volume.host_path.clone().unwrap_or_default();
    let path = PathBuf::from(&source.path);
    let kind = match source.type_.as_deref().unwrap_or_default() {
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
    scene.unless_leaving(scene.host().ensure_host_path(&path, kind)).await?;
    Ok(ReadyVolume { path, is_device: false, read_only: false })
}
