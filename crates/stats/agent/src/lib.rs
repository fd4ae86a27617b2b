//! Measurements: two tasks sample the node on request, and read its counters every five minutes; requests within a short time
//! share a sample. What is read and how it is exposed is decided in `stats_core`.
#![forbid(unsafe_code)]

mod cgroups;
mod csi_volumes;
mod disks;
mod machine;
pub mod metrics;

use std::sync::Arc;
use std::time::Duration;

use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::pods_view::PodsView;
use model::PodUid;
use model::explain::NearLimit;
use resources_core::cgroup::CgroupNames;
use stats_core::cgroup::Detail;
use stats_core::near::NearLimits;
use stats_core::sample::{DiskSample, NodeSample};
use tokio::sync::{mpsc, oneshot, watch};
use volumes_agent::Csi;

use cgroups::CgroupSampler;
use disks::DiskSampler;

pub use disks::SHARED_AT_MOST_FOR;

/// Requests that wait for the same sampler; the senders of further ones wait.
const QUEUE: usize = 16;

/// Maximum age of samples for decisions.
pub const FRESH: Duration = Duration::from_secs(1);

/// A request for a sample that is no older than `most`.
struct Request<S> {
    detail: Detail,
    most: Duration,
    answer: oneshot::Sender<Arc<S>>,
}

/// Sends requests to the samplers.
#[derive(Clone, Debug)]
pub struct Samplers {
    cgroups: mpsc::Sender<Request<NodeSample>>,
    disks: mpsc::Sender<Request<DiskSample>>,
    near: watch::Receiver<NearLimits>,
}

impl Samplers {
    /// Starts both tasks. They sleep until the first request.
    #[must_use]
    pub fn start(
        ctx: &Arc<Context>,
        cache: &PodCache,
        pods: &PodsView,
        cgroup_names: watch::Receiver<Option<Arc<CgroupNames>>>,
        csi: Csi,
    ) -> Self {
        let (cgroups, cgroup_requests) = mpsc::channel(QUEUE);
        let (disks, disk_requests) = mpsc::channel(QUEUE);
        let (near_limits, near) = watch::channel(NearLimits::new());
        let sampler = CgroupSampler::new(ctx.clone(), cache.clone(), pods.clone(), cgroup_names, near_limits);
        ctx.tasks.spawn("cgroup sampler", sampler.run(cgroup_requests));
        let sampler = DiskSampler::new(ctx.clone(), cache.clone(), pods.clone(), csi);
        ctx.tasks.spawn("disk sampler", sampler.run(disk_requests));
        Self { cgroups, disks, near }
    }

    /// `None`: the kubelet is shutting down.
    pub async fn node(&self, detail: Detail, most: Duration) -> Option<Arc<NodeSample>> {
        request(&self.cgroups, detail, most).await
    }

    /// What the last sample of the pods showed near its limit. Takes none.
    #[must_use]
    pub fn near_limits(&self, pod: &PodUid) -> Vec<NearLimit> {
        self.near.borrow().get(pod).cloned().unwrap_or_default()
    }

    /// Only the capacity and usage of the node's filesystems. `None`: the kubelet is shutting down.
    pub async fn filesystems(&self, most: Duration) -> Option<Arc<DiskSample>> {
        request(&self.disks, Detail::Node, most).await
    }

    /// `None`: the kubelet is shutting down.
    pub async fn disks(&self, most: Duration) -> Option<Arc<DiskSample>> {
        request(&self.disks, Detail::Usage, most).await
    }
}

async fn request<S>(sampler: &mpsc::Sender<Request<S>>, detail: Detail, most: Duration) -> Option<Arc<S>> {
    let (answer, answered) = oneshot::channel();
    sampler.send(Request { detail, most, answer }).await.ok()?;
    answered.await.ok()
}
