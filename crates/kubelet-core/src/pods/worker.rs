//! The life of one pod on this node, as a state machine.
//!
//! ```text
//!  Syncing --Kill, Removed, deletion, work finished--> Terminating --stopped, seen after the last act--> Terminated
//!     ^                                                                                                      |
//!                                                                              Finished <---Released-------'
//! ```
//! A UID that was removed and added again meanwhile gets a new worker once this one has finished.
//! Pure: one task per pod UID feeds [`on_event`] and carries out the effects it returns. Containers are decided about
//! elsewhere ([`super::actions`], [`super::termination`]); this module only decides which kind of pass runs when.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::k8s::Pod;
use model::{MonoTime, Now, PodRef};

use super::termination::{GracePeriod, GraceSources, compute_grace};
use base_core::pod_stage::PodStage;

/// How long to wait before stopping or releasing is tried again for the first time. The delay doubles with each failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(16);

/// The delay after so many failures in a row, at least one.
fn retry_after(failures: u32) -> Duration {
    let factor = 1 << failures.saturating_sub(1).min(8);
    RETRY_AFTER.saturating_mul(factor).min(MAX_RETRY_AFTER)
}

/// Why a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TerminationCause {
    /// The API set a deletion timestamp.
    Deleted,
    /// It is gone from its source.
    Removed,
    /// It finished its work.
    Completed,
    /// It runs, but no source lists it.
    Orphan,
    DeadlineExceeded,
    Evicted,
    Preempted,
    NodeShutdown,
    /// The node cannot run it, as was found after its admission.
    Rejected,
}

/// The state of one pod's worker. Data lives only in the states where it means something.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerState {
    Syncing(Syncing),
    Terminating(Terminating),
    Terminated(Terminated),
    Finished(Finished),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Syncing {
    pub pod: Arc<Pod>,
    pub act: Act,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Terminating {
    pub identity: PodRef,
    /// The last spec seen; `None` for an orphan.
    pub pod: Option<Arc<Pod>>,
    pub since: Timestamp,
    pub grace: GracePeriod,
    pub cause: TerminationCause,
    pub act: Act,
    pub retry: StopRetry,
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Terminated {
    pub identity: PodRef,
    pub pod: Option<Arc<Pod>>,
    pub at: Timestamp,
    pub cause: TerminationCause,
    pub source: Source,
    pub is_releasing: bool,
    /// Releases that failed.
    pub failures: u32,
    /// The runtime has created something of the pod since it had stopped.
    pub is_late: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    pub identity: PodRef,
    pub pod: Option<Arc<Pod>>,
    pub cause: TerminationCause,
    pub remains: FinishedState,
    pub late: LateStop,
}

/// A runtime may carry out a call long after it timed out or was cancelled: then it has a sandbox of a pod that has ended, which is
/// stopped again. The stage does not change.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LateStop {
    #[default]
    None,
    Stopping {
        act: Act,
        retry: StopRetry,
    },
    Releasing,
}

/// When a pass that has not stopped everything is repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopRetry {
    /// Passes that have ended.
    failures: u32,
    /// Set once an observation has shown that something still runs.
    at: Option<MonoTime>,
}

impl StopRetry {
    /// Something still runs: how long the next pass waits from now on.
    fn delay(&mut self, now: MonoTime) -> Duration {
        let delay = retry_after(self.failures);
        self.at.get_or_insert(now + delay).saturating_since(now)
    }

    /// How long the next pass still has to wait; `None` if it may begin.
    fn remaining(&self, now: MonoTime) -> Option<Duration> {
        self.at.filter(|at| *at > now).map(|at| at.saturating_since(now))
    }

    const fn pass_ended(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.at = None;
    }
}

/// What happens to status, records and logs of a pod that has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishedState {
    /// The source still lists the pod.
    Kept,
    /// They are being removed.
    Removed,
    /// The next pod of this UID continues with the records and logs.
    PassedOn,
}

/// Whether the source of a terminating pod still lists it.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// It still lists the pod.
    Listed,
    Gone,
    /// It listed the same UID again after it was gone: the pod starts over once it has ended.
    AddedAgain(Arc<Pod>),
}

