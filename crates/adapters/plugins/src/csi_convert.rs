//! Converts between messages of CSI and `model` types, and checks the limits of what a driver answers.

use std::collections::BTreeMap;
use std::path::Path;

use grpc_api::csi as wire;
use model::csi::{
    AccessMode, AccessType, ExpandRequest, NodeCapabilities, NodeInfo, PublishRequest, StageRequest,
    StatsRequest, Usage, VolumeCapability, VolumeCondition, VolumeStats,
};
use model::text::cut_owned;
use ports::plugins::{PluginError, PluginResult};
use wire::node_service_capability::Type as ServiceCapability;
use wire::node_service_capability::rpc::Type as Rpc;
use wire::volume_capability::access_mode::Mode;
use wire::volume_usage::Unit;

/// The limits of the specification for the id of a node and for a map.
const MAX_NODE_ID_BYTES: usize = 256;
const MAX_MAP_BYTES: usize = 4096;
/// A condition is shown in events, whose messages have this limit.
const MAX_CONDITION_BYTES: usize = 1024;

pub(crate) fn stage(from: &StageRequest) -> PluginResult<wire::NodeStageVolumeRequest> {
    Ok(wire::NodeStageVolumeRequest {
        volume_id: from.volume_id.clone(),
        publish_context: from.publish_context.clone(),
        staging_target_path: text(&from.staging_target_path)?,
        volume_capability: Some(volume_capability(&from.capability)),
        secrets: from.secrets.0.clone(),
        volume_context: from.volume_context.clone(),
    })
}

pub(crate) fn unstage(volume_id: &str, path: &Path) -> PluginResult<wire::NodeUnstageVolumeRequest> {
    let staging_target_path = text(path)?;
    Ok(wire::NodeUnstageVolumeRequest { volume_id: volume_id.to_owned(), staging_target_path })
}

pub(crate) fn publish(from: &PublishRequest) -> PluginResult<wire::NodePublishVolumeRequest> {
    Ok(wire::NodePublishVolumeRequest {
        volume_id: from.volume_id.clone(),
        publish_context: from.publish_context.clone(),
        staging_target_path: optional_text(from.staging_target_path.as_deref())?,
        target_path: text(&from.target_path)?,
        volume_capability: Some(volume_capability(&from.capability)),
        readonly: from.read_only,
        secrets: from.secrets.0.clone(),
        volume_context: from.volume_context.0.clone(),
    })
}

pub(crate) fn unpublish(volume_id: &str, path: &Path) -> PluginResult<wire::NodeUnpublishVolumeRequest> {
    Ok(wire::NodeUnpublishVolumeRequest { volume_id: volume_id.to_owned(), target_path: text(path)? })
}

pub(crate) fn expand(from: &ExpandRequest) -> PluginResult<wire::NodeExpandVolumeRequest> {
    Ok(wire::NodeExpandVolumeRequest {
        volume_id: from.volume_id.clone(),
        volume_path: text(&from.volume_path)?,
        capacity_range: Some(wire::CapacityRange { required_bytes: from.required_bytes, limit_bytes: 0 }),
        staging_target_path: optional_text(from.staging_target_path.as_deref())?,
        volume_capability: Some(volume_capability(&from.capability)),
        secrets: from.secrets.0.clone(),
    })
}

pub(crate) fn stats_request(from: &StatsRequest) -> PluginResult<wire::NodeGetVolumeStatsRequest> {
    Ok(wire::NodeGetVolumeStatsRequest {
        volume_id: from.volume_id.clone(),
        volume_path: text(&from.volume_path)?,
        staging_target_path: optional_text(from.staging_target_path.as_deref())?,
    })
}

