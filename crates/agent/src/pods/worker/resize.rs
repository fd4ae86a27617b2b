//! Other resources for the pod while it runs: requested by the API, allocated by the node, set by a pass.
//!
//! The worker's pod always has what is allocated to it. What the API requests beyond that is in the table of allocations until
//! the node has it; whichever worker tries first tries for all.

use std::sync::Arc;
use std::time::Duration;

use base_agent::pods_view::load_pod;
use base_core::declared_features::{CHECK_FAILED, compute_undeclared_update};
use base_core::pod_kind::is_static_pod;
use base_core::pod_stage::PodStage;
use kubelet_core::pods::resize::accept::{DEFERRED, INFEASIBLE, compute_infeasible};
use kubelet_core::pods::resize::allocated::{allocated_by_status, with_allocated_resources};
use kubelet_core::pods::resize::changes::is_in_progress;
use kubelet_core::pods::resize::messages::{COMPLETED, FAILED, STARTED, message};
use kubelet_core::pods::resize::requested::requested_resizes;
use kubelet_core::pods::resize::state::ResizeState;
use kubelet_core::pods::worker::WorkerEvent;
use model::containers::find_container;
use model::k8s::Pod;
use resources_agent::admissions::{Change, ChangeCause};
use resources_core::admission::Admission;
use resources_core::allocations::{OtherPods, ResizeOutcome, ResizeVerdict};
use resources_core::amounts::Amounts;
use tokio::sync::watch;

use super::PodWorker;
use super::admission::decide;
use crate::metrics::{PodMetrics, ResizeMetrics};
use crate::pods::handles::PodHandles;

/// A resize that waits is tried again after so long, even if no allocation has changed.
const RETRY: Duration = Duration::from_secs(180);

/// Why resizes that wait are tried, as a label of the metric.
const UPDATED: &str = "pod_updated";
const PERIODIC: &str = "periodic_retry";

const fn trigger_of(cause: ChangeCause) -> &'static str {
    match cause {
        ChangeCause::Added => "pods_added",
        ChangeCause::Removed => "pods_removed",
        ChangeCause::Terminated => "pod_terminated",
        ChangeCause::Resized => "pod_resized",
    }
}

/// Resolves with the cause when allocations may have changed; never for a pod whose resize does not wait.
pub(super) async fn allocations_changed(changes: Option<&mut watch::Receiver<Change>>) -> &'static str {
    // The sender lives as long as the table, which the worker's slot holds.
    if let Some(changes) = changes
        && changes.changed().await.is_ok()
    {
        return trigger_of(changes.borrow_and_update().cause);
    }
    std::future::pending().await
}

