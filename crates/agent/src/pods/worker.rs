//! One pod's worker: the only task that acts on it, from its first appearance until it has left no trace.
//!
//! ```text
//! event --> state machine (kubelet_core::pods::worker) --> effects --> pass or release --> report --> state machine
//! ```
//! Each turn of the loop handles one event, decides (all decisions are pure functions of `kubelet-core`), and
//! starts at most one act. An act is an owned task: a termination aborts it, so that nothing runs without the worker.
//! After an act the next decision waits for an observation that was begun after the act had ended.

mod act;
mod admission;
mod alarm;
mod cgroup;
mod checkpoint;
mod deadline;
mod messages;
mod objects;
mod rare_event;
mod release;
mod resize;
mod status;
mod superseded;
mod terminate;
mod times;
mod trail;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base_core::backoff::BackoffTable;
use base_core::pod_kind::is_static_pod;
use base_core::pod_stage::PodStage;
use futures_util::future::OptionFuture;
use kubelet_core::pods::actions::{PodInputs, compute_pod_actions};
use kubelet_core::pods::backoff::SYNC_RETRY;
use kubelet_core::pods::memory::PodMemory;
use kubelet_core::pods::plan::PodStep;
use kubelet_core::pods::restored_back_off::restore_back_off;
use kubelet_core::pods::status::{TerminalReason, latest_known};
use kubelet_core::pods::termination::GracePeriod;
use kubelet_core::pods::waiting::WaitingState;
use kubelet_core::pods::worker::{
    ActOutcome, TerminationCause, WorkerEffect, WorkerEvent, WorkerState, on_event,
};
use model::cgroup::CgroupState;
use model::containers::ContainersByName;
use model::k8s::{Pod, PodStatus};
use model::pod_status::has_ended;
use model::{ContainerId, ContainerObservation, ContainerState, PodObservation, PodRef};
use resources_agent::admissions::{AdmissionSlot, Change};
use resources_agent::claims::OperationError;
use resources_agent::devices::HealthListener;
use resources_core::devices::health::may_have_devices;
use sources_core::{ApiPod, DesiredPod, differs_semantically};
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use self::act::Act;
use self::alarm::Alarm;
use self::cgroup::CgroupWatch;
use self::checkpoint::Checkpoint;
use self::objects::Registration;
use crate::metrics::{PodMetrics, ResizeCount};
use crate::pods::handles::PodHandles;
use crate::pods::messages::{PassEvent, ProbeEvent, WorkerMessage, WorkerSender};
use crate::pods::pass::{PassContext, PassReport, Retry, kill::KillProgress, prepare::Prepared};
use crate::pods::prober::Probes;
use crate::pods::termination_requests::{TerminationListener, TerminationRequest};
use times::Times;

/// Messages of acts and probes that may wait; senders wait when it is full.
const MESSAGE_QUEUE: usize = 64;
/// Delay before an aborted act is retried.
const RETRY: Duration = Duration::from_secs(1);

/// The state that the sync loop wants; the latest one replaces earlier ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct DesiredState {
    /// Absent for pods that only the runtime knows.
    pub desired: Option<DesiredPod>,
    /// The source removed the pod: terminate it and remove everything of it.
    pub is_removed: bool,
    /// How often it was removed, because the pod must terminate even if it is added again at once.
    pub removals: u64,
    /// Start nothing yet: the state of the runtime is not known, or a pod of the same name still runs in it.
    pub must_wait: bool,
}

/// A pass that waits for an observation that is fresh enough.
#[derive(Debug)]
enum Pending {
    Sync,
    Terminate { pod: Option<Arc<Pod>>, grace: GracePeriod },
}

/// The result of an act.
#[derive(Debug)]
enum ActReport {
    Synced(PassReport),
    /// The volumes have the current content of API objects, or an event was recorded.
    Refreshed,
    /// Everything was tried to stop it. `Err`: why its claims are not unprepared.
    Terminated {
        claims: Result<(), OperationError>,
    },
    /// `Err`: why resources of the pod are not released.
    Released(Result<(), String>),
    /// The same for its directory, logs and records.
    Purged(Result<(), String>),
}

