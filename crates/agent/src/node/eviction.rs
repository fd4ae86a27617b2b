//! Node-pressure eviction (docs/behaviour/eviction.md): observes the eviction signals, reclaims unused resources, and evicts
//! one pod at a time if that is not enough.
//!
//! Owns which thresholds are met since when, and the node's pressure conditions. Thresholds and the ranking of pods are
//! decided in `kubelet_core::node::eviction`; samples come from `stats`, and pods are terminated by their workers.

use std::sync::Arc;
use std::time::Duration;

use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::pods_view::PodsView;
use base_core::pod_kind::is_critical_pod;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use kubelet_core::node::eviction::DiskLayout;
use kubelet_core::node::eviction::alarm::compute_memory_marks;
use kubelet_core::node::eviction::limits::{compute_exceeded_limit, compute_near_storage, has_limits};
use kubelet_core::node::eviction::message::{THRESHOLD_MET, notice, threshold_met};
use kubelet_core::node::eviction::observe::{Observations, disk_layout, observe};
use kubelet_core::node::eviction::pressure::{PressureState, are_relieved, compute_pressure};
use kubelet_core::node::eviction::rank::rank;
use kubelet_core::node::eviction::reclaim::{Reclaim, compute_reclaim};
use kubelet_core::node::eviction::threshold::{
    Threshold, compute_thresholds, fit_to_layout, ignored_signals,
};
use kubelet_core::node::eviction::usage::{Candidate, PodUsage};
use kubelet_core::node::eviction::view::compute_signals;
use model::cgroup::MemoryMark;
use model::containers::spec_of;
use model::k8s::Pod;
use model::{MonoTime, PodRef, PodUid};
use resources_agent::admissions::Admissions;
use resources_core::admission::pressure::NodePressure;
use resources_core::cgroup::CgroupNames;
use stats_agent::{FRESH, Samplers};
use stats_core::cgroup::Detail;
use stats_core::near::NearLimits;
use stats_core::sample::{DiskSample, NodeSample};
use tokio::sync::{oneshot, watch};

use crate::metrics::EvictionMetrics;
use crate::node_view::EvictionView;
use crate::pods::handles::PodHandles;
use crate::pods::termination_requests::TerminationRequests;
use base_agent::removers::Remover;

/// Monitoring interval.
const PERIOD: Duration = Duration::from_secs(10);
/// How long to wait for an evicted pod.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Runtimes remove files some time after they reported that an image or a container is removed. No pod is evicted
/// meanwhile.
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// Grace period in seconds for hard thresholds and for pods over their own limits.
const IMMEDIATE_GRACE: i64 = 1;

/// The tasks that can free disk space.
#[derive(Debug)]
pub(crate) struct Removers {
    pub(crate) dead_containers: Remover,
    pub(crate) images: Remover,
}

pub(crate) struct Evictor {
    ctx: Arc<Context>,
    cache: PodCache,
    pods: PodsView,
    admissions: Admissions,
    termination_requests: TerminationRequests,
    samplers: Samplers,
    removers: Removers,
    shown: watch::Sender<NodePressure>,
    /// What is available, and which pods are near their limits of storage.
    view: watch::Sender<EvictionView>,
    /// As configured.
    configured: Vec<Threshold>,
    /// Those of `configured` that apply to this node's filesystems.
    thresholds: Vec<Threshold>,
    layout: DiskLayout,
    state: PressureState,
    pods_changed: watch::Receiver<()>,
    /// The memory available to pods can be measured once they have a cgroup.
    pods_cgroup: watch::Receiver<Option<Arc<CgroupNames>>>,
    alarm: Alarm,
}

/// Notification by the kernel that a memory threshold was crossed.
#[derive(Debug, Default)]
struct Alarm {
    marks: Vec<MemoryMark>,
    /// The kernel notified us: earlier samples do not show why.
    has_rung: bool,
    /// The kernel's notification is unavailable, which was logged.
    is_broken: bool,
}

/// The eviction signals at one moment.
struct Snapshot {
    observations: Observations,
    taken: MonoTime,
}