/// A lossy conversion would name another directory.
fn text(path: &Path) -> PluginResult<String> {
    let malformed = || PluginError::Malformed(format!("the path {} is not valid UTF-8", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(malformed)
}

fn optional_text(path: Option<&Path>) -> PluginResult<String> {
    path.map_or_else(|| Ok(String::new()), text)
}

fn volume_capability(from: &VolumeCapability) -> wire::VolumeCapability {
    let access_type = match &from.access_type {
        AccessType::Block => {
            wire::volume_capability::AccessType::Block(wire::volume_capability::BlockVolume {})
        }
        AccessType::Mount { fs_type, mount_flags, volume_mount_group } => {
            wire::volume_capability::AccessType::Mount(wire::volume_capability::MountVolume {
                fs_type: fs_type.clone(),
                mount_flags: mount_flags.clone(),
                volume_mount_group: volume_mount_group.clone(),
            })
        }
    };
    let mode = access_mode(from.access_mode).into();
    wire::VolumeCapability {
        access_mode: Some(wire::volume_capability::AccessMode { mode }),
        access_type: Some(access_type),
    }
}

const fn access_mode(from: AccessMode) -> Mode {
    match from {
        AccessMode::Unknown => Mode::Unknown,
        AccessMode::SingleNodeWriter => Mode::SingleNodeWriter,
        AccessMode::SingleNodeReaderOnly => Mode::SingleNodeReaderOnly,
        AccessMode::MultiNodeReaderOnly => Mode::MultiNodeReaderOnly,
        AccessMode::MultiNodeSingleWriter => Mode::MultiNodeSingleWriter,
        AccessMode::MultiNodeMultiWriter => Mode::MultiNodeMultiWriter,
        AccessMode::SingleNodeSingleWriter => Mode::SingleNodeSingleWriter,
        AccessMode::SingleNodeMultiWriter => Mode::SingleNodeMultiWriter,
    }
}

pub(crate) fn node_info(from: wire::NodeGetInfoResponse) -> PluginResult<NodeInfo> {
    let topology = from.accessible_topology.unwrap_or_default().segments;
    check_limit("node_id", from.node_id.len(), MAX_NODE_ID_BYTES)?;
    check_limit("accessible_topology", map_bytes(&topology), MAX_MAP_BYTES)?;
    Ok(NodeInfo { node_id: from.node_id, max_volumes_per_node: from.max_volumes_per_node, topology })
}

fn map_bytes(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

fn check_limit(field: &str, bytes: usize, max: usize) -> PluginResult<()> {
    if bytes <= max {
        return Ok(());
    }
    Err(PluginError::Malformed(format!("{field} of the CSI driver has {bytes} bytes, more than {max}")))
}

/// Ignores capabilities of later versions of the specification.
pub(crate) fn node_capabilities(from: &wire::NodeGetCapabilitiesResponse) -> NodeCapabilities {
    let mut to = NodeCapabilities::default();
    for capability in &from.capabilities {
        let Some(ServiceCapability::Rpc(rpc)) = &capability.r#type else { continue };
        match Rpc::try_from(rpc.r#type) {
            Ok(Rpc::StageUnstageVolume) => to.stage_unstage_volume = true,
            Ok(Rpc::GetVolumeStats) => to.get_volume_stats = true,
            Ok(Rpc::ExpandVolume) => to.expand_volume = true,
            Ok(Rpc::VolumeCondition) => to.volume_condition = true,
            Ok(Rpc::SingleNodeMultiWriter) => to.single_node_multi_writer = true,
            Ok(Rpc::VolumeMountGroup) => to.volume_mount_group = true,
            Ok(Rpc::Unknown) | Err(_) => {}
        }
    }
    to
}

pub(crate) fn capacity(from: &wire::NodeExpandVolumeResponse) -> PluginResult<i64> {
    check_not_negative("capacity_bytes", from.capacity_bytes)?;
    Ok(from.capacity_bytes)
}

fn check_not_negative(field: &str, value: i64) -> PluginResult<()> {
    if value >= 0 {
        return Ok(());
    }
    Err(PluginError::Malformed(format!("{field} of the CSI driver is negative: {value}")))
}

/// The last usage of each unit counts. Ignores units of later versions of the specification.
pub(crate) fn stats(from: wire::NodeGetVolumeStatsResponse) -> PluginResult<VolumeStats> {
    let mut to = VolumeStats { condition: from.volume_condition.map(condition), ..VolumeStats::default() };
    for usage in &from.usage {
        match Unit::try_from(usage.unit) {
            Ok(Unit::Bytes) => to.bytes = Some(to_usage(usage)?),
            Ok(Unit::Inodes) => to.inodes = Some(to_usage(usage)?),
            Ok(Unit::Unknown) | Err(_) => {}
        }
    }
    Ok(to)
}

fn to_usage(from: &wire::VolumeUsage) -> PluginResult<Usage> {
    check_not_negative("available", from.available)?;
    check_not_negative("total", from.total)?;
    check_not_negative("used", from.used)?;
    Ok(Usage { available: from.available, total: from.total, used: from.used })
}

fn condition(from: wire::VolumeCondition) -> VolumeCondition {
    VolumeCondition { is_abnormal: from.abnormal, message: cut_owned(from.message, MAX_CONDITION_BYTES) }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use model::csi::{DriverSecrets, VolumeContext};

    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn files(access_mode: AccessMode) -> VolumeCapability {
        let access_type = AccessType::Mount {
            fs_type: "ext4".to_owned(),
            mount_flags: vec!["noatime".to_owned()],
            volume_mount_group: "1000".to_owned(),
        };
        VolumeCapability { access_type, access_mode }
    }

    fn refusal<T: std::fmt::Debug>(result: PluginResult<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn stage_request_carries_every_field() {
        let request = StageRequest {
            volume_id: "vol-1".to_owned(),
            publish_context: map(&[("device", "/dev/vdb")]),
            staging_target_path: PathBuf::from("/staging"),
            capability: files(AccessMode::MultiNodeMultiWriter),
            secrets: DriverSecrets(map(&[("key", "secret")])),
            volume_context: map(&[("pool", "fast")]),
        };
        let sent = stage(&request).unwrap();
        assert_eq!(sent.volume_id, "vol-1");
        assert_eq!(sent.publish_context, map(&[("device", "/dev/vdb")]));
        assert_eq!(sent.staging_target_path, "/staging");
        assert_eq!(sent.secrets, map(&[("key", "secret")]));
        assert_eq!(sent.volume_context, map(&[("pool", "fast")]));
        let capability = sent.volume_capability.unwrap();
        assert_eq!(capability.access_mode.unwrap().mode, 5);
        let Some(wire::volume_capability::AccessType::Mount(mount)) = capability.access_type else {
            panic!("{:?}", capability.access_type)
        };
        assert_eq!((&*mount.fs_type, &*mount.volume_mount_group), ("ext4", "1000"));
        assert_eq!(mount.mount_flags, ["noatime"]);
    }

    #[test]
    fn publish_request_of_a_block_volume_without_staging_has_no_staging_path() {
        let request = PublishRequest {
            volume_id: "vol-1".to_owned(),
            publish_context: map(&[("device", "/dev/vdb")]),
            staging_target_path: None,
            target_path: PathBuf::from("/target"),
            capability: VolumeCapability {
                access_type: AccessType::Block,
                access_mode: AccessMode::SingleNodeWriter,
            },
            read_only: true,
            secrets: DriverSecrets(map(&[("key", "secret")])),
            volume_context: VolumeContext(map(&[("csi.storage.k8s.io/pod.name", "web")])),
        };
        let sent = publish(&request).unwrap();
        assert_eq!((&*sent.staging_target_path, &*sent.target_path), ("", "/target"));
        assert!(sent.readonly);
        assert_eq!(sent.publish_context, map(&[("device", "/dev/vdb")]));
        assert_eq!(sent.secrets, map(&[("key", "secret")]));
        assert_eq!(sent.volume_context, map(&[("csi.storage.k8s.io/pod.name", "web")]));
        let capability = sent.volume_capability.unwrap();
        assert_eq!(capability.access_mode.unwrap().mode, 1);
        assert!(matches!(capability.access_type, Some(wire::volume_capability::AccessType::Block(_))));
    }

    #[test]
    fn expand_request_requires_the_size_and_sets_no_limit() {
        let request = ExpandRequest {
            volume_id: "vol-1".to_owned(),
            volume_path: PathBuf::from("/target"),
            required_bytes: 1 << 30,
            staging_target_path: Some(PathBuf::from("/staging")),
            capability: files(AccessMode::SingleNodeSingleWriter),
            secrets: DriverSecrets(map(&[("key", "secret")])),
        };
        let sent = expand(&request).unwrap();
        let range = wire::CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 };
        assert_eq!(sent.capacity_range, Some(range));
        assert_eq!((&*sent.volume_path, &*sent.staging_target_path), ("/target", "/staging"));
        assert_eq!(sent.secrets, map(&[("key", "secret")]));
        assert_eq!(sent.volume_capability.unwrap().access_mode.unwrap().mode, 6);
    }

    #[test]
    fn access_modes_have_the_numbers_of_the_specification() {
        let modes = [
            AccessMode::Unknown,
            AccessMode::SingleNodeWriter,
            AccessMode::SingleNodeReaderOnly,
            AccessMode::MultiNodeReaderOnly,
            AccessMode::MultiNodeSingleWriter,
            AccessMode::MultiNodeMultiWriter,
            AccessMode::SingleNodeSingleWriter,
            AccessMode::SingleNodeMultiWriter,
        ];
        assert_eq!(modes.map(|mode| access_mode(mode) as i32), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn path_that_is_not_text_is_refused() {
        let path = Path::new(OsStr::from_bytes(b"/a\xff"));
        assert_eq!(refusal(unstage("vol-1", path)), "the path /a\u{fffd} is not valid UTF-8");
        assert!(unpublish("vol-1", path).is_err());
    }

    #[test]
    fn node_info_has_the_limits_of_the_specification() {
        let info = |id: &str, zone: &str| {
            node_info(wire::NodeGetInfoResponse {
                node_id: id.to_owned(),
                max_volumes_per_node: 16,
                accessible_topology: Some(wire::Topology { segments: map(&[("zone", zone)]) }),
            })
        };
        let expected =
            NodeInfo { node_id: "n".repeat(256), max_volumes_per_node: 16, topology: map(&[("zone", "a")]) };
        assert_eq!(info(&"n".repeat(256), "a"), Ok(expected));
        assert_eq!(
            refusal(info(&"n".repeat(257), "a")),
            "node_id of the CSI driver has 257 bytes, more than 256"
        );
        assert!(info("n", &"z".repeat(4092)).is_ok());
        assert_eq!(
            refusal(info("n", &"z".repeat(4093))),
            "accessible_topology of the CSI driver has 4097 bytes, more than 4096"
        );
        assert_eq!(node_info(wire::NodeGetInfoResponse::default()), Ok(NodeInfo::default()));
    }

    #[test]
    fn unknown_capabilities_are_ignored() {
        let capability = |kind: i32| wire::NodeServiceCapability {
            r#type: Some(ServiceCapability::Rpc(wire::node_service_capability::Rpc { r#type: kind })),
        };
        let decoded = |kinds: &[i32]| {
            let mut capabilities: Vec<_> = kinds.iter().copied().map(capability).collect();
            capabilities.push(wire::NodeServiceCapability { r#type: None });
            node_capabilities(&wire::NodeGetCapabilitiesResponse { capabilities })
        };
        assert_eq!(decoded(&[0, 7, -1, i32::MAX]), NodeCapabilities::default());
        let all = NodeCapabilities {
            stage_unstage_volume: true,
            get_volume_stats: true,
            expand_volume: true,
            volume_condition: true,
            single_node_multi_writer: true,
            volume_mount_group: true,
        };
        assert_eq!(decoded(&[1, 2, 3, 4, 5, 6]), all);
        let some = NodeCapabilities { stage_unstage_volume: true, expand_volume: true, ..Default::default() };
        assert_eq!(decoded(&[3, 1, 1]), some);
    }

    #[test]
    fn stats_have_a_usage_for_each_unit_and_a_bounded_condition() {
        let usage = |unit: i32, total: i64| wire::VolumeUsage { available: 1, total, used: 2, unit };
        let response = wire::NodeGetVolumeStatsResponse {
            usage: vec![usage(0, 9), usage(1, 3), usage(2, 5), usage(77, 9)],
            volume_condition: Some(wire::VolumeCondition { abnormal: true, message: "x".repeat(5000) }),
        };
        let decoded = stats(response).unwrap();
        assert_eq!(decoded.bytes, Some(Usage { available: 1, total: 3, used: 2 }));
        assert_eq!(decoded.inodes, Some(Usage { available: 1, total: 5, used: 2 }));
        let condition = decoded.condition.unwrap();
        assert!(condition.is_abnormal);
        assert_eq!(condition.message.len(), MAX_CONDITION_BYTES);
        assert_eq!(stats(wire::NodeGetVolumeStatsResponse::default()), Ok(VolumeStats::default()));
    }

    #[test]
    fn negative_sizes_are_refused() {
        let usage = wire::VolumeUsage { available: -1, total: 1, used: 1, unit: 1 };
        let response = wire::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None };
        assert_eq!(refusal(stats(response)), "available of the CSI driver is negative: -1");
        let expanded = |capacity_bytes| capacity(&wire::NodeExpandVolumeResponse { capacity_bytes });
        assert_eq!(expanded(i64::MAX), Ok(i64::MAX));
        assert_eq!(refusal(expanded(-1)), "capacity_bytes of the CSI driver is negative: -1");
    }
}