/// What the pod's sources want.
struct Desired {
    receiver: watch::Receiver<DesiredState>,
    /// With the resources that were allocated, whatever the API requests by now.
    pod: Option<Arc<Pod>>,
    /// A pod of the API as it is there now.
    in_api: Option<Arc<ApiPod>>,
    /// The values of the last handled desired state.
    was_removed: bool,
    removals: u64,
    /// The pod as the API has it, if it requests other resources there.
    requested: Option<Arc<Pod>>,
    /// The same at the start of the kubelet, until the pod is admitted again.
    restored: Option<Arc<Pod>>,
}

impl Desired {
    /// No source has it any more.
    fn is_removed(&self) -> bool {
        self.receiver.borrow().is_removed
    }

    /// The status that its source has of the pod now.
    fn status_in_source(&self) -> Option<Arc<PodStatus>> {
        match &self.in_api {
            Some(_) => self.status_in_api(),
            None => self.pod.as_ref()?.status.clone().map(Arc::new),
        }
    }

    /// What the API has of the pod's status; `None` for a static pod.
    fn status_in_api(&self) -> Option<Arc<PodStatus>> {
        self.in_api.as_ref()?.status.clone()
    }
}

/// What the runtime has.
struct Observed {
    receiver: watch::Receiver<Option<Arc<PodObservation>>>,
    latest: Option<Arc<PodObservation>>,
    /// Termination messages of containers that have ended.
    messages: BTreeMap<ContainerId, String>,
}

/// What was last reported about the pod, and what the next report depends on.
#[derive(Default)]
struct Reported {
    /// Shared with the view of all pods, which shows it.
    status: Option<Arc<PodStatus>>,
    checkpoint: Checkpoint,
    /// Why the kubelet ends the pod.
    terminal: Option<TerminalReason>,
    is_rejected: bool,
    /// The API showed the pod as Running when the last pass began.
    was_running_in_api: bool,
    /// Why the pod does not end or is not removed, as last reported.
    stuck_on: Option<String>,
}

pub(crate) struct PodWorker {
    handles: Arc<PodHandles>,
    pod: PodRef,
    desired: Desired,
    observed: Observed,
    memory: PodMemory,
    reported: Reported,
    state: WorkerState,
    is_over: bool,
    /// Before the last try to remove what is left of the pod, once one has failed.
    purge_delay: Option<Duration>,
    pending: Option<Pending>,
    act: Act,
    alarm: Alarm,
    messages: mpsc::Receiver<Box<WorkerMessage>>,
    sender: WorkerSender,
    probes: Probes,
    prepared: Option<Arc<Prepared>>,
    /// Of the termination, or of the step that was tried last.
    kills: KillProgress,
    cgroup: CgroupWatch,
    registration: Registration,
    /// The pod's allocation on the node; `None` for a pod that has none.
    slot: Option<AdmissionSlot>,
    /// Open while the pod has a slot that is not released.
    termination: Option<TerminationListener>,
    /// Changes of allocations, while a resize waits for them.
    resizes: Option<watch::Receiver<Change>>,
    /// For a pod that may have devices.
    device_health: Option<HealthListener>,
    resize_count: ResizeCount,
    times: Times,
}

impl std::fmt::Debug for PodWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodWorker")
            .field("pod", &self.pod)
            .field("stage", &self.state.stage())
            .finish_non_exhaustive()
    }
}

fn not_removed(why: &str) -> String {
    format!("pod cannot be removed yet: {why}")
}

/// Never resolves for a pod without a slot.
async fn termination_request(listener: Option<&TerminationListener>) -> TerminationRequest {
    match listener {
        Some(listener) => listener.requested().await,
        None => std::future::pending().await,
    }
}

