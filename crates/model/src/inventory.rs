//! What is on the node: the documents of the local socket (`/v1`) that `kubelet get` prints as tables, and `kubelet stats`.
//!
//! Owns the shape of these documents only. They are stable within a version: fields are added, never renamed or removed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One list, such as the answer of `/v1/images`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inventory<T> {
    pub items: Vec<T>,
    /// Why something is missing, such as a runtime that does not answer; empty if the list is complete.
    pub problems: Vec<String>,
}

impl<T> Default for Inventory<T> {
    fn default() -> Self {
        Self { items: Vec::new(), problems: Vec::new() }
    }
}

impl<T> From<Vec<T>> for Inventory<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, problems: Vec::new() }
    }
}

/// An image in the container runtime: an item of `/v1/images`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageItem {
    pub id: String,
    /// Names with tags, then names with digests.
    pub names: Vec<String>,
    pub size_bytes: u64,
    /// The runtime never lets it be removed.
    pub is_pinned: bool,
    /// `namespace/name` of the pods that have a container or volume of it.
    pub used_by: Vec<String>,
    /// When it was first seen; absent if it was there when the kubelet started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<Timestamp>,
    /// When garbage collection last saw it in use; absent if not since the kubelet started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

/// A volume of a pod: an item of `/v1/volumes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeItem {
    pub namespace: String,
    pub pod: String,
    pub pod_uid: String,
    pub name: String,
    /// The field of the volume in the API: `emptyDir`, `hostPath`, `persistentVolumeClaim`.
    pub kind: String,
    /// What the volume is made from: a path, or the name of an object; empty if there is nothing to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    pub state: VolumeState,
    /// Attempts that failed in a row.
    pub failures: u32,
    /// What the last attempt that failed said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// The VolumeAttachment that the volume waits for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub attachment: String,
    /// The containers that mount it.
    pub containers: Vec<String>,
}

/// How a volume of a pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeState {
    /// The node has not begun with it, or has removed it.
    #[default]
    NotMounted,
    /// An attempt is under way.
    Mounting,
    /// The last attempt failed, and there will be another.
    Failed,
    /// It cannot be planned: trying again does not help.
    Refused,
    Mounted,
    /// It is being unmounted.
    Unmounting,
}

impl VolumeState {
    /// As in tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotMounted => "NotMounted",
            Self::Mounting => "Mounting",
            Self::Failed => "Failed",
            Self::Refused => "Refused",
            Self::Mounted => "Mounted",
            Self::Unmounting => "Unmounting",
        }
    }
}

/// A ResourceClaim that is prepared on this node, or may be: an item of `/v1/claims`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimItem {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Every driver has prepared it.
    pub is_prepared: bool,
    /// An operation of a driver is under way.
    pub is_busy: bool,
    pub drivers: Vec<ClaimDriverItem>,
    /// `namespace/name` of the pods that use it, or the UIDs of pods that this node does not know any more.
    pub used_by: Vec<String>,
}

/// The part of one driver in a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimDriverItem {
    pub name: String,
    pub is_prepared: bool,
    pub is_registered: bool,
    /// `pool/device`.
    pub devices: Vec<String>,
}

/// What is allocated to a container of an admitted pod: an item of `/v1/allocations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationItem {
    pub namespace: String,
    pub pod: String,
    pub pod_uid: String,
    pub container: String,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    pub qos_class: String,
    /// Quantities as in the API; empty if there is none.
    pub cpu_request: String,
    pub cpu_limit: String,
    pub memory_request: String,
    pub memory_limit: String,
    /// CPUs that no other container has: `2-3,6`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub exclusive_cpus: String,
    /// NUMA nodes whose memory it has: `0,1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub memory_nodes: String,
    /// Devices of device plugins: `vendor.example/gpu=gpu-1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
}

/// A cgroup that the node measures: an item of `/v1/cgroups`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CgroupItem {
    /// `/kubepods/…`.
    pub path: String,
    /// `node`, `system`, `pod`, `sandbox` or `container`.
    pub kind: String,
    /// `kubelet`, `namespace/pod` or `namespace/pod/container`.
    pub owner: String,
    #[serde(flatten)]
    pub usage: Usage,
    /// Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Processes in this cgroup, without child cgroups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

/// CPU and memory in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Nanoseconds of CPU a second; absent until there are two readings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_nanocores: Option<u64>,
    /// The working set: memory that cannot be taken back at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// A plugin of the node: an item of `/v1/plugins`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginItem {
    /// `CSIPlugin`, `DevicePlugin` or `DRAPlugin`; empty as long as the plugin has not said.
    pub kind: String,
    /// Of a device plugin, the resource.
    pub name: String,
    pub is_registered: bool,
    /// The socket; empty if the plugin is not there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub socket: String,
    /// Why the last registration failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Devices of a device plugin: how many of them are healthy, and all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_devices: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<usize>,
}

/// An event about a pod, the node or a PersistentVolume: an item of `/v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventItem {
    /// `Pod`, `Node` or `PersistentVolume`.
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: String,
    pub reason: String,
    pub message: String,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub count: u32,
}

/// What the node and its pods use: the answer of `/v1/stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUsage {
    pub taken: Timestamp,
    pub node: Usage,
    pub cpus: u32,
    pub memory_capacity_bytes: u64,
    pub pods: Vec<PodUsage>,
    /// Why something is missing.
    pub problems: Vec<String>,
}

/// What a pod uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodUsage {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    #[serde(flatten)]
    pub usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    pub containers: Vec<ContainerUsage>,
}

/// What a container uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerUsage {
    pub name: String,
    #[serde(flatten)]
    pub usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
}

/// Which pods are meant, and whose things.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSelection {
    /// A name, `namespace/name`, or a UID or its beginning; empty for all.
    pub words: String,
    /// Empty for all.
    pub namespace: String,
    pub labels: Vec<LabelRequirement>,
}

impl PodSelection {
    /// The pods that the words mean, whatever their namespaces and labels.
    #[must_use]
    pub fn of(words: &str) -> Self {
        Self { words: words.to_owned(), ..Self::default() }
    }
}

/// One part of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelRequirement {
    /// `key in (a,b)`, `key=a`.
    In { key: String, values: Vec<String> },
    /// `key notin (a,b)`, `key!=a`; also met without the label.
    NotIn { key: String, values: Vec<String> },
    /// `key`.
    Exists { key: String },
    /// `!key`.
    DoesNotExist { key: String },
}
