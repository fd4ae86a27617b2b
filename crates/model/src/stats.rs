//! What a container runtime measured: of a container, of a sandbox with all that is in it, of a filesystem.
//!
//! A value that the runtime did not give is `None`, never zero: zero is a measurement. Times say when something was
//! measured; two values of one report may have different ones.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{ContainerId, PodRef, SandboxId};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUsage {
    pub time: Option<Timestamp>,
    /// Since the container (or the sandbox) was started, over all cores.
    pub usage_core_nanoseconds: Option<u64>,
    /// How fast that grows: nanoseconds of CPU for each second.
    pub usage_nanocores: Option<u64>,
    pub pressure: Option<Pressure>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    pub time: Option<Timestamp>,
    /// What cannot be taken back without harm: usage without inactive file pages.
    pub working_set_bytes: Option<u64>,
    /// What is left below the limit; absent where there is no limit.
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
    /// The others.
    pub interfaces: Vec<InterfaceUsage>,
}

/// Counters since the interface was made.
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
    /// Where the filesystem is mounted, or a directory on it; empty if the runtime did not say.
    pub mountpoint: String,
    pub used_bytes: Option<u64>,
    pub inodes_used: Option<u64>,
}

/// How much a filesystem has, for whoever is not root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesystemSpace {
    /// Which filesystem it is.
    pub device: u64,
    pub capacity_bytes: u64,
    pub available_bytes: u64,
    /// Everything on it, whoever it belongs to.
    pub used_bytes: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

/// What a directory with everything below it takes on its filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Blocks that are really taken; a file with several names counts once.
    pub bytes: u64,
    pub inodes: u64,
}

/// What some processes have open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFiles {
    pub descriptors: u64,
    /// Those of them that are sockets.
    pub sockets: u64,
}

/// One container. A runtime may know nothing of one that does not run.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStats {
    pub id: ContainerId,
    pub name: String,
    pub attempt: u32,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub cpu: Option<CpuUsage>,
    pub memory: Option<MemoryUsage>,
    /// What the container has written to its root filesystem, without its image and volumes.
    pub writable_layer: Option<FilesystemUsage>,
    pub swap: Option<SwapUsage>,
    pub io: Option<IoUsage>,
}

/// One sandbox with everything in it.
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
    /// In the order in which samples give the values.
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