impl PodWorker {
    /// A worker for a desired pod, or, without one in the desired state, for a pod that only the runtime or the disk has;
    /// `remembered` is the pod that an earlier kubelet saved. Also returns the first effects.
    pub(crate) fn new(
        handles: Arc<PodHandles>,
        pod: PodRef,
        desired_state: watch::Receiver<DesiredState>,
        remembered: Option<Arc<Pod>>,
        slot: Option<AdmissionSlot>,
    ) -> (Box<Self>, Vec<WorkerEffect>) {
        let observations = handles.cache.subscribe(&pod.uid);
        let (sender, messages) = mpsc::channel(MESSAGE_QUEUE);
        let back_off_max = handles.ctx.config().crash_loop_back_off.max_container_restart_period.as_std();
        let now = handles.ctx.clock.now();
        let DesiredState { desired, is_removed: was_removed, removals, .. } = desired_state.borrow().clone();
        let (desired, in_api) = match desired {
            Some(DesiredPod { pod, in_api, .. }) => (Some(pod), in_api),
            None => (remembered, None),
        };
        let (state, effects) = match &desired {
            Some(desired) => WorkerState::new(desired.clone(), now),
            None => WorkerState::orphan(pod.clone(), now),
        };
        let may_have_devices = slot.is_some() && desired.as_ref().is_some_and(|pod| may_have_devices(pod));
        let device_health =
            may_have_devices.then(|| handles.resources.devices.listen_to_health(&pod.uid)).flatten();
        let worker = Self {
            probes: Probes::new(handles.clone(), pod.clone(), sender.clone()),
            desired: Desired {
                receiver: desired_state,
                pod: desired,
                in_api,
                was_removed,
                removals,
                requested: None,
                restored: None,
            },
            observed: Observed { receiver: observations, latest: None, messages: BTreeMap::new() },
            memory: PodMemory::new(BackoffTable::crash_loop(back_off_max, handles.ctx.node_facts.features)),
            reported: Reported::default(),
            state,
            is_over: false,
            purge_delay: None,
            pending: None,
            act: Act::new(now.mono),
            alarm: Alarm::new(now.mono),
            messages,
            sender,
            prepared: None,
            kills: KillProgress::default(),
            cgroup: CgroupWatch::default(),
            registration: Registration::default(),
            times: Times::new(now.mono),
            resizes: None,
            device_health,
            resize_count: ResizeCount::new(handles.ctx.metrics.get()),
            termination: slot.as_ref().map(|_| handles.termination_requests.listen(pod.uid.clone())),
            slot,
            handles,
            pod,
        };
        // Boxed, because every future that owns it would reserve space for all of it.
        (Box::new(worker), effects)
    }

    /// Runs until the pod has left no trace. Every select arm is cancel safe: channels, watches and join sets lose
    /// nothing.
    pub(crate) async fn run(mut self: Box<Self>, first: Vec<WorkerEffect>) {
        // Boxed, because this future would reserve space for it as long as the pod lives.
        Box::pin(self.begin(first)).await;
        let mut sources_ready = self.handles.sources_ready.clone();
        while !self.is_over {
            let clock = self.handles.ctx.clock;
            let waits_for_sources = self.resizes.is_none() && self.has_resize_to_try();
            tokio::select! {
                biased;
                Ok(()) = self.desired.receiver.changed() => self.handle_desired_state(),
                Some(done) = self.act.report(), if self.act.is_running() => self.handle_report(done),
                Some(message) = self.messages.recv() => self.handle_message(*message),
                Ok(()) = self.observed.receiver.changed() => self.handle_observation().await,
                why = termination_request(self.termination.as_ref()) => self.terminate_for(why),
                Some(event) = OptionFuture::from(rare_event::next(
                    self.slot.as_mut(),
                    self.device_health.as_ref(),
                    self.resizes.as_mut(),
                    waits_for_sources.then_some(&mut sources_ready),
                )) => self.handle_rare_event(event),
                () = self.registration.changes.next() => self.handle_object_change(),
                () = clock.sleep_until(self.alarm.next()) => self.handle_alarm(),
            }
            self.follow_observation();
            self.follow_resize();
            self.start_pending();
            self.record_end_steps();
            self.publish().await;
        }
        self.close_trail();
    }

