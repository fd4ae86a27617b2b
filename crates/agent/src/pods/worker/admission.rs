//! Admission of the pod. A rejected pod never runs, and its status has the reason. An admitted one may be preempted or
//! evicted later.

use base_core::pod_stage::PodStage;
use base_core::trail::NewStep;
use base_core::waits::ADMITTING;
use kubelet_core::node::eviction::message::EVICTED;
use kubelet_core::node::shutdown::TERMINATED;
use kubelet_core::pods::ended::{EndedFacts, compute_ended};
use kubelet_core::pods::resize::allocated::has_started;
use kubelet_core::pods::status::TerminalReason;
use kubelet_core::pods::termination::{
    EXCEEDED_GRACE_PERIOD, GraceSources, PREEMPTION_TIMED_OUT, compute_grace, compute_preemption_timeout,
    preemption_timed_out,
};
use kubelet_core::pods::worker::{TerminationCause, WorkerEvent};
use model::PodRef;
use model::k8s::Pod;
use resources_agent::admissions::Decision;
use resources_agent::metrics::PinMetrics;
use resources_core::admission::fit::{FitFacts, NODE_PORTS, port_clashes, refuse_beyond};
use resources_core::admission::preemption::PREEMPTING;
use resources_core::admission::{Admission, AdmissionFacts, compute_admission};
use resources_core::allocations::OtherPods;
use resources_core::claims::containers::without_claimed_resources;
use resources_core::devices::PodDevices;
use resources_core::devices::assign::{allocatable_devices, rejection};
use resources_core::pinned::{Pinned, Placement, Tally};
use resources_core::rejection::Rejection;

use super::PodWorker;
use super::alarm::PreemptionWait;
use crate::metrics::{KubeletMetrics, PodMetrics};
use crate::pods::handles::PodHandles;
use crate::pods::termination_requests::TerminationRequest;

/// The reason of a pod whose volumes cannot be attached to this node.
const NODE_IS_FULL: &str = "VolumeAttachmentLimitExceeded";
/// The message of a rejected pod begins with it, that of its event does not.
const REJECTED: &str = "Pod was rejected: ";

/// How a pod ends that this node terminates.
struct End {
    cause: TerminationCause,
    grace_override: Option<i64>,
    reason: &'static str,
    message: String,
    is_disruption: bool,
    /// The annotations of its event; `None`: it has none, because the event of the node covers it.
    annotations: Option<Vec<(&'static str, String)>>,
}

impl End {
    fn of(why: TerminationRequest) -> Self {
        match why {
            TerminationRequest::Preempted => Self {
                cause: TerminationCause::Preempted,
                grace_override: None,
                reason: PREEMPTING.0,
                message: PREEMPTING.1.to_owned(),
                is_disruption: true,
                annotations: Some(Vec::new()),
            },
            TerminationRequest::Evicted { notice, grace } => Self {
                cause: TerminationCause::Evicted,
                grace_override: Some(grace),
                reason: EVICTED,
                message: notice.message.clone(),
                is_disruption: notice.is_disruption,
                annotations: Some(notice.annotations.clone()),
            },
            TerminationRequest::NodeShutdown { grace } => Self {
                cause: TerminationCause::NodeShutdown,
                grace_override: Some(grace),
                reason: TERMINATED.0,
                message: TERMINATED.1.to_owned(),
                is_disruption: true,
                annotations: None,
            },
            TerminationRequest::NodeIsFull { message } => Self {
                cause: TerminationCause::Rejected,
                grace_override: None,
                reason: NODE_IS_FULL,
                message: format!("{REJECTED}{message}"),
                is_disruption: false,
                annotations: None,
            },
        }
    }
}

impl PodWorker {
    /// Admits or rejects the pod, once. One that was admitted before a restart of the kubelet stays: its containers run, or it is known
    /// what was allocated to it (`is_allocated`).
    pub(super) async fn admit(&mut self, pod: &Pod, is_allocated: bool) {
        let (trails, uid) = (self.handles.ctx.recorder.trails.clone(), self.pod.uid.clone());
        trails.set(&uid, ADMITTING, true);
        self.decide_admission(pod, is_allocated).await;
        trails.end_wait(&uid, ADMITTING);
    }

    async fn decide_admission(&mut self, pod: &Pod, is_allocated: bool) {
        let Some(slot) = &mut self.slot else { return };
        let claimed = self.desired.in_api.as_ref().and_then(|in_api| in_api.status.clone());
        let pod = &*without_claimed_resources(pod, claimed.as_deref());
        let was_admitted = self.reported.status.as_ref().is_some_and(|status| {
            status.container_statuses.is_some() && (is_allocated || has_started(status))
        });
        let handles = self.handles.clone();
        if was_admitted {
            slot.keep(|others| reallocate(&handles, pod, others));
            return self.save_pins().await;
        }
        handles
            .ctx
            .metrics
            .get::<KubeletMetrics>()
            .pod_admitted(model::containers::spec_of(pod).containers.len());
        let began = handles.ctx.clock.mono();
        let decided = slot.admit(|others| decide(&handles, pod, others)).await;
        if let Some((_, tally)) = &decided {
            let took = handles.ctx.clock.mono().saturating_since(began);
            handles.ctx.metrics.get::<PinMetrics>().decided(tally, took);
        }
        match decided.map(|(admission, _)| admission) {
            Some(Admission::Admitted { victims, short_of }) => {
                handles.termination_requests.preempt(&victims);
                handles.ctx.metrics.get::<PodMetrics>().preempted(victims.len(), &short_of);
                self.begin_preemption();
                self.record("Admitted", "");
                if let Err(why) = handles.resources.devices.ensure(pod, &self.pod.uid).await {
                    self.release_slot();
                    return self.reject(why.rejection());
                }
                self.save_pins().await;
            }
            Some(Admission::Rejected(rejection)) => self.reject(rejection),
            None => {}
        }
    }

