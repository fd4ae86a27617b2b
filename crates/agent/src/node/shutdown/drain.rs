//! Terminates the pods group by group, and then releases the inhibit lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::pods_view::PodsView;
use kubelet_core::node::shutdown::{PodGroup, ShutdownTimes, compute_groups};
use model::k8s::Pod;
use model::{PodRef, PodUid};
use ports::shutdown::ShutdownLock;
use resources_agent::admissions::Admissions;

use crate::metrics::ShutdownMetrics;
use crate::pods::termination_requests::TerminationRequests;

pub(super) struct Drain {
    pub(super) ctx: Arc<Context>,
    pub(super) pods: PodsView,
    pub(super) admissions: Admissions,
    pub(super) termination_requests: TerminationRequests,
    /// `None` if the shutdown had begun before this kubelet started.
    pub(super) lock: Option<Box<dyn ShutdownLock>>,
}

impl Drain {
    /// Dropping the future releases the lock; termination requests that were sent stay in effect.
    pub(super) async fn run(self) {
        let clock = self.ctx.clock;
        let now = || Some(clock.now().wall);
        record_times(&self.ctx, |times| *times = ShutdownTimes { began: now(), ended: None }).await;
        for group in compute_groups(&super::configured_periods(&self.ctx), &self.left_to_end()) {
            self.end(&group).await;
        }
        record_times(&self.ctx, |times| times.ended = now()).await;
        drop(self.lock);
        tracing::info!("Shutdown manager completed, releasing the inhibit lock");
    }

    /// Pods that run or still hold resources.
    fn left_to_end(&self) -> Vec<Arc<Pod>> {
        let held = self.pods.all().into_iter().filter(|entry| !entry.progress.is_released());
        let admitted = self.admissions.admitted();
        let all = held.map(|entry| entry.pod).chain(admitted);
        let by_uid: BTreeMap<PodUid, Arc<Pod>> = all.map(|pod| (PodUid::of(&pod), pod)).collect();
        by_uid.into_values().collect()
    }

    async fn end(&self, group: &PodGroup) {
        tracing::info!(
            priority = group.priority,
            within = ?group.within,
            pods = group.pods.len(),
            "Shutdown manager is terminating pods"
        );
        let mut changes = self.pods.changes();
        let deadline = self.ctx.clock.mono() + group.within;
        for end in &group.pods {
            // A pod without an admission slot terminates already.
            let _ = self.termination_requests.terminate_for_shutdown(&end.pod.uid, end.grace_seconds);
        }
        while !self.are_gone(group) {
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = self.ctx.clock.sleep_until(deadline) => {
                    let left: Vec<String> = self.left(group).map(ToString::to_string).collect();
                    tracing::warn!(priority = group.priority, ?left, "Shutdown manager timed out waiting for pods to terminate");
                    return;
                }
            }
        }
    }

    fn are_gone(&self, group: &PodGroup) -> bool {
        self.left(group).next().is_none()
    }

    /// Pods that still have volumes, or whose worker has not published a status yet.
    fn left<'a>(&self, group: &'a PodGroup) -> impl Iterator<Item = &'a PodRef> {
        let admitted = self.admissions.admitted();
        let pods = self.pods.clone();
        group.pods.iter().map(|end| &end.pod).filter(move |pod| {
            let has_place = || admitted.iter().any(|other| PodUid::of(other) == pod.uid);
            pods.get(&pod.uid).map_or_else(has_place, |entry| !entry.progress.is_released())
        })
    }
}

/// Updates the times of the last shutdown, in the metrics and on disk.
pub(super) async fn record_times(ctx: &Context, change: impl FnOnce(&mut ShutdownTimes)) {
    if !ctx.node_facts.features.graceful_shutdown_by_priority {
        return;
    }
    let times = ctx.metrics.get::<ShutdownMetrics>().change(change);
    let path = super::state_path(ctx);
    if let Err(error) = ctx.files.write_durably(&path, times.text().as_bytes(), 0o644).await {
        tracing::warn!(err = chain(&error), "Failed to write graceful shutdown state");
    }
}