    /// Reads what an earlier kubelet left: the status checkpoint and the numbers of log files.
    async fn begin(&mut self, first: Vec<WorkerEffect>) {
        self.open_trail();
        self.handles.pleg.inspect(&self.pod);
        let on_disk = status::load(&self.handles, &self.pod).await.map(Arc::new);
        self.reported.checkpoint = on_disk.clone().map(Checkpoint::read).unwrap_or_default();
        let known = match self.desired.pod.as_ref().filter(|pod| is_static_pod(pod)) {
            Some(pod) if on_disk.is_none() => status::of_mirror(&self.handles, pod).await,
            Some(_) => on_disk,
            None => latest_known(on_disk, self.desired.status_in_api().as_ref()),
        };
        let is_due_again = |api_status: &Arc<PodStatus>| {
            let pod = self.desired.pod.as_deref();
            pod.is_some_and(|pod| kubelet_core::node::shutdown::begins_again(pod, api_status))
        };
        self.reported.status = known.filter(|api_status| !is_due_again(api_status));
        self.times.remember(self.reported.status.as_deref());
        self.memory.log_restarts = messages::log_restarts(&self.handles.ctx, &self.pod).await;
        self.schedule_resync();
        self.carry_out(first);
        let is_allocated = self.restore_allocation().await;
        if let Some(pod) = self.desired.pod.clone() {
            let before = self.reported.status.clone();
            let ended_before = before.as_deref().is_some_and(has_ended);
            self.reported.terminal = before.as_deref().and_then(status::terminal_of);
            if ended_before {
                self.release_slot();
                self.reported.is_rejected = before.as_deref().is_some_and(status::was_rejected);
            } else {
                self.admit(&pod, is_allocated).await;
            }
            self.request_restored();
            self.handle_final_phase();
            if ended_before || self.reported.is_rejected {
                self.feed(WorkerEvent::Kill { cause: TerminationCause::Completed, grace_override: None });
            }
            // Found running or on disk without a manifest: terminated as if the manifest had just been removed.
            if self.desired.is_removed() {
                self.feed(WorkerEvent::Removed);
            }
        }
        // A pod that ran before this process has had its passes.
        self.record_phase_in_api();
        self.publish().await;
    }

    /// One event through the state machine, and what follows from it.
    fn feed(&mut self, event: WorkerEvent) {
        let (state, effects) = on_event(self.state.clone(), event, self.handles.ctx.clock.now());
        self.state = state;
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<WorkerEffect>) {
        for effect in effects {
            match effect {
                WorkerEffect::SyncPass => self.pending = Some(Pending::Sync),
                WorkerEffect::TerminatePass { pod, grace, cause } => {
                    tracing::info!(pod = %self.pod, podUID = %self.pod.uid, ?cause, grace = grace.as_secs(), "Terminating pod");
                    self.alarm.turn_at(self.handles.ctx.clock.mono() + grace.as_duration());
                    self.pending = Some(Pending::Terminate { pod, grace });
                }
                WorkerEffect::CancelAct => self.cancel_act(),
                WorkerEffect::Observe => self.handles.pleg.inspect(&self.pod),
                WorkerEffect::ReleaseResources { .. } => {
                    self.registration = Registration::default();
                    self.release();
                }
                WorkerEffect::PublishStage(stage) => {
                    if stage == PodStage::Terminated {
                        self.report_deadline();
                    }
                    if stage >= PodStage::Terminated {
                        self.memory.end_pass();
                        self.release_slot();
                    }
                    self.reconcile_probes();
                }
                WorkerEffect::WakeIn(after) => {
                    self.alarm.no_later_than(self.handles.ctx.clock.mono() + after)
                }
                WorkerEffect::Forget => self.purge(),
                WorkerEffect::Hide => {
                    self.desired.pod = None;
                    self.handles.pods.forget(&self.pod.uid);
                }
                WorkerEffect::StartAgain => self.forget_status(),
            }
        }
    }

