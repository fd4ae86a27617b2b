//! What the worker adds to its pod's trail, next to the events and what passes record.

use std::borrow::Cow;

use base_core::exit_signal::signal_of_exit_code;
use base_core::pod_stage::PodStage;
use base_core::trail::NewStep;
use base_core::waits::{
    AWAITING_RUNTIME, BEHIND_PREEMPTED, BEHIND_PREVIOUS, RUNTIME_UNKNOWN, WAITING_TO_START,
};
use jiff::{SignedDuration, Timestamp};
use kubelet_core::pods::end_steps::{EndFacts, compute_end_steps, grace_ends};
use kubelet_core::pods::probe::results::{ProbeKind, Verdict};
use kubelet_core::pods::restored_trail::compute_restored_trail;
use model::k8s::PodStatus;
use model::pod_status::is_ready;
use model::{ContainerObservation, MonoTime, PodObservation};
use resources_agent::admissions::AdmissionSlot;

use super::PodWorker;
use crate::pods::messages::ProbeEvent;

impl PodWorker {
    pub(super) fn open_trail(&self) {
        self.handles.ctx.recorder.trails.open(&self.pod);
        self.record("Accepted", "");
    }

    /// What was before this kubelet started, as the runtime and the last status have it.
    pub(super) fn restore_trail(&self, observed: &PodObservation) {
        let steps = compute_restored_trail(observed, self.reported.status.as_deref());
        if !steps.is_empty() {
            self.handles.ctx.recorder.trails.restore(&self.pod.uid, steps);
            self.record("Adopted", "the pod was on this node when the kubelet started");
        }
    }

    /// A probe has another result than before.
    pub(super) fn record_verdict(&self, event: &ProbeEvent) {
        let Some(reason) = verdict_reason(event.kind, event.verdict) else { return };
        let container =
            self.observed.latest.as_ref().and_then(|observed| observed.container(&event.container));
        let step = NewStep {
            container: container.map(|container| &*container.name),
            is_warning: event.verdict == Verdict::Failure,
            ..NewStep::new(reason, "")
        };
        self.handles.ctx.recorder.trails.record(&self.pod.uid, &step);
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
            return Some(BEHIND_PREEMPTED);
        }
        if !self.desired.receiver.borrow().must_wait {
            return None;
        }
        Some(if self.handles.cache.listed_at().is_none() { RUNTIME_UNKNOWN } else { BEHIND_PREVIOUS })
    }

    pub(super) fn record_waiting_to_start(&self, why: &str) {
        self.handles.ctx.recorder.trails.begin(&self.pod.uid, &NewStep::new(WAITING_TO_START, why));
    }

    /// The next act needs an observation that the runtime has not given yet.
    pub(super) fn record_runtime_wait(&self, is_under_way: bool) {
        let trails = &self.handles.ctx.recorder.trails;
        match is_under_way {
            true => trails.set(&self.pod.uid, AWAITING_RUNTIME, true),
            false => trails.end_wait(&self.pod.uid, AWAITING_RUNTIME),
        }
    }

    /// What of the end of the pod is under way.
    pub(super) fn record_end_steps(&self) {
        if self.state.stage() == PodStage::Syncing {
            return;
        }
        let steps = compute_end_steps(&EndFacts {
            stage: self.state.stage(),
            grace_ends: grace_ends(&self.state),
            is_stopped: self.observed.latest.as_ref().is_some_and(|observed| observed.is_stopped()),
            has_claims: self.handles.resources.claims.are_used_by(&self.pod.uid),
            is_removed: self.desired.is_removed(),
            now: self.handles.ctx.clock.now().wall,
        });
        for (step, is_under_way) in steps {
            self.handles.ctx.recorder.trails.set(&self.pod.uid, step, is_under_way);
        }
    }

    /// No act is under way; the next one is planned for that time.
    pub(super) fn record_next_try(&self, at: Option<MonoTime>) {
        let now = self.handles.ctx.clock.now();
        let wall = |at: MonoTime| wall_time(now.wall, at.saturating_since(now.mono));
        let next_try = at.filter(|at| *at > now.mono).map(wall);
        self.handles.ctx.recorder.trails.end_all(&self.pod.uid, next_try);
    }

    /// Says in the log, too, why the container ended.
    pub(super) fn record_end(&self, ended: &ContainerObservation) {
        tracing::info!(
            pod = %self.pod,
            containerName = %ended.name,
            containerID = %ended.id,
            exitCode = ended.exit_code,
            signal = signal_of_exit_code(ended.exit_code),
            reason = ended.reason,
            logPath = ended.log_path,
            "Container ended"
        );
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

const fn verdict_reason(kind: ProbeKind, verdict: Verdict) -> Option<&'static str> {
    Some(match (kind, verdict) {
        (ProbeKind::Liveness, Verdict::Success) => "LivenessProbeSucceeded",
        (ProbeKind::Liveness, Verdict::Failure) => "LivenessProbeFailed",
        (ProbeKind::Readiness, Verdict::Success) => "ReadinessProbeSucceeded",
        (ProbeKind::Readiness, Verdict::Failure) => "ReadinessProbeFailed",
        (ProbeKind::Startup, Verdict::Success) => "StartupProbeSucceeded",
        (ProbeKind::Startup, Verdict::Failure) => "StartupProbeFailed",
        (ProbeKind::Liveness | ProbeKind::Readiness | ProbeKind::Startup, Verdict::Unknown) => return None,
    })
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
