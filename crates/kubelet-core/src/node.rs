//! The Node object: how the node registers, what its status says, and when that is sent (docs/behaviour/node-status.md).
//!
//! Owns: every field of the Node that the kubelet writes, the events that follow from changes, and the patches. Never:
//! querying the machine or the runtime, resolving names, calling the API.

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

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use config::{KubeletConfiguration, NodeFlags};
use jiff::Timestamp;
use model::k8s::NodeRuntimeHandler;

pub use addresses::{AddressError, NodeAddresses, compute_addresses, invalid_node_ip};
pub use images::{NodeImage, compute_images};
pub use register::{NodeSettings, compute_initial_node, compute_node_for_admission, compute_reconciliation};
pub use report::{
    StatusReport, StatusReports, compute_node_patch, compute_pod_cidr_update, compute_status_report,
    status_differs,
};
pub use resources::{compute_allocatable, compute_capacity, reserved_amounts, reserved_for_node};
pub use status::{NodeOutcome, compute_node_status};

use resources_core::admission::pressure::NodePressure;
use resources_core::quantities::DeviceAmounts;

const BETA_OS_LABEL: &str = "beta.kubernetes.io/os";
const BETA_ARCH_LABEL: &str = "beta.kubernetes.io/arch";
/// The attach/detach controller manages this node's volumes.
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
    /// Capacity of the file system of the root directory; `None` while unknown, or where local storage is not isolated.
    pub ephemeral_storage_bytes: Option<u64>,
    /// Bytes reserved as huge pages, by page size in the API's notation: `2Mi`.
    pub hugepages: BTreeMap<String, u64>,
    /// As Go names it: `amd64`, `arm64`.
    pub architecture: String,
    pub kernel_version: String,
    pub os_image: String,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
}

/// Everything the Node is computed from.
#[derive(Clone, Copy, Debug)]
pub struct NodeInputs<'a> {
    pub name: &'a str,
    /// The host name in lower case, or the value of `--hostname-override`.
    pub hostname: &'a str,
    pub config: &'a KubeletConfiguration,
    pub flags: &'a NodeFlags,
    pub machine: &'a NodeMachine,
    /// The addresses that the node's name resolves to, in the resolver's order. Resolved only if no flag and no annotation
    /// sets an address.
    pub resolved_ips: &'a [IpAddr],
    /// The address of the interface with the default route, of the preferred family.
    pub default_route_ip: Option<IpAddr>,
    /// All addresses of the host's interfaces.
    pub interface_ips: &'a [IpAddr],
    /// Like `containerd://1.7.2`.
    pub runtime_version: &'a str,
    pub images: &'a [NodeImage],
    pub runtime_handlers: &'a [NodeRuntimeHandler],
    /// `None` until the runtime has reported it.
    pub supplemental_groups_policy: Option<bool>,
    /// Optional features of this kubelet that are built in and enabled; in any order.
    pub declared_features: &'a [String],
    /// Devices of device plugins by resource; zero if the plugin is gone.
    pub devices: &'a BTreeMap<String, DeviceAmounts>,
    /// Unique names of volumes that are attached or about to be attached.
    pub volumes_in_use: &'a BTreeSet<String>,
    /// `volumes_in_use` has those of an earlier run of the kubelet, too; until then the reported ones stay.
    pub knows_volumes_in_use: bool,
    pub pressure: NodePressure,
    /// Reasons why the node is not ready, as the message of the Ready condition lists them.
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
    /// An event that reports a new status of the node.
    fn status(node: &str, reason: &'static str) -> Self {
        Self { is_warning: false, reason, message: format!("Node {node} status is now: {reason}") }
    }
}