    /// Aborts the act in flight, and drops a pass that has not begun.
    fn cancel_act(&mut self) {
        self.memory.starting.clear();
        self.act.abort();
        if self.pending.take().is_some() {
            self.feed(WorkerEvent::ActDone(ActOutcome::Settled));
        }
    }

    fn handle_desired_state(&mut self) {
        let state = self.desired.receiver.borrow_and_update().clone();
        let is_new_removal = std::mem::replace(&mut self.desired.removals, state.removals) != state.removals;
        let was_removed =
            std::mem::replace(&mut self.desired.was_removed, state.is_removed) || is_new_removal;
        if is_new_removal {
            // The scheduler counts the pod as removed.
            self.release_slot();
            self.feed(WorkerEvent::Removed);
        }
        let Some(DesiredPod { pod, in_api, .. }) = state.desired else { return };
        self.desired.in_api = in_api;
        if was_removed && !state.is_removed {
            // Added again: it starts over once it has ended, however little its spec has changed.
            self.desired.pod = Some(pod.clone());
            self.feed(WorkerEvent::Desired(pod));
        } else {
            self.handle_desired_pod(&pod);
        }
    }

    fn handle_desired_pod(&mut self, pod: &Arc<Pod>) {
        let pod = &self.with_allocation(pod);
        let known = self.desired.pod.replace(pod.clone());
        // Ignore updates that only echo our own status patch.
        let is_same = |known: &Arc<Pod>| Arc::ptr_eq(known, pod) || !differs_semantically(known, pod);
        if known.as_ref().is_some_and(is_same) {
            self.reported.checkpoint.pod_is_same(pod);
        } else {
            self.prepared = None;
            self.memory.forget_failure();
            self.times.pod_changed();
            self.feed(WorkerEvent::Desired(pod.clone()));
        }
        self.try_requested_resize();
        if let Some(in_api) = &self.desired.in_api {
            self.times.seen_in_api(&self.handles.ctx.metrics, self.handles.ctx.clock.now(), in_api);
        }
        self.handle_final_phase();
    }

    /// Another client set a final phase, as controllers do for pods of nodes that have been unreachable for long.
    fn handle_final_phase(&mut self) {
        let Some(api_status) = self.desired.status_in_api().filter(|api_status| has_ended(api_status)) else {
            return;
        };
        if self.state.stage() == PodStage::Syncing {
            self.reported.terminal =
                self.reported.terminal.take().or_else(|| status::terminal_of(&api_status));
            self.feed(WorkerEvent::Kill { cause: TerminationCause::Completed, grace_override: None });
        }
    }

    fn handle_alarm(&mut self) {
        let now = self.handles.ctx.clock.mono();
        if self.alarm.is_resync_due(now) {
            self.handles.pleg.inspect(&self.pod);
            self.registration.is_stale = true;
            self.cgroup.are_numbers_known = false;
            self.schedule_resync();
        }
        if self.alarm.take_due(now) {
            if self.cgroup.is_missing() {
                self.handles.pleg.inspect(&self.pod);
            }
            self.check_deadline();
            self.check_if_late();
            self.check_preemption();
            self.retry_resizes();
            self.feed(WorkerEvent::Wake);
        }
    }

    fn schedule_resync(&mut self) {
        let period = self.handles.ctx.config().sync_frequency.as_std();
        let at = self.handles.ctx.clock.mono() + period + self.handles.ctx.rng.up_to(period / 2);
        self.alarm.resync_at(at);
    }

