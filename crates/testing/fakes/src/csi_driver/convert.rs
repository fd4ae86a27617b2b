//! Requests of the kubelet as `model` values, with the checks of required fields.

use std::path::PathBuf;

use grpc_api::csi as wire;
use model::csi::{
    AccessMode, AccessType, DriverSecrets, ExpandRequest, PublishRequest, StageRequest, StatsRequest,
    VolumeCapability, VolumeContext,
};
use tonic::Status;
use wire::volume_capability::access_mode::Mode;

pub(super) fn stage(from: wire::NodeStageVolumeRequest) -> Result<StageRequest, Status> {
    Ok(StageRequest {
        volume_id: volume_id(from.volume_id)?,
        publish_context: from.publish_context,
        staging_target_path: path("staging target path", &from.staging_target_path)?,
        capability: capability(from.volume_capability)?,
        secrets: DriverSecrets(from.secrets),
        volume_context: from.volume_context,
    })
}

pub(super) fn publish(from: wire::NodePublishVolumeRequest) -> Result<PublishRequest, Status> {
    Ok(PublishRequest {
        volume_id: volume_id(from.volume_id)?,
        publish_context: from.publish_context,
        staging_target_path: optional_path("staging target path", &from.staging_target_path)?,
        target_path: path("target path", &from.target_path)?,
        capability: capability(from.volume_capability)?,
        read_only: from.readonly,
        secrets: DriverSecrets(from.secrets),
        volume_context: VolumeContext(from.volume_context),
    })
}

pub(super) fn expand(from: wire::NodeExpandVolumeRequest) -> Result<ExpandRequest, Status> {
    let range = from.capacity_range.unwrap_or_default();
    if range.required_bytes < 0 || range.limit_bytes < 0 {
        return Err(Status::invalid_argument("the capacity range is negative"));
    }
    Ok(ExpandRequest {
        volume_id: volume_id(from.volume_id)?,
        volume_path: path("volume path", &from.volume_path)?,
        required_bytes: range.required_bytes,
        staging_target_path: optional_path("staging target path", &from.staging_target_path)?,
        capability: capability(from.volume_capability)?,
        secrets: DriverSecrets(from.secrets),
    })
}

pub(super) fn stats(from: wire::NodeGetVolumeStatsRequest) -> Result<StatsRequest, Status> {
    Ok(StatsRequest {
        volume_id: volume_id(from.volume_id)?,
        volume_path: path("volume path", &from.volume_path)?,
        staging_target_path: optional_path("staging target path", &from.staging_target_path)?,
    })
}

pub(super) fn volume_id(from: String) -> Result<String, Status> {
    if from.is_empty() {
        return Err(Status::invalid_argument("volume id is missing"));
    }
    if from.contains('/') || from.starts_with('.') {
        return Err(Status::not_found(format!("volume {from} does not exist")));
    }
    Ok(from)
}

pub(super) fn path(name: &str, from: &str) -> Result<PathBuf, Status> {
    let path = PathBuf::from(from);
    if from.is_empty() {
        return Err(Status::invalid_argument(format!("{name} is missing")));
    }
    if !path.is_absolute() {
        return Err(Status::invalid_argument(format!("{name} {from} is not absolute")));
    }
    Ok(path)
}

fn optional_path(name: &str, from: &str) -> Result<Option<PathBuf>, Status> {
    if from.is_empty() { Ok(None) } else { path(name, from).map(Some) }
}

fn capability(from: Option<wire::VolumeCapability>) -> Result<VolumeCapability, Status> {
    let missing = |what: &str| Status::invalid_argument(format!("{what} is missing"));
    let from = from.ok_or_else(|| missing("volume capability"))?;
    let access_type = match from.access_type.ok_or_else(|| missing("access type"))? {
        wire::volume_capability::AccessType::Block(_) => AccessType::Block,
        wire::volume_capability::AccessType::Mount(mount) => AccessType::Mount {
            fs_type: mount.fs_type,
            mount_flags: mount.mount_flags,
            volume_mount_group: mount.volume_mount_group,
        },
    };
    let mode = from.access_mode.map_or(Ok(Mode::Unknown), |mode| Mode::try_from(mode.mode));
    let access_mode = match mode.map_err(|_| Status::invalid_argument("access mode is not known"))? {
        Mode::Unknown => return Err(missing("access mode")),
        Mode::SingleNodeWriter => AccessMode::SingleNodeWriter,
        Mode::SingleNodeReaderOnly => AccessMode::SingleNodeReaderOnly,
        Mode::MultiNodeReaderOnly => AccessMode::MultiNodeReaderOnly,
        Mode::MultiNodeSingleWriter => AccessMode::MultiNodeSingleWriter,
        Mode::MultiNodeMultiWriter => AccessMode::MultiNodeMultiWriter,
        Mode::SingleNodeSingleWriter => AccessMode::SingleNodeSingleWriter,
        Mode::SingleNodeMultiWriter => AccessMode::SingleNodeMultiWriter,
    };
    Ok(VolumeCapability { access_type, access_mode })
}
