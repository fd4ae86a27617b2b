//! What the worker adds to its pod's trail, next to the events and what passes record.

use std::borrow::Cow;

use base_core::trail::NewStep;
use jiff::{SignedDuration, Timestamp};
use model::k8s::PodStatus;
use model::pod_status::is_ready;
use model::{ContainerObservation, MonoTime};
use resources_agent::admissions::AdmissionSlot;

use super::PodWorker;

/// The pod waits to be started, for other pods or for what the node does not know yet.
const WAITING: &str = "WaitingToStart";

impl PodWorker {
    pub(super) fn open_trail(&self) {
        self.handles.ctx.recorder.trails.open(&self.pod);
        self.record("Accepted", "");
    }

    /// The pod has left no trace on this node.
    pub(super) fn close_trail(&self) {
        let phase = self.reported.status.as_deref().map(phase_of).unwrap_or_default();
        self.handles.ctx.recorder.trails.close(&self.pod, phase);
    }

    pub(super) fn record(&self, reason: &'static str, message: &str) {
        self.handles.ctx.recorder.trails.record(&self.pod.uid, &NewStep::new(reason, message));
    }

    /// Why the pod may not be started yet.
    pub(super) fn blocked_by(&self) -> Option<&'static str> {
        if self.slot.as_ref().is_some_and(AdmissionSlot::must_wait) {
            return Some("pods that were preempted for it still hold their resources");
        }
        let must_wait = self.desired.receiver.borrow().must_wait;
        must_wait.then_some("a pod of the same name still runs, or what the runtime has is not known yet")
    }

    pub(super) fn record_waiting_to_start(&self, why: &str) {
        self.handles.ctx.recorder.trails.begin(&self.pod.uid, &NewStep::new(WAITING, why));
    }

    /// No act is under way; the next one is planned for that time.
    pub(super) fn record_next_try(&self, at: Option<MonoTime>) {
        let now = self.handles.ctx.clock.now();
        let wall = |at: MonoTime| wall_time(now.wall, at.saturating_since(now.mono));
        let next_try = at.filter(|at| *at > now.mono).map(wall);
        self.handles.ctx.recorder.trails.end_all(&self.pod.uid, next_try);
    }

    pub(super) fn record_end(&self, ended: &ContainerObservation) {
        let message = match (&*ended.reason, ended.exit_code) {
            ("", code) => format!("exit code {code}"),
            (reason, code) => format!("{reason}, exit code {code}"),
        };
        let step = NewStep {
            reason: Cow::Borrowed("Ended"),
            container: Some(&ended.name),
            message: &message,
            is_warning: ended.exit_code != 0,
            is_event: false,
        };
        self.handles.ctx.recorder.trails.record(&self.pod.uid, &step);
    }

    /// Records that the pod has become ready, or is no longer.
    pub(super) fn record_readiness(&self, before: Option<&PodStatus>, now: &PodStatus) {
        match (before.is_some_and(is_ready), is_ready(now)) {
            (false, true) => self.record("Ready", ""),
            (true, false) => self.record("NotReady", ""),
            (true, true) | (false, false) => {}
        }
    }
}

fn wall_time(now: Timestamp, after: std::time::Duration) -> Timestamp {
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    now.checked_add(after).unwrap_or(Timestamp::MAX)
}

/// `Failed (Evicted)`.
fn phase_of(status: &PodStatus) -> String {
    let phase = status.phase.as_deref().unwrap_or("Unknown");
    match status.reason.as_deref().filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{phase} ({reason})"),
        None => phase.to_owned(),
    }
}
