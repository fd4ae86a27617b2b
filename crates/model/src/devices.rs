//! Devices of the node: as their plugins report them, and the allocate responses for containers.

use std::collections::BTreeMap;

use crate::request::{Device, Mount};

/// The health of a device, in the words of `allocatedResourcesStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceHealth {
    Healthy,
    Unhealthy,
    /// No plugin reports the device.
    Unknown,
}

impl DeviceHealth {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
        }
    }
}

/// Optional calls that a plugin supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// It requires PreStartContainer calls.
    pub pre_start: bool,
    /// It supports GetPreferredAllocation calls.
    pub has_preferences: bool,
}

/// One device, as its plugin reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginDevice {
    pub id: String,
    pub is_healthy: bool,
    /// The NUMA nodes of the device; empty if the plugin does not report them.
    pub numa_nodes: Vec<i64>,
}

/// The plugin's response to an allocation: changes to the container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocateResponse {
    pub env: BTreeMap<String, String>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub annotations: BTreeMap<String, String>,
    /// Like `vendor.com/class=device`.
    pub cdi_devices: Vec<String>,
}