/// What is known about the pass in flight and the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Act {
    pub in_flight: bool,
    /// Something happened meanwhile: run again when this one ends.
    pub again: bool,
    /// Observations from before this do not reflect the last act.
    pub ended_at: MonoTime,
}

#[derive(Clone, Debug, PartialEq)]
pub enum WorkerEvent {
    /// The source lists the pod like this.
    Desired(Arc<Pod>),
    /// A component of this node terminates the pod: eviction, preemption or node shutdown.
    Kill { cause: TerminationCause, grace_override: Option<i64> },
    /// The source does not list the pod any more.
    Removed,
    /// The runtime was queried. `stopped`: nothing of the pod can still execute
    /// ([`model::PodObservation::is_stopped`]). `taken_at`: when the listing began.
    Observed { stopped: bool, taken_at: MonoTime },
    /// The time that a [`WorkerEffect::WakeIn`] or a plan's `wake_at` requested has come.
    Wake,
    /// The pass in flight has ended, also if it was cancelled.
    ActDone(ActOutcome),
    /// `ReleaseResources` has ended.
    Released { ok: bool },
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActOutcome {
    /// A step was carried out: observe and decide again.
    Progressed,
    /// There was nothing to do.
    Settled,
    /// The pod's phase is final: its containers ended and none restarts.
    PodCompleted,
    /// Try again after this, or when something changes.
    Failed { retry_after: Duration },
}

#[derive(Clone, Debug, PartialEq)]
pub enum WorkerEffect {
    /// Observe, compute the next step for the pod as it is then, carry it out; then report `ActDone`.
    SyncPass,
    /// Observe, compute the kill plan, carry it out; then report `ActDone`.
    TerminatePass {
        pod: Option<Arc<Pod>>,
        grace: GracePeriod,
        cause: TerminationCause,
    },
    /// Cancel the pass in flight. It still reports `ActDone`.
    CancelAct,
    /// Query the runtime and report `Observed`.
    Observe,
    /// Release volumes, cgroups and the rest; then report `Released`.
    ReleaseResources {
        pod: Option<Arc<Pod>>,
    },
    PublishStage(PodStage),
    /// Send `Wake` no later than this; of several, the earliest counts.
    WakeIn(Duration),
    /// The task may end: a pod that is added again later gets a new one.
    Forget,
    /// The same UID was added again while the records of the ended pod are being removed: nothing of that pod may be shown as
    /// the new one's.
    Hide,
    /// The same UID was added again while it ended: a new task is to start it. Records and logs of its containers stay,
    /// so that it counts as a restart.
    StartAgain,
}

/// A state and what to do on entering it.
pub type Step = (WorkerState, Vec<WorkerEffect>);

impl WorkerState {
    /// A pod that a source lists for the first time.
    #[must_use]
    pub fn new(pod: Arc<Pod>, now: Now) -> Step {
        let syncing = Syncing { pod, act: Act { in_flight: true, ..Act::default() } };
        if is_deleted(&syncing.pod) {
            let idle = Syncing { act: Act::default(), ..syncing };
            return idle.terminate(TerminationCause::Deleted, None, now);
        }
        let effects = vec![WorkerEffect::PublishStage(PodStage::Syncing), WorkerEffect::SyncPass];
        (Self::Syncing(syncing), effects)
    }

    /// A pod that the runtime has and no source lists.
    #[must_use]
    pub fn orphan(identity: PodRef, now: Now) -> Step {
        Terminating {
            identity,
            pod: None,
            since: now.wall,
            grace: GracePeriod::MIN,
            cause: TerminationCause::Orphan,
            act: Act::default(),
            retry: StopRetry::default(),
            source: Source::Gone,
        }
        .enter()
    }

