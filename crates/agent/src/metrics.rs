//! The kubelet's own metrics. Names, labels and types are those of the Go kubelet (docs/behaviour/metrics.md).
//!
//! Each owner of metrics has a struct with the values of its families, which writes them as text.
//! What a scrape writes, in which order, is in `render`.

mod cgroups;
mod claims;
mod devices;
mod eviction;
mod images;
mod kubelet;
mod pins;
mod plugins;
mod pods;
mod render;
mod requests;
mod resizes;
mod shutdown;

pub(crate) use cgroups::{CgroupMetrics, CgroupWork};
pub(crate) use claims::ClaimMetrics;
pub(crate) use devices::DeviceMetrics;
pub(crate) use eviction::EvictionMetrics;
pub use images::ImageMetrics;
pub use kubelet::KubeletMetrics;
pub(crate) use kubelet::WorkerPass;
pub(crate) use pins::PinMetrics;
pub(crate) use plugins::PluginMetrics;
pub(crate) use pods::{NodeStart, PodMetrics, PodStart};
pub(crate) use render::{ExternalMetrics, WorkingPods, write};
pub(crate) use requests::RequestMetrics;
pub(crate) use resizes::{ResizeCount, ResizeMetrics};
pub(crate) use shutdown::ShutdownMetrics;
