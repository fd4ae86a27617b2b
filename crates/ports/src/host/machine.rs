//! The node as a machine: hardware, kernel, addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use model::request::IdRange;
use model::topology::MachineTopology;

use super::{HostError, HostResult};

/// Hardware and operating system of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineInfo {
    pub cpus: u32,
    /// Processors without those that are a second thread of another; 0 if unknown.
    pub physical_cores: u32,
    /// Packages that hold the cores; 0 if unknown.
    pub sockets: u32,
    /// Books of sockets, and drawers of books: only machines of IBM's Z series have them.
    pub books: u32,
    pub drawers: u32,
    pub memory_bytes: u64,
    /// The size of a page of memory.
    pub page_bytes: u64,
    pub hostname: String,
    pub boot_id: String,
    pub machine_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// Sizes of huge pages that the kernel supports, small ones first, as cgroups spell them: `2MB`, `1GB`.
    pub hugepage_sizes: Vec<String>,
    /// Bytes reserved as huge pages when the machine was first inspected, by the size as the API spells it: `2Mi`.
    pub hugepages: BTreeMap<String, u64>,
    pub swap_bytes: u64,
    /// The firmware's name for the machine, or the machine id if the firmware has none.
    pub system_uuid: String,
    /// As Go spells it: `amd64`, `arm64`.
    pub architecture: String,
    /// `/sys/devices/system/cpu/cpu<n>/thermal_throttle` of each possible processor that has it.
    pub thermal_throttle_paths: Vec<String>,
    /// The kernel has SELinux with a policy loaded.
    pub selinux_enabled: bool,
    /// The SELinux label of files of containers, as the policy has it; `None` without SELinux.
    pub selinux_file_label: Option<String>,
}

/// The subordinate user and group ids of one user (`/etc/subuid`, `/etc/subgid`), for user namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubordinateIds {
    pub uids: Vec<IdRange>,
    pub gids: Vec<IdRange>,
}

/// Facts about the machine that no pod changes, and the kernel's log.
#[async_trait]
pub trait Machine: Send + Sync + std::fmt::Debug {
    fn info(&self) -> MachineInfo;
    /// Processors that are online and NUMA nodes, as they are now.
    async fn topology(&self) -> HostResult<MachineTopology>;
    /// AppArmor is enabled on this machine.
    fn has_apparmor(&self) -> bool;
    /// Those of the candidates that are addresses of an interface of this machine.
    fn own_addresses(&self, candidates: &[IpAddr]) -> Vec<IpAddr>;
    /// The source address of the default route, of the preferred family if that has one.
    fn default_route_ip(&self, prefers_v6: bool) -> Option<IpAddr>;
    /// The subordinate ids of that user; `None` if it has none, or if the program `getsubids` is missing.
    async fn subordinate_ids(&self, user: &str) -> HostResult<Option<SubordinateIds>>;
    /// What the kernel writes to its log from now on, line by line. Fails on a machine without such a log.
    fn kernel_log(&self, path: &Path) -> HostResult<BoxStream<'static, String>> {
        Err(HostError::Invalid(format!("{} is not a kernel log", path.display())))
    }
}