/// Resolves when all sources of pods have reported; never for a pod whose resize does not wait.
pub(super) async fn sources_reported(ready: Option<&mut watch::Receiver<bool>>) {
    if let Some(ready) = ready
        && ready.wait_for(|ready| *ready).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

impl PodWorker {
    /// Keeps what an earlier kubelet allocated, because the containers run with it. Returns whether that is known.
    pub(super) async fn restore_allocation(&mut self) -> bool {
        let Some(pod) = self.desired.pod.clone() else { return false };
        let Some(slot) = &self.slot else { return false };
        self.memory.actuated = slot.actuated();
        if is_static_pod(&pod) {
            return true;
        }
        if let Some(status) = &self.reported.status {
            self.memory.resize = ResizeState::of_status(status);
        }
        let remembered = slot.allocated_pod().filter(|allocated| !Arc::ptr_eq(allocated, &pod));
        let allocated = match remembered {
            Some(allocated) => Some(allocated),
            None if slot.is_remembered() => Some(pod.clone()),
            None => Box::pin(self.allocation_elsewhere(&pod)).await.map(Arc::new),
        };
        let keep = |allocated: &Arc<Pod>| with_allocated_resources(&pod, allocated);
        if let Some(kept) = allocated.as_ref().and_then(keep).map(Arc::new) {
            if let Some(slot) = &self.slot {
                slot.restore(kept.clone());
            }
            self.desired.pod = Some(kept.clone());
            self.desired.restored = Some(pod);
            self.feed(WorkerEvent::Desired(kept));
        }
        allocated.is_some()
    }

    /// Where the state of allocations has none of the pod: as it was saved with its files, or as its status shows it.
    async fn allocation_elsewhere(&self, pod: &Pod) -> Option<Pod> {
        let (files, paths) = (self.handles.ctx.files.clone(), &self.handles.ctx.settings.paths);
        let saved = load_pod(&*files, paths, &self.pod.uid).await;
        saved.or_else(|| allocated_by_status(pod, self.reported.status.as_deref()?))
    }

    /// Requests what the API requested before this kubelet started.
    pub(super) fn request_restored(&mut self) {
        if let Some(pod) = self.desired.restored.take() {
            self.handle_desired_pod(&pod);
        }
    }

    /// The pod as it is to run: it keeps its resources until the node has allocated others.
    pub(super) fn with_allocation(&mut self, pod: &Arc<Pod>) -> Arc<Pod> {
        self.follow_outcome(UPDATED);
        if let Some(before) = self.last_requested() {
            self.check_update(&before, pod);
            self.count_requested(&before, pod);
        }
        let known = self.desired.pod.as_ref().filter(|known| !is_static_pod(known));
        let Some(kept) = known.and_then(|known| with_allocated_resources(pod, known)) else {
            self.stop_waiting();
            return pod.clone();
        };
        self.desired.requested = Some(pod.clone());
        if let Some(slot) = &self.slot {
            slot.request_resize(pod.clone(), self.memory.resize.waits_since());
        }
        Arc::new(kept)
    }

    /// The pod as the API had it before.
    fn last_requested(&self) -> Option<Arc<Pod>> {
        self.desired.requested.as_ref().or(self.desired.pod.as_ref()).cloned()
    }

    fn count_requested(&self, before: &Pod, pod: &Pod) {
        let ctx = &self.handles.ctx;
        ctx.metrics.get::<ResizeMetrics>().requested(&requested_resizes(
            before,
            pod,
            ctx.node_facts.features,
        ));
    }

    /// Reports a change that requires features that the node does not declare.
    fn check_update(&self, before: &Pod, pod: &Pod) {
        let ctx = &self.handles.ctx;
        if let Some(why) = compute_undeclared_update(before, pod, ctx.node_facts.features) {
            tracing::error!(pod = %self.pod, err = why, "Pod update requires node features that are not available");
            ctx.recorder.warning(&self.pod, None, CHECK_FAILED, why);
        }
    }

    fn stop_waiting(&mut self) {
        self.desired.requested = None;
        self.resizes = None;
        self.memory.resize.stop_waiting();
        if let Some(slot) = &self.slot {
            slot.withdraw_resize();
        }
    }

    /// A resize of this pod waits to be tried.
    pub(super) fn has_resize_to_try(&self) -> bool {
        self.desired.requested.is_some() && self.slot.as_ref().is_some_and(|slot| slot.may_resize())
    }

    /// Tries all resizes that wait on this node, once every source of pods has reported.
    pub(super) fn try_resizes(&mut self, trigger: &'static str) {
        // Another worker may have tried for all.
        self.follow_outcome(trigger);
        self.resizes = None;
        if !self.has_resize_to_try() || !*self.handles.sources_ready.borrow() {
            return;
        }
        // What changes from here on is tried again.
        let mut changes = self.handles.resources.admissions.changes();
        changes.borrow_and_update();
        let handles = self.handles.clone();
        let now = handles.ctx.clock.now().wall;
        let tried = handles.resources.admissions.try_resizes(now, |requested, allocated, others| {
            decide_resize(&handles, requested, allocated, others)
        });
        for (victims, short_of) in tried.victims {
            handles.termination_requests.preempt(&victims);
            handles.ctx.metrics.get::<PodMetrics>().preempted(victims.len(), &short_of);
        }
        self.follow_outcome(trigger);
        if self.has_resize_to_try() {
            self.alarm.no_later_than(handles.ctx.clock.mono() + RETRY);
            self.resizes = Some(changes);
        }
    }

    pub(super) fn retry_resizes(&mut self) {
        self.try_resizes(PERIODIC);
    }

    pub(super) fn try_requested_resize(&mut self) {
        self.try_resizes(UPDATED);
    }

    /// What was decided about this pod, by this worker or another one.
    fn follow_outcome(&mut self, trigger: &'static str) {
        let Some(outcome) = self.slot.as_ref().and_then(|slot| slot.take_resize_outcome()) else { return };
        let metrics = &self.handles.ctx.metrics.get::<ResizeMetrics>();
        match outcome {
            ResizeOutcome::Allocated { pod, was_deferred } => {
                if was_deferred {
                    metrics.accepted_after_waiting(trigger);
                }
                self.begin_resize(pod);
            }
            ResizeOutcome::Deferred { message } => self.wait(DEFERRED, message),
            ResizeOutcome::Infeasible { message, detail } => {
                if self.memory.resize.waits_for() != Some(INFEASIBLE) {
                    metrics.infeasible(detail);
                }
                self.wait(INFEASIBLE, message);
            }
        }
    }

    /// These amounts are in force for a container. Returns whether others were.
    pub(super) fn set_actuated(&mut self, container: &str, amounts: Amounts) -> bool {
        let before = self.memory.actuated.get(container);
        self.memory.actuated.set(container, amounts);
        if let (None, Some(pod)) = (self.memory.actuated.pod, &self.desired.pod) {
            self.memory.actuated.pod = Some(Amounts::of_pod(pod));
        }
        self.record_actuated();
        before.is_some_and(|before| before != amounts)
    }

    /// What runs since an earlier kubelet that left no record has what is allocated, unless the runtime reports other limits.
    pub(super) fn adopt_running(&mut self) {
        let (Some(pod), Some(observed)) = (self.desired.pod.clone(), self.observed.latest.clone()) else {
            return;
        };
        let features = self.handles.ctx.node_facts.features;
        for instance in observed.running() {
            let container = find_container(&pod, &instance.name);
            let unknown = container.filter(|_| self.memory.actuated.get(&instance.name).is_none());
            if let Some(container) = unknown {
                let allocated = Amounts::of_container(&pod, &container, features);
                let reported = allocated.as_reported(instance.resources.unwrap_or_default());
                self.set_actuated(&instance.name, reported);
            }
        }
    }

    pub(super) fn record_actuated(&self) {
        if let Some(slot) = &self.slot {
            slot.record_actuated(self.memory.actuated.clone());
        }
    }

    fn wait(&mut self, reason: &'static str, why: String) {
        let Some(pod) = self.desired.requested.clone() else { return };
        let generation = pod.metadata.generation.unwrap_or_default();
        let now = self.handles.ctx.clock.now().wall;
        if self.memory.resize.wait(reason, why.clone(), generation, now) {
            let text = message(&format!("Pod resize {reason}"), &pod, generation, &why);
            self.handles.ctx.recorder.warning(&self.pod, None, format!("Resize{reason}"), text);
        }
    }

    /// The resources are allocated: the next pass sets them.
    fn begin_resize(&mut self, pod: Arc<Pod>) {
        let generation = pod.metadata.generation.unwrap_or_default();
        self.memory.resize.begin(generation, self.handles.ctx.clock.now().wall);
        self.handles.ctx.recorder.normal(
            &self.pod,
            None,
            STARTED.0,
            message(STARTED.1, &pod, generation, ""),
        );
        self.desired.requested = None;
        self.desired.pod = Some(pod.clone());
        self.prepared = None;
        self.cgroup.are_numbers_known = false;
        self.registration.is_stale = true;
        self.memory.forget_failure();
        self.times.pod_changed();
        self.feed(WorkerEvent::Desired(pod));
    }

    pub(super) fn resize_failed(&mut self, why: String) {
        let Some(pod) = self.desired.pod.clone() else { return };
        let generation = pod.metadata.generation.unwrap_or_default();
        let now = self.handles.ctx.clock.now().wall;
        if let Some(generation) = self.memory.resize.fail(why.clone(), generation, now) {
            let text = message(FAILED.1, &pod, generation, &why);
            self.handles.ctx.recorder.warning(&self.pod, None, FAILED.0, text);
        }
    }

    /// Compares what runs with what is allocated, once an observation shows what the last pass did.
    pub(super) fn follow_resize(&mut self) {
        self.record_resize_progress();
        let pending = self.memory.resize.waits_for();
        self.resize_count.update(pending, self.memory.resize.is_in_progress());
    }

    fn record_resize_progress(&mut self) {
        if self.state.stage() != PodStage::Syncing {
            return self.memory.resize.clear();
        }
        let Some(pod) = self.desired.pod.clone() else { return };
        let shown = self.memory.shown_observation(self.observed.latest.as_deref());
        let Some(observed) = shown.filter(|observed| self.act.is_shown_by(observed)) else { return };
        let features = self.handles.ctx.node_facts.features;
        let generation = pod.metadata.generation.unwrap_or_default();
        if is_in_progress(&pod, observed, &self.memory.actuated, features) {
            let now = self.handles.ctx.clock.now().wall;
            return self.memory.resize.record_in_progress(generation, now);
        }
        if self.act.is_running() {
            return;
        }
        if let Some(generation) = self.memory.resize.complete() {
            let text = message(COMPLETED.1, &pod, generation, "");
            self.handles.ctx.recorder.normal(&self.pod, None, COMPLETED.0, text);
        }
    }
}

/// The admission of a pod with other resources: what keeps it from being admitted lets the resize wait.
fn decide_resize(
    handles: &PodHandles,
    requested: &Pod,
    allocated: &Pod,
    others: &OtherPods<'_>,
) -> ResizeVerdict {
    if let Some(why) = compute_infeasible(requested, allocated, &handles.ctx.node_facts) {
        return ResizeVerdict::Infeasible { message: why.message, detail: why.detail };
    }
    match decide(handles, requested, others).admission {
        Admission::Admitted { victims, short_of } => ResizeVerdict::Fits { victims, short_of },
        Admission::Rejected(rejection) => ResizeVerdict::Deferred { message: rejection.message },
    }
}
