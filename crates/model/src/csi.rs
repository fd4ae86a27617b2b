//! Calls of CSI drivers as plain values: requests to the node's part of a driver, and its responses.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// What a driver says about itself on this node: `NodeGetInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node, as the driver names it.
    pub node_id: String,
    /// 0: no limit.
    pub max_volumes_per_node: i64,
    /// The place of the node, which volumes may be bound to: `topology.example.com/zone` and its value.
    pub topology: BTreeMap<String, String>,
}

/// Optional calls and fields that a driver supports: `NodeGetCapabilities`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCapabilities {
    pub stage_unstage_volume: bool,
    pub get_volume_stats: bool,
    pub expand_volume: bool,
    pub volume_condition: bool,
    pub single_node_multi_writer: bool,
    pub volume_mount_group: bool,
}

/// `VolumeCapability.AccessMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    Unknown,
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
}

/// Whether pods see a device or files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessType {
    Block,
    Mount {
        fs_type: String,
        mount_flags: Vec<String>,
        /// The group that the driver itself gives the files; empty if it does not.
        volume_mount_group: String,
    },
}

/// `VolumeCapability`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeCapability {
    pub access_type: AccessType,
    pub access_mode: AccessMode,
}

/// Values of a Secret for the driver. Not printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DriverSecrets(pub BTreeMap<String, String>);

impl fmt::Debug for DriverSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// `NodeStageVolume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageRequest {
    pub volume_id: String,
    /// From the VolumeAttachment.
    pub publish_context: BTreeMap<String, String>,
    pub staging_target_path: PathBuf,
    pub capability: VolumeCapability,
    pub secrets: DriverSecrets,
    pub volume_context: BTreeMap<String, String>,
}

/// `NodePublishVolume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRequest {
    pub volume_id: String,
    pub publish_context: BTreeMap<String, String>,
    /// `None` if the driver does not stage volumes.
    pub staging_target_path: Option<PathBuf>,
    pub target_path: PathBuf,
    pub capability: VolumeCapability,
    pub read_only: bool,
    pub secrets: DriverSecrets,
    pub volume_context: VolumeContext,
}

/// The attributes of a volume, with what the driver asked to know of the pod. Tokens of the pod's service account are among the
/// values, so only keys are printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct VolumeContext(pub BTreeMap<String, String>);

impl fmt::Debug for VolumeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// `NodeExpandVolume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandRequest {
    pub volume_id: String,
    pub volume_path: PathBuf,
    pub required_bytes: i64,
    pub staging_target_path: Option<PathBuf>,
    pub capability: VolumeCapability,
    pub secrets: DriverSecrets,
}

/// `NodeGetVolumeStats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsRequest {
    pub volume_id: String,
    pub volume_path: PathBuf,
    pub staging_target_path: Option<PathBuf>,
}

/// How full a volume is, in one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub available: i64,
    pub total: i64,
    pub used: i64,
}

/// The answer to `NodeGetVolumeStats`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    pub bytes: Option<Usage>,
    pub inodes: Option<Usage>,
    pub condition: Option<VolumeCondition>,
}

/// What the driver says about the health of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeCondition {
    pub is_abnormal: bool,
    pub message: String,
}