    /// No container starts before a restart of the kubelet would keep what the pod has.
    async fn save_pins(&mut self) {
        if let Err(why) = self.handles.resources.pin_files.save().await {
            self.release_slot();
            self.reject(rejection(&why));
        }
    }

    fn reject(&mut self, rejection: Rejection) {
        self.record_rejection(&rejection);
        let message = format!("{REJECTED}{}", rejection.message);
        let reason = rejection.reason.into_owned();
        self.reported.terminal = Some(TerminalReason { reason, message, is_disruption: false });
        self.reported.is_rejected = true;
    }

    fn record_rejection(&self, rejection: &Rejection) {
        let ctx = &self.handles.ctx;
        ctx.metrics.get::<KubeletMetrics>().rejected(&rejection.reason);
        ctx.recorder.warning(&self.pod, None, rejection.reason.clone(), rejection.message.clone());
    }

    /// The pod is preempted, evicted, rejected, or terminated for a node shutdown. A pod that is terminating already continues as it
    /// began to, though perhaps faster.
    pub(super) fn terminate_for(&mut self, why: TerminationRequest) {
        // A pod that has its final reason already is not rejected as well.
        if self.reported.terminal.is_none() {
            match &why {
                TerminationRequest::NodeIsFull { message } => {
                    let message = message.to_string();
                    self.record_rejection(&Rejection { reason: NODE_IS_FULL.into(), message });
                }
                TerminationRequest::NodeShutdown { .. } => self.record(TERMINATED.0, TERMINATED.1),
                TerminationRequest::Preempted | TerminationRequest::Evicted { .. } => {}
            }
        }
        let end = End::of(why);
        if self.reported.terminal.is_none() {
            if let Some(annotations) = end.annotations {
                let (reason, message) = (end.reason, end.message.clone());
                self.handles.ctx.recorder.annotated_warning(&self.pod, reason, message, annotations);
            }
            self.reported.terminal = Some(TerminalReason {
                reason: end.reason.to_owned(),
                message: end.message,
                is_disruption: end.is_disruption,
            });
        }
        let (cause, grace_override) = (end.cause, end.grace_override);
        if let Some(pod) = &self.desired.pod {
            let grace = compute_grace(GraceSources::of(pod, grace_override), None);
            let late_at = self.handles.ctx.clock.mono() + grace.kill_deadline();
            self.alarm.late_at = Some(late_at);
            self.alarm.no_later_than(late_at);
        }
        self.feed(WorkerEvent::Kill { cause, grace_override });
    }

    /// Records an event once when a preempted or evicted pod exceeds its grace period (docs/behaviour/pod-lifecycle.md).
    pub(super) fn check_if_late(&mut self) {
        let Some(late_at) = self.alarm.late_at else { return };
        if self.state.stage() >= PodStage::Terminated {
            self.alarm.late_at = None;
        } else if late_at > self.handles.ctx.clock.mono() {
            self.alarm.no_later_than(late_at);
        } else {
            self.alarm.late_at = None;
            let (reason, message) = EXCEEDED_GRACE_PERIOD;
            self.handles.ctx.recorder.warning(&self.pod, None, reason, message.to_owned());
        }
    }

    /// The pod starts when those that were preempted for it have ended, or have had their time.
    fn begin_preemption(&mut self) {
        let victims = self.slot.as_ref().map(|slot| slot.waits_for()).unwrap_or_default();
        if victims.is_empty() {
            return;
        }
        let timeout = compute_preemption_timeout(victims.iter().map(|pod| &**pod));
        let until = self.handles.ctx.clock.mono() + timeout;
        self.alarm.preemption = Some(PreemptionWait { timeout, until });
        self.alarm.no_later_than(until);
    }

    /// Starts the pod although pods that were preempted for it run on, once these have had their time.
    pub(super) fn check_preemption(&mut self) {
        let Some(PreemptionWait { timeout, until }) = self.alarm.preemption else { return };
        if until > self.handles.ctx.clock.mono() {
            return self.alarm.no_later_than(until);
        }
        self.alarm.preemption = None;
        let Some(slot) = &mut self.slot else { return };
        for victim in slot.waits_for() {
            let victim = PodRef::of(&victim);
            tracing::error!(pod = %self.pod, %victim, victimUID = %victim.uid, ?timeout, "Failed to evict pod, it did not end in time");
            let message = preemption_timed_out(&victim, timeout);
            self.handles.ctx.recorder.warning(&self.pod, None, PREEMPTION_TIMED_OUT, message);
        }
        slot.stop_waiting();
    }

