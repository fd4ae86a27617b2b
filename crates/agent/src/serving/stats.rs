//! Measurements: two tasks sample the node when somebody asks, and read its counters every five minutes; whoever asks soon
//! after another gets the same sample. What is read, what it means and how it is told, `kubelet_core::stats` decides.

mod cgroups;
mod disks;
mod machine;
mod report;

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::cgroup::CgroupNames;
use kubelet_core::stats::cgroup::Detail;
use kubelet_core::stats::sample::{DiskSample, NodeSample};
use tokio::sync::{mpsc, oneshot, watch};

use crate::cache::PodCache;
use crate::context::Context;
use crate::pods_view::PodsView;
use crate::probe_metrics::ProbeMetrics;
use crate::resources::admissions::Admissions;
use cgroups::CgroupSampler;
use disks::DiskSampler;

pub(crate) use report::measurements;

/// Readers that wait for the same sampler; further ones wait for a place.
const QUEUE: usize = 16;

/// For those who act upon what they see.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

/// Somebody wants a sample that is no older than `most`.
struct Request<S> {
    detail: Detail,
    most: Duration,
    answer: oneshot::Sender<Arc<S>>,
}

/// What measurements are taken from.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) ctx: Arc<Context>,
    pub(crate) cache: PodCache,
    pub(crate) pods: PodsView,
    pub(crate) cgroup_names: watch::Receiver<Option<Arc<CgroupNames>>>,
    pub(crate) admissions: Admissions,
    pub(crate) probe_metrics: ProbeMetrics,
}

/// Asks the samplers.
#[derive(Clone, Debug)]
pub struct Samplers {
    cgroups: mpsc::Sender<Request<NodeSample>>,
    disks: mpsc::Sender<Request<DiskSample>>,
}

impl Samplers {
    /// Starts both tasks. They sleep until they are asked.
    pub(crate) fn start(measured: &Measured) -> Self {
        let ctx = &measured.ctx;
        let (cgroups, cgroup_requests) = mpsc::channel(QUEUE);
        let (disks, disk_requests) = mpsc::channel(QUEUE);
        let sampler = CgroupSampler::new(measured);
        ctx.tasks.spawn("cgroup sampler", sampler.run(cgroup_requests));
        let sampler = DiskSampler::new(measured);
        ctx.tasks.spawn("disk sampler", sampler.run(disk_requests));
        Self { cgroups, disks }
    }

    /// `None`: the kubelet stops.
    pub async fn node(&self, detail: Detail, most: Duration) -> Option<Arc<NodeSample>> {
        ask(&self.cgroups, detail, most).await
    }

    /// Only how much room the filesystems of the node have. `None`: the kubelet stops.
    pub async fn filesystems(&self, most: Duration) -> Option<Arc<DiskSample>> {
        ask(&self.disks, Detail::Node, most).await
    }

    /// `None`: the kubelet stops.
    pub async fn disks(&self, most: Duration) -> Option<Arc<DiskSample>> {
        ask(&self.disks, Detail::Usage, most).await
    }
}

async fn ask<S>(sampler: &mpsc::Sender<Request<S>>, detail: Detail, most: Duration) -> Option<Arc<S>> {
    let (answer, answered) = oneshot::channel();
    sampler.send(Request { detail, most, answer }).await.ok()?;
    answered.await.ok()
}