impl Evictor {
    pub(crate) fn new(
        handles: &PodHandles,
        samplers: &Samplers,
        removers: Removers,
        shown: watch::Sender<NodePressure>,
    ) -> Self {
        let PodHandles { ctx, cache, pods, resources, termination_requests, node, .. } = handles;
        let configured = compute_thresholds(ctx.config());
        let ignored = ignored_signals(&configured);
        if !ignored.is_empty() {
            tracing::warn!(signals = ?ignored, "Ignoring containerfs thresholds, containerfs has the thresholds of its filesystem");
        }
        Self {
            thresholds: fit_to_layout(&configured, DiskLayout::One),
            configured,
            layout: DiskLayout::One,
            state: PressureState::default(),
            pods_changed: pods.changes(),
            pods_cgroup: node.cgroup_names.clone(),
            alarm: Alarm::default(),
            ctx: ctx.clone(),
            cache: cache.clone(),
            pods: pods.clone(),
            admissions: resources.admissions.clone(),
            termination_requests: termination_requests.clone(),
            samplers: samplers.clone(),
            removers,
            shown,
            view: node.eviction.clone(),
        }
    }

    /// Runs until dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let evicted = self.round().await;
            if evicted.is_empty() {
                self.pause().await;
            } else {
                self.wait_for(&evicted).await;
            }
        }
    }

    /// One round; returns the evicted pods. The next round follows at once if there are any.
    async fn round(&mut self) -> Vec<PodUid> {
        let due = match self.take_snapshot().await {
            Some(snapshot) => self.evaluate(snapshot),
            None => None,
        };
        let evicted = self.enforce_limits().await;
        if !evicted.is_empty() {
            return evicted;
        }
        match due {
            Some((due, snapshot)) => self.relieve(&due, &snapshot).await.into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Waits for the next round; without thresholds and limits, until there are some.
    async fn pause(&mut self) {
        if self.thresholds.is_empty() && self.limited_pods().is_empty() {
            // Fails only when the kubelet shuts down, which drops this task, too.
            let _ = self.pods_changed.changed().await;
        }
        let began = self.ctx.clock.mono();
        let clock = self.ctx.clock;
        let alarm = self.set_alarm().await;
        tokio::select! {
            () = clock.sleep_until(began + PERIOD) => {}
            Ok(()) = self.pods_cgroup.changed() => {}
            () = alarm => {
                tracing::info!("Memory threshold crossed, notified by the kernel");
                // Limits the rate of rounds if memory usage oscillates around a threshold.
                clock.sleep_until(began + FRESH).await;
                self.alarm.has_rung = true;
            }
        }
    }

    /// Requests a notification of the kernel when the next threshold is crossed; without it, polling finds it.
    async fn set_alarm(&mut self) -> BoxFuture<'static, ()> {
        if self.alarm.marks.is_empty() {
            return pending().boxed();
        }
        match self.ctx.cgroups.watch_memory(&self.alarm.marks).await {
            Ok(alarm) => {
                self.alarm.is_broken = false;
                tracing::debug!(marks = ?self.alarm.marks, "Started kernel memory notification");
                alarm
            }
            Err(error) => {
                if !std::mem::replace(&mut self.alarm.is_broken, true) {
                    let error = chain(&error);
                    tracing::warn!(
                        err = error,
                        "Kernel memory notification is unavailable, polling memory every 10 s"
                    );
                }
                pending().boxed()
            }
        }
    }

    /// `None` if there is no threshold or limit to check.
    async fn take_snapshot(&mut self) -> Option<Snapshot> {
        if self.thresholds.is_empty() {
            return None;
        }
        let most = if std::mem::take(&mut self.alarm.has_rung) { Duration::ZERO } else { FRESH };
        let (node, disks) =
            tokio::join!(self.samplers.node(Detail::Node, most), self.samplers.filesystems(most));
        if let Some(disks) = &disks {
            self.apply_layout(disks);
        }
        let sample = node.as_ref().filter(|_| self.ctx.config().kernel_memcg_notification);
        self.alarm.marks = sample.map_or_else(Vec::new, |node| compute_memory_marks(&self.thresholds, node));
        let taken = node.as_ref().map_or(self.ctx.clock.mono(), |node| node.taken.mono);
        Some(Snapshot { observations: observe(node.as_deref(), disks.as_deref()), taken })
    }

    /// Applies the filesystem layout that the runtime reports, on which the thresholds depend.
    fn apply_layout(&mut self, disks: &DiskSample) {
        let may_split = self.ctx.node_facts.features.separate_disk_gc;
        let Some(layout) = disk_layout(disks, may_split) else { return };
        if layout != self.layout {
            self.layout = layout;
            self.thresholds = fit_to_layout(&self.configured, layout);
            // The state refers to thresholds by their index.
            self.state = PressureState::default();
        }
    }

    /// Updates the pressure conditions; returns the thresholds that require reclaim or eviction.
    fn evaluate(&mut self, snapshot: Snapshot) -> Option<(Vec<usize>, Snapshot)> {
        let signals = compute_signals(&self.thresholds, &snapshot.observations);
        self.view.send_modify(|view| view.signals = signals);
        let transition = self.ctx.config().eviction_pressure_transition_period.as_std();
        let now = self.ctx.clock.mono();
        let (state, view) =
            compute_pressure(&self.state, &self.thresholds, &snapshot.observations, transition, now);
        self.state = state;
        self.shown.send_if_modified(|shown| {
            let is_new = *shown != view.shown;
            *shown = view.shown;
            is_new
        });
        (!view.due.is_empty()).then_some((view.due, snapshot))
    }

    fn limited_pods(&self) -> Vec<Arc<Pod>> {
        if !self.ctx.config().local_storage_capacity_isolation {
            return Vec::new();
        }
        let mut admitted = self.admissions.admitted();
        admitted.retain(|pod| has_limits(pod) && !is_critical_pod(pod));
        admitted
    }

    /// Evicts pods that exceed their limits of ephemeral storage.
    async fn enforce_limits(&self) -> Vec<PodUid> {
        let pods = self.limited_pods();
        if pods.is_empty() {
            self.view.send_modify(|view| view.near_storage.clear());
            return Vec::new();
        }
        let Some(disks) = self.samplers.disks(PERIOD / 2).await else { return Vec::new() };
        let (mut evicted, mut near_storage) = (Vec::new(), NearLimits::new());
        for pod in pods {
            let uid = PodRef::of(&pod).uid;
            let (Some(of_pod), Some(observed)) = (disks.pods.get(&uid), self.cache.get(&uid)) else {
                continue;
            };
            let usage = PodUsage::of_storage(&observed, of_pod);
            let near = compute_near_storage(&pod, &usage, of_pod, self.layout, disks.taken.wall);
            if !near.is_empty() {
                near_storage.insert(uid.clone(), near);
            }
            let Some((limit, notice)) = compute_exceeded_limit(&pod, &usage, of_pod, self.layout) else {
                continue;
            };
            if self.termination_requests.evict(&uid, notice, IMMEDIATE_GRACE) {
                self.ctx.metrics.get::<EvictionMetrics>().evicted(limit.as_str(), None);
                evicted.push(uid);
            }
        }
        self.view.send_modify(|view| view.near_storage = near_storage);
        evicted
    }

    /// Reclaims resources for the most urgent threshold, or evicts a pod, which is returned.
    async fn relieve(&self, due: &[usize], snapshot: &Snapshot) -> Option<PodUid> {
        let threshold = self.thresholds.get(*due.first()?)?;
        let signal = threshold.signal;
        tracing::warn!(
            signal = signal.as_str(),
            observed = ?snapshot.observations.get(signal),
            threshold = ?threshold,
            "Eviction threshold met, attempting to reclaim"
        );
        self.ctx.recorder.node_warning(THRESHOLD_MET, threshold_met(signal.starved()));
        let reclaim = compute_reclaim(signal, self.layout);
        if reclaim.is_anything() && self.reclaim(reclaim, due).await {
            return None;
        }
        self.evict_one(threshold, snapshot).await
    }

    /// Removes unused containers or images; returns whether the thresholds are no longer met.
    async fn reclaim(&self, reclaim: Reclaim, due: &[usize]) -> bool {
        let mut is_less = false;
        if reclaim.dead_containers {
            is_less |= remove(&self.removers.dead_containers).await;
        }
        if reclaim.images {
            is_less |= remove(&self.removers.images).await;
        }
        let deadline = self.ctx.clock.mono() + if is_less { SETTLE_TIME } else { Duration::ZERO };
        while !self.is_relieved(due).await {
            if self.ctx.clock.mono() >= deadline {
                return false;
            }
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + FRESH).await;
        }
        true
    }

    /// Takes new samples, because earlier ones do not show what was reclaimed.
    async fn is_relieved(&self, due: &[usize]) -> bool {
        let now = Duration::ZERO;
        let (node, disks) =
            tokio::join!(self.samplers.node(Detail::Node, now), self.samplers.filesystems(now));
        are_relieved(&self.thresholds, due, &observe(node.as_deref(), disks.as_deref()))
    }

    async fn evict_one(&self, threshold: &Threshold, snapshot: &Snapshot) -> Option<PodUid> {
        let pods = self.admissions.admitted();
        let (node, disks) =
            tokio::join!(self.samplers.node(Detail::Usage, FRESH), self.samplers.disks(FRESH));
        let mut candidates = candidates(&pods, node.as_deref(), disks.as_deref());
        rank(&mut candidates, threshold.signal, self.layout);
        let age = self.ctx.clock.mono().saturating_since(snapshot.taken);
        for candidate in &candidates {
            let uid = PodRef::of(candidate.pod).uid;
            let notice = notice(candidate, threshold, &snapshot.observations);
            if self.termination_requests.evict(&uid, notice, self.grace(threshold, candidate.pod)) {
                self.ctx.metrics.get::<EvictionMetrics>().evicted(threshold.signal.as_str(), Some(age));
                return Some(uid);
            }
        }
        tracing::error!(
            signal = threshold.signal.as_str(),
            "Must evict a pod to reclaim resources, but found none"
        );
        None
    }

    /// For a soft threshold, the pod's grace period up to `evictionMaxPodGracePeriod`.
    fn grace(&self, threshold: &Threshold, pod: &Pod) -> i64 {
        if threshold.is_hard() {
            return IMMEDIATE_GRACE;
        }
        let most = i64::from(self.ctx.config().eviction_max_pod_grace_period);
        spec_of(pod).termination_grace_period_seconds.map_or(most, |own| own.min(most))
    }

    /// Waits until the pods are cleaned up and samples from before have expired: otherwise the next round would not see the
    /// reclaimed resources, and evict more pods than necessary.
    async fn wait_for(&self, pods: &[PodUid]) {
        self.wait_until_gone(pods).await;
        self.ctx.clock.sleep_until(self.ctx.clock.mono() + FRESH).await;
    }

    async fn wait_until_gone(&self, pods: &[PodUid]) {
        let deadline = self.ctx.clock.mono() + TIMEOUT;
        let mut changes = self.pods.changes();
        let is_gone = |uid: &PodUid| self.pods.get(uid).is_none_or(|entry| entry.progress.is_released());
        while !pods.iter().all(is_gone) {
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = self.ctx.clock.sleep_until(deadline) => {
                    tracing::warn!(?pods, "Timed out waiting for evicted pods to be cleaned up");
                    return;
                }
            }
        }
    }
}

/// Sends a request and waits for its result; a task that has ended removes nothing.
async fn remove(remover: &Remover) -> bool {
    let (done, answer) = oneshot::channel();
    remover.send(done).await.is_ok() && answer.await.unwrap_or(false)
}

/// Pods that may be evicted, with their usage. Critical pods are never evicted.
fn candidates<'a>(
    pods: &'a [Arc<Pod>],
    node: Option<&NodeSample>,
    disks: Option<&DiskSample>,
) -> Vec<Candidate<'a>> {
    let usage = |uid: &PodUid| {
        let sample = node?.pods.iter().find(|sample| sample.pod.uid == *uid)?;
        Some(PodUsage::of(sample, disks.and_then(|disks| disks.pods.get(uid))))
    };
    let may_go = pods.iter().filter(|pod| !is_critical_pod(pod));
    may_go.map(|pod| Candidate { pod, usage: usage(&PodRef::of(pod).uid) }).collect()
}