    /// Containers that will not run again hold no resources any more.
    pub(super) fn record_ended(&self) {
        let (Some(slot), Some(pod), Some(observed)) = (&self.slot, &self.desired.pod, &self.observed.latest)
        else {
            return;
        };
        let facts = EndedFacts {
            memory: &self.memory,
            features: self.handles.ctx.node_facts.features,
            is_stopping: self.state.stage() != PodStage::Syncing,
        };
        slot.record_ended(compute_ended(pod, observed, &facts));
    }

    /// Releases the resources of the pod for other pods.
    pub(super) fn release_slot(&self) {
        if let Some(slot) = &self.slot {
            slot.release();
        }
        if let Some(listener) = &self.termination {
            listener.close();
        }
    }
}

/// What a pod that runs already should have for itself. It is not ended for lack of it.
fn reallocate(handles: &PodHandles, pod: &Pod, others: &OtherPods<'_>) -> Option<Pinned> {
    if others.policies.are_none() {
        return None;
    }
    match handles.resources.devices.reallocate(pod, others) {
        Ok(placement) => placement.pinned,
        Err(rejection) => {
            let (reason, message) = (rejection.reason, rejection.message);
            tracing::warn!(pod = %PodRef::of(pod), %reason, message, "Pod runs on without CPUs and memory of its own");
            None
        }
    }
}

/// The decision, and what the pod gets if it is admitted.
pub(super) fn decide(handles: &PodHandles, pod: &Pod, others: &OtherPods<'_>) -> Decision {
    let mut tally = Box::<Tally>::default();
    let (placement, refused) = match handles.resources.devices.place(pod, others, &mut tally) {
        Ok(placement) => (placement, None),
        Err(rejection) => (Placement::default(), Some(rejection)),
    };
    let admission = decide_with(handles, pod, others, &placement.devices, refused);
    if matches!(&admission, Admission::Rejected(rejection) if rejection.reason == NODE_PORTS) {
        record_port_clashes(handles, pod, others);
    }
    Decision { admission, placement, tally }
}

/// The status has the words of the Go kubelet, which do not name the other pod; the log and the trail do.
fn record_port_clashes(handles: &PodHandles, pod: &Pod, others: &OtherPods<'_>) {
    let clashes = port_clashes(pod, others.allocations.as_slice()).join("; ");
    let identity = PodRef::of(pod);
    tracing::warn!(pod = %identity, clashes, "Pod needs a host port that another pod has");
    let step = NewStep { is_warning: true, ..NewStep::new("HostPortTaken", &clashes) };
    handles.ctx.recorder.trails.record(&identity.uid, &step);
}

fn decide_with(
    handles: &PodHandles,
    pod: &Pod,
    others: &OtherPods<'_>,
    own: &PodDevices,
    shortage: Option<Rejection>,
) -> Admission {
    let active = others.allocations.as_slice();
    // Until the runtime has reported its features, no pod is rejected for lack of one.
    let runtime = handles.node.view.borrow().clone();
    let facts = AdmissionFacts {
        supplemental_groups_policy: runtime.last_ready.is_none() || runtime.status.supplemental_groups_policy,
        user_namespaces_host_network: runtime.last_ready.is_none()
            || runtime.status.user_namespaces_host_network,
        has_apparmor: handles.ctx.machine.has_apparmor(),
        kernel_version: handles.ctx.machine.info().kernel_version,
        allowed_unsafe_sysctls: handles.ctx.config().allowed_unsafe_sysctls.clone(),
        pressure: *handles.node.pressure.borrow(),
        is_shutting_down: *handles.node.shutting_down.borrow(),
        resources: shortage,
        features: handles.ctx.node_facts.features,
    };
    let node = handles.node_for_admission.get();
    let allocatable = node.as_ref().and_then(|node| node.status.as_ref()?.allocatable.clone());
    if let (Some(node), Some(mut allocatable)) = (&node, allocatable) {
        let having = others.devices.iter().copied().chain([own]);
        allocatable.extend(allocatable_devices(&handles.resources.devices.amounts(), having));
        let fit = FitFacts {
            node,
            allocatable: &allocatable,
            active,
            may_preempt: !handles.ctx.settings.flags.standalone(),
            features: facts.features,
        };
        return compute_admission(pod, &facts, Some(&fit));
    }
    // A node whose Node was not listed yet does not know its labels: a static pod that selects one of them is not rejected for it.
    match compute_admission(pod, &facts, None) {
        Admission::Admitted { victims, short_of } => {
            match refuse_beyond(u32::try_from(handles.ctx.config().max_pods).unwrap_or(110), active) {
                Some(rejection) => Admission::Rejected(rejection),
                None => Admission::Admitted { victims, short_of },
            }
        }
        rejected @ Admission::Rejected(_) => rejected,
    }
}
