//! The kubelet's own metrics. Names, labels and types are those of the Go kubelet (docs/behaviour/metrics.md).
//!
//! Each owner of metrics has a struct with the values of its families, which writes them as text.
//! What a scrape writes, in which order, is in `render`.

mod eviction;
mod kubelet;
mod pleg;
mod plugins;
mod pods;
mod render;
mod requests;
mod resizes;
mod runtime;
mod shutdown;
mod waits;

pub(crate) use eviction::EvictionMetrics;
pub(crate) use kubelet::KubeletMetrics;
pub(crate) use kubelet::WorkerPass;
pub(crate) use pleg::PlegMetrics;
pub(crate) use plugins::{PluginMetrics, PluginSocket};
pub(crate) use pods::{NodeStart, PodMetrics, PodStart};
pub(crate) use render::{ExternalMetrics, WorkingPods, write};
pub(crate) use requests::RequestMetrics;
pub(crate) use resizes::{ResizeCount, ResizeMetrics};
pub(crate) use runtime::RuntimeMetrics;
pub(crate) use shutdown::ShutdownMetrics;
pub(crate) use waits::WaitMetrics;