    #[must_use]
    pub const fn stage(&self) -> PodStage {
        match self {
            Self::Syncing(_) => PodStage::Syncing,
            Self::Terminating(_) => PodStage::Terminating,
            Self::Terminated(_) => PodStage::Terminated,
            Self::Finished(_) => PodStage::Finished,
        }
    }
}

/// Applies an event to a worker. Events that have no meaning in a state do not change it.
#[must_use]
pub fn on_event(state: WorkerState, event: WorkerEvent, now: Now) -> Step {
    match state {
        WorkerState::Syncing(state) => state.on_event(event, now),
        WorkerState::Terminating(state) => state.on_event(event, now),
        WorkerState::Terminated(state) => state.on_event(event),
        WorkerState::Finished(state) => state.on_event(event, now),
    }
}

impl Syncing {
    fn on_event(mut self, event: WorkerEvent, now: Now) -> Step {
        match event {
            WorkerEvent::Desired(pod) => {
                self.pod = pod;
                if is_deleted(&self.pod) {
                    return self.terminate(TerminationCause::Deleted, None, now);
                }
                self.pass()
            }
            WorkerEvent::Kill { cause, grace_override } => self.terminate(cause, grace_override, now),
            WorkerEvent::Removed => self.terminate(TerminationCause::Removed, None, now),
            WorkerEvent::Observed { .. } | WorkerEvent::Wake => self.pass(),
            WorkerEvent::ActDone(outcome) => self.on_act_done(outcome, now),
            WorkerEvent::Released { .. } => self.stay(Vec::new()),
        }
    }

    fn on_act_done(mut self, outcome: ActOutcome, now: Now) -> Step {
        let again = self.act.again;
        self.act = Act { ended_at: now.mono, ..Act::default() };
        match outcome {
            ActOutcome::PodCompleted => self.terminate(TerminationCause::Completed, None, now),
            ActOutcome::Progressed => self.pass(),
            ActOutcome::Settled | ActOutcome::Failed { .. } if again => self.pass(),
            ActOutcome::Settled => self.stay(Vec::new()),
            ActOutcome::Failed { retry_after } => self.stay(vec![WorkerEffect::WakeIn(retry_after)]),
        }
    }

    /// One pass at a time: events during one are handled by the next.
    fn pass(mut self) -> Step {
        if self.act.in_flight {
            self.act.again = true;
            return self.stay(Vec::new());
        }
        self.act.in_flight = true;
        self.stay(vec![WorkerEffect::SyncPass])
    }

    const fn stay(self, effects: Vec<WorkerEffect>) -> Step {
        (WorkerState::Syncing(self), effects)
    }

    fn terminate(self, cause: TerminationCause, grace_override: Option<i64>, now: Now) -> Step {
        let is_removed = cause == TerminationCause::Removed;
        Terminating {
            identity: PodRef::of(&self.pod),
            since: now.wall,
            grace: compute_grace(GraceSources::of(&self.pod, grace_override), None),
            cause,
            act: self.act,
            retry: StopRetry::default(),
            source: if is_removed { Source::Gone } else { Source::Listed },
            pod: Some(self.pod),
        }
        .enter()
    }
}

impl Terminating {
    fn enter(self) -> Step {
        let (state, mut effects) = self.restart_pass();
        effects.insert(0, WorkerEffect::PublishStage(PodStage::Terminating));
        (state, effects)
    }

    fn on_event(mut self, event: WorkerEvent, now: Now) -> Step {
        match event {
            WorkerEvent::Desired(pod) => self.on_desired(pod),
            WorkerEvent::Kill { grace_override, .. } => {
                self.shrink_grace(GraceSources { kill_override: grace_override, ..GraceSources::default() })
            }
            WorkerEvent::Removed => {
                self.source = Source::Gone;
                self.stay(Vec::new())
            }
            WorkerEvent::Observed { stopped, taken_at } => self.on_observed(stopped, taken_at, now),
            WorkerEvent::Wake if self.act.in_flight => self.stay(Vec::new()),
            WorkerEvent::Wake => match self.retry.remaining(now.mono) {
                Some(remaining) => self.stay(vec![WorkerEffect::WakeIn(remaining)]),
                None => self.restart_pass(),
            },
            WorkerEvent::ActDone(outcome) => self.on_act_done(outcome, now),
            WorkerEvent::Released { .. } => self.stay(Vec::new()),
        }
    }

    fn on_desired(mut self, pod: Arc<Pod>) -> Step {
        match self.source {
            Source::Gone | Source::AddedAgain(_) => {
                self.source = Source::AddedAgain(pod);
                self.stay(Vec::new())
            }
            Source::Listed => {
                let deletion = pod.metadata.deletion_grace_period_seconds;
                self.pod = Some(pod);
                self.shrink_grace(GraceSources { deletion, ..GraceSources::default() })
            }
        }
    }