    async fn handle_observation(&mut self) {
        let Some(observed) = self.observed.receiver.borrow_and_update().clone() else { return };
        let is_first = self.observed.latest.is_none();
        messages::read_new(&self.handles.ctx, &self.pod, &observed, &mut self.observed.messages).await;
        self.forget_instances_not_in(&observed);
        if is_first {
            self.restore_trail(&observed);
            self.restore_from_status(&observed);
        }
        self.count_ended(&observed);
        self.remove_superseded(&observed);
        // A pod that uses claims has not ended: no status may say so, and its object may not go.
        let stopped = observed.is_stopped() && !self.handles.resources.claims.are_used_by(&self.pod.uid);
        let taken_at = observed.taken_at;
        self.observed.latest = Some(observed);
        if is_first {
            self.adopt_running();
        }
        self.record_ended();
        self.reconcile_probes();
        self.inspect_cgroup().await;
        self.feed(WorkerEvent::Observed { stopped, taken_at });
    }

    /// Containers that ended since the last observation. Ends before this process are not counted.
    fn count_ended(&self, observed: &PodObservation) {
        let (Some(before), Some(pod)) = (&self.observed.latest, &self.desired.pod) else { return };
        let is_over = |container: &ContainerObservation| container.state == ContainerState::Exited;
        let containers = ContainersByName::of(pod);
        for ended in observed.containers.iter().filter(|container| is_over(container)) {
            let kind = containers.get(&ended.name).map(|container| container.kind);
            if let Some(kind) = kind.filter(|_| !before.container(&ended.id).is_some_and(is_over)) {
                self.handles.ctx.metrics.get::<PodMetrics>().terminated(kind, ended);
                self.record_end(ended);
            }
        }
    }

    fn forget_instances_not_in(&mut self, observed: &PodObservation) {
        let ids: BTreeSet<&ContainerId> = observed.containers.iter().map(|c| &c.id).collect();
        self.observed.messages.retain(|id, _| ids.contains(id));
        self.kills.retain(|id| ids.contains(id));
        self.memory.observe(observed);
    }

    /// After a restart, crash-loop delays and probe verdicts of unchanged containers come from the last status.
    fn restore_from_status(&mut self, observed: &PodObservation) {
        if let Some(pod) = &self.desired.pod {
            let (previous, now) = (self.reported.status.as_deref(), self.handles.ctx.clock.now());
            restore_back_off(&mut self.memory.backoff, pod, observed, previous, now);
        }
        self.seed_verdicts(observed);
        self.forget_lost_exits();
    }

    fn seed_verdicts(&mut self, observed: &PodObservation) {
        let Some(previous) = &self.reported.status else { return };
        if self.handles.ctx.node_facts.features.status_starts_again {
            return;
        }
        for seed in kubelet_core::pods::status::merge_for_restart(previous, observed) {
            self.memory.verdicts.set(&seed.container, seed.kind, seed.verdict);
        }
    }

    fn reconcile_probes(&mut self) {
        let is_terminating = self.state.stage() != PodStage::Syncing;
        if let (Some(observed), Some(pod)) = (&self.observed.latest, &self.desired.pod) {
            self.probes.reconcile(pod, observed, &self.memory.verdicts, is_terminating);
        }
    }

    fn handle_message(&mut self, message: WorkerMessage) {
        match message {
            WorkerMessage::Pass(event) => self.handle_pass_event(event),
            WorkerMessage::Probe(event) => self.handle_probe_event(&event),
        }
    }

    fn handle_probe_event(&mut self, event: &ProbeEvent) {
        let is_known = self.observed.latest.as_ref().is_some_and(|o| o.container(&event.container).is_some());
        if is_known && self.memory.verdicts.set(&event.container, event.kind, event.verdict) {
            self.record_verdict(event);
            self.reconcile_probes();
            self.feed(WorkerEvent::Wake);
        }
    }

