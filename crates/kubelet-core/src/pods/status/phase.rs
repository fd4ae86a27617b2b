//! The phase of a pod, with the reason and message that belong to it.
//!
//! The phase is computed, held back or kept only here. Container states are the input.

use std::fmt;

use base_core::pod_kind::is_static_pod;
use model::containers::{ContainerRef, init_containers, regular_containers};
use model::k8s::{ContainerStateTerminated, ContainerStatus, PodStatus};
use model::{ContainerKind, ContainerObservation, SandboxState};

use super::containers::{returns_with_all, will_restart};
use super::{ContainerStatuses, StatusInputs, TerminalReason};
use crate::pods::deadline;
use crate::pods::restart::{has_failed, starts_again};
use base_core::pod_stage::PodStage;

#[cfg(test)]
mod tests;

/// `status.phase`. The kubelet never reports `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// The phase in the API, if it is one that the kubelet reports.
    #[must_use]
    pub fn parse(phase: &str) -> Option<Self> {
        match phase {
            "Pending" => Some(Self::Pending),
            "Running" => Some(Self::Running),
            "Succeeded" => Some(Self::Succeeded),
            "Failed" => Some(Self::Failed),
            _ => None,
        }
    }

    /// Nothing follows this phase.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed => true,
            Self::Pending | Self::Running => false,
        }
    }

    pub(super) fn of(status: Option<&PodStatus>) -> Option<Self> {
        Self::parse(status?.phase.as_deref()?)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(super) struct PhaseVerdict {
    pub(super) phase: Phase,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

/// The phase to report. A reported terminal phase stays, and a new one waits for the containers.
pub(super) fn compute_phase(inputs: &StatusInputs<'_>, statuses: &ContainerStatuses) -> PhaseVerdict {
    let in_api = inputs.in_source;
    let ended = [in_api, inputs.previous].into_iter().find_map(|reported| {
        Phase::of(reported).filter(|phase| phase.is_terminal()).map(|phase| (phase, reported))
    });
    if let Some((phase, reported)) = ended {
        return unchanged(phase, &[inputs.previous, reported]);
    }
    let last = inputs.last_status();
    let phase = phase_now(inputs, statuses);
    if phase.is_terminal() && inputs.may_run() {
        return unchanged(Phase::of(last).unwrap_or(Phase::Pending), &[last, in_api]);
    }
    if let Some(why) = inputs.terminal.filter(|_| phase == Phase::Failed) {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        return PhaseVerdict { phase, reason: text(&why.reason), message: text(&why.message) };
    }
    if Phase::of(last) == Some(phase) {
        return unchanged(phase, &[last, in_api]);
    }
    PhaseVerdict { phase, reason: None, message: None }
}

/// The phase that the conditions follow. It does not wait until nothing runs any more, and a pod that never ran is not
/// Failed for them: the Go kubelet generates the conditions first, and corrects the phase afterwards.
pub(super) fn compute_condition_phase(inputs: &StatusInputs<'_>, statuses: &ContainerStatuses) -> Phase {
    let reported = [inputs.in_source, inputs.previous];
    if let Some(ended) =
        reported.into_iter().find_map(|reported| Phase::of(reported).filter(|p| p.is_terminal()))
    {
        return ended;
    }
    let is_past_deadline = |why: &TerminalReason| why.reason == deadline::REASON;
    let ends_now = inputs.terminal.is_some_and(|why| is_past_deadline(why) || !inputs.may_run());
    if ends_now || inputs.is_rejected {
        return Phase::Failed;
    }
    Tally::of(inputs, statuses).phase(inputs.is_stopped_for_good())
}

/// Reason and message belong to the phase: those reported first with it stay.
fn unchanged(phase: Phase, reported: &[Option<&PodStatus>]) -> PhaseVerdict {
    let first = |field: fn(&PodStatus) -> Option<&String>| {
        reported.iter().flatten().filter_map(|s| field(s)).find(|text| !text.is_empty()).cloned()
    };
    PhaseVerdict { phase, reason: first(|s| s.reason.as_ref()), message: first(|s| s.message.as_ref()) }
}

fn phase_now(inputs: &StatusInputs<'_>, statuses: &ContainerStatuses) -> Phase {
    if inputs.terminal.is_some() {
        return Phase::Failed;
    }
    let phase = Tally::of(inputs, statuses).phase(inputs.is_stopped_for_good());
    // One that has terminated without a final phase was stopped before it could end by itself.
    let was_stopped = inputs.is_terminated() && !phase.is_terminal() && !is_static_pod(inputs.pod);
    if inputs.is_rejected || was_stopped { Phase::Failed } else { phase }
}

/// A regular container was created in the current sandbox: one of an earlier sandbox proves nothing about the init chain of
/// this one.
fn has_initialized(inputs: &StatusInputs<'_>, statuses: &ContainerStatuses) -> bool {
    let Some(observed) = inputs.observed else { return statuses.is_initialized() };
    let Some(sandbox) = observed.sandboxes.first().filter(|s| s.state == SandboxState::Ready) else {
        return false;
    };
    let is_here = |c: &ContainerObservation| c.sandbox_id == sandbox.id;
    regular_containers(inputs.pod).any(|c| observed.instances(c.name()).any(is_here))
}

/// The plan starts the container again, whatever its exit code: the pod is not completed.
fn will_return(inputs: &StatusInputs<'_>, container: &ContainerRef<'_>) -> bool {
    let is_synced = !inputs.is_rejected && inputs.stage == PodStage::Syncing;
    let newest = inputs.observed.filter(|_| is_synced).and_then(|o| o.newest(container.name()));
    newest.is_some_and(|newest| starts_again(inputs.pod, container, newest, inputs.memory, inputs.features))
}

/// Numbers of containers by state.
#[derive(Debug, Default)]
struct Tally {
    init_pending: usize,
    init_failed_for_good: usize,
    sidecars_pending: usize,
    /// Regular containers and sidecars that wait for their first start.
    waiting: usize,
    running: usize,
    /// Regular containers that ran and do not run now.
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
    is_initialized: bool,
}

impl Tally {
    fn of(inputs: &StatusInputs<'_>, statuses: &ContainerStatuses) -> Self {
        let mut tally = Self { is_initialized: has_initialized(inputs, statuses), ..Self::default() };
        let by_name = statuses.by_name();
        for container in init_containers(inputs.pod).chain(regular_containers(inputs.pod)) {
            let standing = Standing::of(by_name.get(container.name()).copied());
            match container.kind {
                ContainerKind::Init => tally.add_init(inputs, &container, &standing),
                ContainerKind::Sidecar => tally.add_sidecar(&standing),
                ContainerKind::Regular => tally.add_regular(inputs, &container, &standing),
                // They serve debugging; the pod neither waits for them nor ends with them.
                ContainerKind::Ephemeral => {}
            }
        }
        tally
    }

    fn add_init(&mut self, inputs: &StatusInputs<'_>, container: &ContainerRef<'_>, standing: &Standing<'_>) {
        match standing {
            Standing::Running { .. } | Standing::NeverStarted => self.init_pending += 1,
            Standing::Ended(end) | Standing::BetweenRuns(end) => {
                if has_failed(container.kind, (*end).into()) && !will_restart(inputs, container, end) {
                    self.init_failed_for_good += 1;
                }
            }
            Standing::RestartingWithAll => {}
        }
    }

    fn add_sidecar(&mut self, standing: &Standing<'_>) {
        match standing {
            Standing::Running { started } => {
                self.running += 1;
                self.sidecars_pending += usize::from(!started);
            }
            Standing::NeverStarted => {
                self.waiting += 1;
                self.sidecars_pending += 1;
            }
            // An ended sidecar comes back while others run, and is not missed when they are done.
            Standing::Ended(_) | Standing::BetweenRuns(_) | Standing::RestartingWithAll => {}
        }
    }

    fn add_regular(
        &mut self,
        inputs: &StatusInputs<'_>,
        container: &ContainerRef<'_>,
        standing: &Standing<'_>,
    ) {
        match standing {
            Standing::Running { .. } => self.running += 1,
            Standing::NeverStarted => self.waiting += 1,
            Standing::Ended(end) | Standing::BetweenRuns(end) => {
                self.stopped += 1;
                let returns = will_return(inputs, container);
                self.stopped_for_good += usize::from(!returns && !will_restart(inputs, container, end));
                let is_over = matches!(standing, Standing::Ended(_));
                self.succeeded += usize::from(is_over && end.exit_code == 0);
            }
            Standing::RestartingWithAll => self.stopped += 1,
        }
    }

    fn phase(&self, is_stopped_for_good: bool) -> Phase {
        if self.init_failed_for_good > 0 {
            return Phase::Failed;
        }
        let is_initializing = self.init_pending > 0 || (self.sidecars_pending > 0 && !self.is_initialized);
        if is_initializing || self.waiting > 0 {
            return Phase::Pending;
        }
        if self.running > 0 {
            return Phase::Running;
        }
        if self.stopped == 0 {
            return Phase::Pending;
        }
        if !is_stopped_for_good && self.stopped_for_good < self.stopped {
            return Phase::Running;
        }
        if self.succeeded == self.stopped { Phase::Succeeded } else { Phase::Failed }
    }
}

/// What a container status means for the phase.
enum Standing<'a> {
    NeverStarted,
    Running {
        started: bool,
    },
    Ended(&'a ContainerStateTerminated),
    /// Ended, and shown as waiting for its next start.
    BetweenRuns(&'a ContainerStateTerminated),
    /// Ended to begin again together with all others, whatever its policy.
    RestartingWithAll,
}

impl<'a> Standing<'a> {
    fn of(status: Option<&'a ContainerStatus>) -> Self {
        let Some(status) = status else { return Self::NeverStarted };
        let state = status.state.as_ref();
        if state.is_some_and(|s| s.running.is_some()) {
            return Self::Running { started: status.started == Some(true) };
        }
        if let Some(end) = state.and_then(|s| s.terminated.as_ref()) {
            return Self::Ended(end);
        }
        if returns_with_all(status) {
            return Self::RestartingWithAll;
        }
        match status.last_state.as_ref().and_then(|s| s.terminated.as_ref()) {
            Some(end) => Self::BetweenRuns(end),
            None => Self::NeverStarted,
        }
    }
}
