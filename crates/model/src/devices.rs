//! Devices of the node in plain data: as their plugins tell of them, and what a container gets to see of those it was given.

use std::collections::BTreeMap;

use crate::request::{Device, Mount};

/// What a plugin can be asked for beyond handing devices out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// It wants to be called before each start of a container that has devices of it.
    pub pre_start: bool,
    /// It can say which devices go well together.
    pub has_preferences: bool,
}

/// One device, as its plugin tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginDevice {
    pub id: String,
    pub is_healthy: bool,
    /// The NUMA nodes that it is near to; none where the plugin does not say.
    pub numa_nodes: Vec<i64>,
}

/// What a plugin wants done to a container for the devices that it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocateResponse {
    pub env: BTreeMap<String, String>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub annotations: BTreeMap<String, String>,
    /// Like `vendor.com/class=device`.
    pub cdi_devices: Vec<String>,
}
