//! Statistics of a container runtime: of containers, of sandboxes with their containers, and of filesystems.
//!
//! A missing value is `None`, never zero, because zero is a measurement. Times are those of the measurements; values of one
//! report may have different ones.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{ContainerId, PodRef, SandboxId};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUsage {
    pub time: Option<Timestamp>,
    /// Total over all cores since the container (or the sandbox) was started.
    pub usage_core_nanoseconds: Option<u64>,
    /// Rate: nanoseconds of CPU for each second.
    pub usage_nanocores: Option<u64>,
    pub pressure: Option<Pressure>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    pub time: Option<Timestamp>,
    /// Usage without inactive file pages.
    pub working_set_bytes: Option<u64>,
    /// Remaining bytes below the limit; `None` without a limit.
    pub available_bytes: Option<u64>,
    pub usage_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    pub pressure: Option<Pressure>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwapUsage {
    pub time: Option<Timestamp>,
    pub available_bytes: Option<u64>,
    pub usage_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoUsage {
    pub time: Option<Timestamp>,
    pub pressure: Option<Pressure>,
}

/// Pressure stall information: how long tasks waited for a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Option<Stall>,
    /// All tasks waited.
    pub full: Option<Stall>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Waited since the start, in the unit that the runtime reports.
    pub total: u64,
    /// Share of the last 10, 60 and 300 seconds, in percent.
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkUsage {
    pub time: Option<Timestamp>,
    pub default_interface: Option<InterfaceUsage>,
    /// Other interfaces.
    pub interfaces: Vec<InterfaceUsage>,
}

/// Counters since the interface was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceUsage {
    pub name: String,
    pub rx_bytes: Option<u64>,
    pub rx_errors: Option<u64>,
    pub tx_bytes: Option<u64>,
    pub tx_errors: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    pub time: Option<Timestamp>,
    pub count: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesystemUsage {
    pub time: Option<Timestamp>,
    /// The mount point, or a directory on the filesystem; empty if the runtime did not report it.
    pub mountpoint: String,
    pub used_bytes: Option<u64>,
    pub inodes_used: Option<u64>,
}

/// Capacity and usage of a filesystem, as available to users other than root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesystemSpace {
    /// Identifies the filesystem.
    pub device: u64,
    pub capacity_bytes: u64,
    pub available_bytes: u64,
    /// Of all users.
    pub used_bytes: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

/// Disk usage of a directory tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Allocated blocks; a file with several hard links counts once.
    pub bytes: u64,
    pub inodes: u64,
}

/// Capacity and usage of a volume of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeSample {
    pub name: Box<str>,
    /// The name of its persistent volume claim.
    pub claim: Option<Box<str>>,
    /// The name of its plugin, as in metrics.
    pub plugin: Cow<'static, str>,
    /// It is in memory or on storage of its own, and uses none of the node's disk.
    pub is_off_disk: bool,
    pub space: FilesystemSpace,
    pub used: TreeUsage,
    /// What the driver of the volume says about its health; `None` if it says nothing.
    pub is_abnormal: Option<bool>,
}

/// Open files of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFiles {
    pub descriptors: u64,
    /// Descriptors that are sockets.
    pub sockets: u64,
}

/// One container. A runtime may have no values for one that does not run.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStats {
    pub id: ContainerId,
    pub name: String,
    pub attempt: u32,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub cpu: Option<CpuUsage>,
    pub memory: Option<MemoryUsage>,
    /// The container's writable layer, without its image and volumes.
    pub writable_layer: Option<FilesystemUsage>,
    pub swap: Option<SwapUsage>,
    pub io: Option<IoUsage>,
}

/// One sandbox with its containers.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxStats {
    pub id: SandboxId,
    pub pod: PodRef,
    pub attempt: u32,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub cpu: Option<CpuUsage>,
    pub memory: Option<MemoryUsage>,
    pub network: Option<NetworkUsage>,
    pub process: Option<ProcessUsage>,
    pub io: Option<IoUsage>,
    pub containers: Vec<ContainerStats>,
}

/// A metric that a runtime can report about pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricDescriptor {
    pub name: String,
    pub help: String,
    /// In the order of the label values of samples.
    pub label_keys: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: String,
    pub time: Option<Timestamp>,
    pub kind: MetricKind,
    pub label_values: Vec<String>,
    pub value: Option<u64>,
}

/// The samples of one sandbox and of the containers in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxMetrics {
    pub sandbox: SandboxId,
    pub metrics: Vec<Metric>,
    pub containers: Vec<(ContainerId, Vec<Metric>)>,
}