    fn handle_pass_event(&mut self, event: PassEvent) {
        match event {
            PassEvent::Pulled { began, ended } => self.times.pulled(began, ended),
            PassEvent::Failed { container, waiting } => {
                let state = WaitingState { reason: waiting.reason, message: waiting.message };
                self.memory.start_failed(&container, state, self.handles.ctx.clock.mono());
            }
            PassEvent::HookBegan { container } => {
                self.memory.starting.insert(container);
            }
            PassEvent::Amounts { container, amounts, is_resized } => {
                // A pass that was aborted does not wait for the reply.
                let _ = is_resized.send(self.set_actuated(&container, amounts));
            }
            PassEvent::Started { container } => self.memory.started(&container),
            PassEvent::PodResized { amounts } => {
                self.memory.actuated.pod = Some(amounts);
                self.cgroup.state = CgroupState::UpToDate;
                self.record_actuated();
            }
            PassEvent::ResizeFailed { message } => self.resize_failed(message),
        }
    }

    fn handle_report(&mut self, done: Result<ActReport, tokio::task::JoinError>) {
        let now = self.handles.ctx.clock.mono();
        self.times.act_ended(&self.handles.ctx.metrics, now);
        self.record_next_try(None);
        // New content of volumes changes nothing in the runtime.
        if !matches!(done, Ok(ActReport::Refreshed)) {
            self.act.ended(now);
            self.handles.pleg.inspect(&self.pod);
        }
        while let Ok(message) = self.messages.try_recv() {
            self.handle_message(*message);
        }
        let failed = || WorkerEvent::ActDone(ActOutcome::Failed { retry_after: RETRY });
        match done {
            Ok(ActReport::Synced(report)) => {
                self.prepared = report.prepared.or_else(|| self.prepared.take());
                let outcome = self.step_outcome(report.retry);
                self.feed(WorkerEvent::ActDone(outcome));
            }
            Ok(ActReport::Refreshed) => self.feed(WorkerEvent::ActDone(ActOutcome::Settled)),
            Ok(ActReport::Terminated { claims }) => {
                self.report_deadline();
                self.record_stuck(
                    claims
                        .map_err(|error| format!("error killing pod: unprepare dynamic resources: {error}")),
                );
                self.feed(WorkerEvent::ActDone(ActOutcome::Progressed));
            }
            Ok(ActReport::Released(result)) => {
                let ok = self.record_stuck(result.map_err(|why| not_removed(&why)));
                self.feed(WorkerEvent::Released { ok });
            }
            Ok(ActReport::Purged(result)) => {
                self.is_over = self.record_stuck(result.map_err(|why| not_removed(&why)));
                if !self.is_over {
                    self.purge_later();
                }
            }
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(pod = %self.pod, "Pod operation panicked, syncing the pod again");
                }
                self.feed(failed());
            }
        }
    }

    /// A failed step is retried after a delay.
    fn step_outcome(&mut self, retry: Option<Retry>) -> ActOutcome {
        let acted = self.act.take_step();
        if acted == Some(PodStep::RepairCgroup) && retry.is_none() {
            // Not compared again before it is due, because values that the kernel rounds would be rewritten each time.
            self.cgroup.state = CgroupState::UpToDate;
        }
        let Some((step, retry)) = acted.clone().zip(retry) else {
            self.kills = KillProgress::default();
            self.memory.step_succeeded(acted.as_ref());
            return ActOutcome::Progressed;
        };
        let jitter = self.handles.ctx.rng.up_to(SYNC_RETRY / 2);
        let retry_at = match retry {
            Retry::At(at) => Some(at),
            // The object that the step lacked may exist by now.
            Retry::BackingOff if self.registration.has_changed => Some(self.act.ended_at()),
            Retry::BackingOff => None,
        };
        let until = self.memory.step_failed(step, retry_at, self.act.ended_at(), jitter);
        self.record_next_try(Some(until));
        ActOutcome::Failed { retry_after: until.saturating_since(self.act.ended_at()) }
    }

    /// The same step failed a moment ago, and nothing has changed since.
    fn must_wait(&mut self, step: &PodStep) -> bool {
        let Some(until) = self.memory.retry_at(step) else { return false };
        let must_wait = until > self.handles.ctx.clock.mono();
        if must_wait {
            self.alarm.no_later_than(until);
        }
        must_wait
    }

    /// Begins the pass that waits, once no act is in flight and the observation shows what the last act did.
    fn start_pending(&mut self) {
        // A pass without anything to do ends at once, and may request the next one; each round needs a new event, so this
        // ends. The bound guards against a mistake in that reasoning.
        for _ in 0..8 {
            if self.act.is_running() || self.pending.is_none() {
                return self.record_runtime_wait(false);
            }
            let Some(observed) = self.observed.latest.clone().filter(|o| self.act.is_shown_by(o)) else {
                return self.record_runtime_wait(true);
            };
            self.record_runtime_wait(false);
            let blocked = self.blocked_by();
            match self.pending.take_if(|pending| blocked.is_none() || !matches!(pending, Pending::Sync)) {
                Some(Pending::Sync) => {
                    self.record_phase_in_api();
                    // While the pass waited, the pod may have changed: it got back what an earlier kubelet allocated to it.
                    if let Some(pod) = self.desired.pod.clone() {
                        self.sync(&pod, &observed);
                    }
                    self.record_act(false);
                }
                Some(Pending::Terminate { pod, grace }) => {
                    self.record_phase_in_api();
                    self.memory.begin_termination(&observed);
                    self.report_deadline();
                    self.terminate(pod, observed, grace);
                    self.record_act(true);
                }
                None => {
                    self.record_waiting_to_start(blocked.unwrap_or_default());
                    return;
                }
            }
        }
    }

    /// A pass that found nothing to do has started no act.
    fn record_act(&mut self, is_kill: bool) {
        if self.act.is_running() {
            self.times.act_began(&self.handles.ctx.metrics, self.handles.ctx.clock.mono(), is_kill);
        }
    }

    fn sync(&mut self, pod: &Arc<Pod>, observed: &Arc<PodObservation>) {
        self.check_deadline();
        if self.state.stage() != PodStage::Syncing {
            return self.feed(WorkerEvent::ActDone(ActOutcome::Settled));
        }
        let now = self.handles.ctx.clock.now();
        let plan = compute_pod_actions(&PodInputs {
            pod,
            observed,
            memory: &self.memory,
            cgroup: self.cgroup.state,
            features: self.handles.ctx.node_facts.features,
            now,
        });
        self.record_waiting(&plan);
        if let Some(at) = plan.wake_at {
            self.alarm.no_later_than(at);
        }
        self.record_next_try(self.memory.retry_at(&plan.step).or(plan.wake_at));
        if plan.step == PodStep::Settled && has_ended(&self.compute(pod)) {
            return self.feed(WorkerEvent::ActDone(ActOutcome::PodCompleted));
        }
        self.register_objects();
        if plan.step == PodStep::Settled || self.must_wait(&plan.step) {
            self.memory.end_pass();
            // Last, so that no step waits for a slow API server.
            return match self.takes_stale_volumes(pod) {
                true => self.refresh_volumes(pod.clone(), observed.clone()),
                false => self.feed(WorkerEvent::ActDone(ActOutcome::Settled)),
            };
        }
        tracing::debug!(pod = %self.pod, step = ?plan.step, "Next step");
        let step = plan.step.clone();
        self.memory.begin_step(pod, observed, &plan.step, now);
        let context = self.context(pod.clone(), observed.clone());
        let prepared = self.prepared.clone();
        self.registration.has_changed = false;
        let (pod, uid) = (&self.pod, self.pod.uid.as_str());
        let span = tracing::info_span!(target: "trace", "syncPod", k8s.pod = %pod, k8s.pod.uid = uid);
        let pass = async move { ActReport::Synced(crate::pods::pass::run(context, plan, prepared).await) };
        self.act.start_step(step, pass.instrument(span));
    }

    fn context(&self, pod: Arc<Pod>, observed: Arc<PodObservation>) -> PassContext {
        PassContext {
            handles: self.handles.clone(),
            pod,
            identity: self.pod.clone(),
            observed,
            objects: self.registration.objects.clone(),
            events: self.sender.clone(),
            kills: self.kills.clone(),
        }
    }
}
