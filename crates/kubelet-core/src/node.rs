//! The Node object: how the node registers, what its status says, and when that is sent (docs/behaviour/node-status.md).
//!
//! Owns: every field of the Node that the kubelet writes, the events that follow from changes, and the patches. Never:
//! asking the machine or the runtime, resolving names, calling the API.

pub mod addresses;
pub mod cgroup_driver;
mod conditions;
pub mod enforcement;
pub mod eviction;
pub mod firewall;
pub mod garbage_collection;
mod images;
pub mod kernel;
pub mod lease;
pub mod oom;
pub mod register;
pub mod report;
pub mod resources;
pub mod shutdown;
mod status;
pub mod system_processes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::{KubeletConfiguration, NodeFlags};
use jiff::Timestamp;
use model::k8s::NodeRuntimeHandler;

pub use addresses::{AddressError, NodeAddresses, compute_addresses, invalid_node_ip};
pub use images::{NodeImage, compute_images};
pub use register::{compute_initial_node, compute_reconciliation};
pub use report::{
    StatusReport, StatusReports, compute_node_patch, compute_pod_cidr_update, compute_status_report,
    status_differs,
};
pub use resources::{compute_allocatable, compute_capacity, reserved_amounts, reserved_for_node};
pub use status::{NodeOutcome, compute_node_status};

use crate::resources::admission::pressure::NodePressure;
use crate::resources::quantities::DeviceAmounts;

const BETA_OS_LABEL: &str = "beta.kubernetes.io/os";
const BETA_ARCH_LABEL: &str = "beta.kubernetes.io/arch";
/// The attach/detach controller looks after this node's volumes.
const CONTROLLER_ATTACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The address that the node was given, for a cloud provider outside the kubelet.
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The machine, as the Node shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMachine {
    pub cpus: u32,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    /// Of the file system below the root directory; `None` while unknown, or where storage is not isolated.
    pub ephemeral_storage_bytes: Option<u64>,
    /// Bytes set aside as huge pages, by the size in the API's words: `2Mi`.
    pub hugepages: BTreeMap<String, u64>,
    /// In Go's words: `amd64`, `arm64`.
    pub architecture: String,
    pub kernel_version: String,
    pub os_image: String,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
}

/// Everything the Node is computed from.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    pub name: &'a str,
    /// The name of the host in lower case, or what stands for it (`--hostname-override`).
    pub hostname: &'a str,
    pub config: &'a KubeletConfiguration,
    pub flags: &'a NodeFlags,
    pub machine: &'a NodeMachine,
    /// What the name of the node resolves to, in the resolver's order. Only asked for if nothing else says an address.
    pub resolved_ips: &'a [IpAddr],
    /// The address of the interface with the default route, of the preferred family.
    pub default_route_ip: Option<IpAddr>,
    /// All addresses of the host's interfaces.
    pub interface_ips: &'a [IpAddr],
    /// Like `containerd://1.7.2`.
    pub runtime_version: &'a str,
    pub images: &'a [NodeImage],
    pub runtime_handlers: &'a [NodeRuntimeHandler],
    /// `None` while the runtime has not said.
    pub supplemental_groups_policy: Option<bool>,
    /// Optional abilities of this kubelet that are built and switched on; in any order.
    pub declared_features: &'a [String],
    /// Amounts of device plugins by resource; zero where the plugin has gone.
    pub devices: &'a BTreeMap<String, DeviceAmounts>,
    /// Unique names of volumes that are attached, or to be.
    pub volumes_in_use: &'a [String],
    pub pressure: NodePressure,
    /// What keeps the node from being ready, in the words of its condition.
    pub problems: &'a [String],
    pub now: Timestamp,
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl NodeEvent {
    /// An event that a state of the node began.
    fn status(node: &str, reason: &'static str) -> Self {
        Self { is_warning: false, reason, message: format!("Node {node} status is now: {reason}") }
    }
}