    /// A shorter period takes effect at once: the kill begins again with it.
    fn shrink_grace(mut self, sources: GraceSources) -> Step {
        let shorter = compute_grace(sources, Some(self.grace));
        if shorter == self.grace {
            return self.stay(Vec::new());
        }
        self.grace = shorter;
        self.restart_pass()
    }

    /// Only an observation after the last act proves that nothing runs.
    fn on_observed(mut self, stopped: bool, taken_at: MonoTime, now: Now) -> Step {
        if self.act.in_flight || taken_at < self.act.ended_at {
            return self.stay(Vec::new());
        }
        if !stopped {
            let delay = self.retry.delay(now.mono);
            return self.stay(vec![WorkerEffect::WakeIn(delay)]);
        }
        Terminated {
            identity: self.identity,
            pod: self.pod,
            at: now.wall,
            cause: self.cause,
            source: self.source,
            is_releasing: false,
            failures: 0,
            is_late: false,
        }
        .enter()
    }

    fn on_act_done(mut self, outcome: ActOutcome, now: Now) -> Step {
        let again = self.act.again;
        self.act = Act { ended_at: now.mono, ..Act::default() };
        if again {
            return self.restart_pass();
        }
        self.retry.pass_ended();
        match outcome {
            ActOutcome::Progressed | ActOutcome::Settled | ActOutcome::PodCompleted => {
                self.stay(vec![WorkerEffect::Observe])
            }
            ActOutcome::Failed { retry_after: wished } => {
                let delay = wished.max(retry_after(self.retry.failures));
                self.stay(vec![WorkerEffect::Observe, WorkerEffect::WakeIn(delay)])
            }
        }
    }

    /// Starts a pass, or has the one in flight end first.
    fn restart_pass(mut self) -> Step {
        if self.act.in_flight {
            self.act.again = true;
            return self.stay(vec![WorkerEffect::CancelAct]);
        }
        self.act.in_flight = true;
        let pass =
            WorkerEffect::TerminatePass { pod: self.pod.clone(), grace: self.grace, cause: self.cause };
        self.stay(vec![pass])
    }

    const fn stay(self, effects: Vec<WorkerEffect>) -> Step {
        (WorkerState::Terminating(self), effects)
    }
}

impl Terminated {
    fn enter(self) -> Step {
        let (state, mut effects) = self.release();
        effects.insert(0, WorkerEffect::PublishStage(PodStage::Terminated));
        (state, effects)
    }

    fn on_event(mut self, event: WorkerEvent) -> Step {
        match event {
            WorkerEvent::Desired(pod) => {
                match self.source {
                    Source::Listed => self.pod = Some(pod),
                    Source::Gone | Source::AddedAgain(_) => self.source = Source::AddedAgain(pod),
                }
                self.stay(Vec::new())
            }
            WorkerEvent::Removed => {
                self.source = Source::Gone;
                self.stay(Vec::new())
            }
            WorkerEvent::Released { ok: true } => self.finish(),
            WorkerEvent::Released { ok: false } => {
                self.is_releasing = false;
                self.failures = self.failures.saturating_add(1);
                let delay = retry_after(self.failures);
                self.stay(vec![WorkerEffect::WakeIn(delay)])
            }
            WorkerEvent::Wake if !self.is_releasing => self.release(),
            WorkerEvent::Observed { stopped, .. } => {
                self.is_late = !stopped;
                self.stay(Vec::new())
            }
            WorkerEvent::Wake | WorkerEvent::Kill { .. } | WorkerEvent::ActDone(_) => self.stay(Vec::new()),
        }
    }

    fn release(mut self) -> Step {
        self.is_releasing = true;
        let pod = self.pod.clone();
        self.stay(vec![WorkerEffect::ReleaseResources { pod }])
    }

    fn finish(self) -> Step {
        let mut effects = vec![WorkerEffect::PublishStage(PodStage::Finished)];
        let remains = match self.source {
            Source::AddedAgain(_) => {
                effects.push(WorkerEffect::StartAgain);
                FinishedState::PassedOn
            }
            Source::Gone => {
                effects.push(WorkerEffect::Forget);
                FinishedState::Removed
            }
            Source::Listed => FinishedState::Kept,
        };
        let Self { identity, pod, cause, is_late, .. } = self;
        let mut finished = Finished { identity, pod, cause, remains, late: LateStop::None };
        if is_late && remains == FinishedState::Kept {
            effects.push(finished.stop_late(StopRetry::default()));
        }
        (WorkerState::Finished(finished), effects)
    }

    const fn stay(self, effects: Vec<WorkerEffect>) -> Step {
        (WorkerState::Terminated(self), effects)
    }
}

impl Finished {
    fn on_event(mut self, event: WorkerEvent, now: Now) -> Step {
        let effects = match (event, self.remains) {
            (WorkerEvent::Removed, FinishedState::Kept) => {
                self.remains = FinishedState::Removed;
                self.forget()
            }
            (WorkerEvent::Desired(_), FinishedState::Removed) => vec![WorkerEffect::Hide],
            (WorkerEvent::Observed { stopped, taken_at }, FinishedState::Kept) => {
                self.on_observed(stopped, taken_at, now.mono)
            }
            (WorkerEvent::Wake, FinishedState::Kept) => self.on_wake(now.mono),
            (WorkerEvent::ActDone(_), _) => self.on_act_done(now.mono),
            (WorkerEvent::Released { .. }, _) if self.late == LateStop::Releasing => {
                // What is left of it now is a cgroup, which housekeeping removes.
                self.late = LateStop::None;
                if self.remains == FinishedState::Removed { self.forget() } else { Vec::new() }
            }
            (
                WorkerEvent::Desired(_)
                | WorkerEvent::Removed
                | WorkerEvent::Kill { .. }
                | WorkerEvent::Observed { .. }
                | WorkerEvent::Wake
                | WorkerEvent::Released { .. },
                _,
            ) => Vec::new(),
        };
        (WorkerState::Finished(self), effects)
    }

    /// Records are removed once nothing else of this worker is under way.
    fn forget(&self) -> Vec<WorkerEffect> {
        match self.late {
            LateStop::Stopping { act: Act { in_flight: true, .. }, .. } | LateStop::Releasing => Vec::new(),
            LateStop::None | LateStop::Stopping { .. } => vec![WorkerEffect::Forget],
        }
    }

    fn on_observed(&mut self, stopped: bool, taken_at: MonoTime, now: MonoTime) -> Vec<WorkerEffect> {
        match &mut self.late {
            LateStop::None if !stopped => vec![self.stop_late(StopRetry::default())],
            LateStop::Stopping { act, retry } if !act.in_flight && taken_at >= act.ended_at => {
                if !stopped {
                    return vec![WorkerEffect::WakeIn(retry.delay(now))];
                }
                self.late = LateStop::Releasing;
                vec![WorkerEffect::ReleaseResources { pod: self.pod.clone() }]
            }
            LateStop::None | LateStop::Stopping { .. } | LateStop::Releasing => Vec::new(),
        }
    }

    fn on_wake(&mut self, now: MonoTime) -> Vec<WorkerEffect> {
        let LateStop::Stopping { act: Act { in_flight: false, .. }, retry } = self.late else {
            return Vec::new();
        };
        match retry.remaining(now) {
            Some(remaining) => vec![WorkerEffect::WakeIn(remaining)],
            None => vec![self.stop_late(retry)],
        }
    }

    fn on_act_done(&mut self, now: MonoTime) -> Vec<WorkerEffect> {
        let LateStop::Stopping { act, retry } = &mut self.late else { return Vec::new() };
        *act = Act { ended_at: now, ..Act::default() };
        retry.pass_ended();
        if self.remains == FinishedState::Removed { self.forget() } else { vec![WorkerEffect::Observe] }
    }

    fn stop_late(&mut self, retry: StopRetry) -> WorkerEffect {
        self.late = LateStop::Stopping { act: Act { in_flight: true, ..Act::default() }, retry };
        WorkerEffect::TerminatePass { pod: self.pod.clone(), grace: GracePeriod::MIN, cause: self.cause }
    }
}

const fn is_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests;
