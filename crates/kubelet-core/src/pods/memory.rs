//! What a pod worker remembers of its pod beyond the last observation: probe verdicts, back-off, what it killed and why,
//! which step failed, what the status shows until a pass can be observed. The plan of actions and the status read it as one
//! argument.
//!
//! Owns how the memory changes with each step and observation. Never decides what to do next ([`super::actions`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::k8s::Pod;
use model::{ContainerId, MonoTime, Now, PodObservation};
use resources_core::amounts::Actuated;

use super::backoff::{record_step, step_retry_delay};
use super::plan::{KillReason, PodStep};
use super::resize::state::ResizeState;
use super::waiting::{WaitingContainers, WaitingState};
use crate::pods::probe::results::ProbeVerdicts;
use base_core::backoff::BackoffTable;

/// After a restart of the kubelet it starts empty, except for what the status and the logs on disk hold.
#[derive(Clone, Debug)]
pub struct PodMemory {
    /// Verdicts are kept while their instance is observed, dead ones included: an exit after a failed liveness probe
    /// restarts for that reason.
    pub verdicts: ProbeVerdicts,
    /// Crash-loop delays; see [`record_step`] for what is counted.
    pub backoff: BackoffTable,
    /// The highest `N` of `/var/log/pods/…/<container>/N.log`, by container name.
    pub log_restarts: BTreeMap<String, u32>,
    /// The instances that earlier steps killed, and why.
    pub killed: BTreeMap<ContainerId, KillReason>,
    /// Why the last start of a container failed, or its next one waits.
    pub waiting: WaitingContainers,
    /// What the containers were started with, or resized to.
    pub actuated: Actuated,
    pub resize: ResizeState,
    /// Containers whose postStart hook runs: they run, but are not shown as running yet.
    pub starting: BTreeSet<String>,
    /// The last step only killed containers, and the next one starts them again.
    is_replacing: bool,
    /// Boxed, because it is absent most of the time.
    failing: Option<Box<FailingStep>>,
    before_pass: Option<BeforePass>,
}

/// What the status shows while a pass is under way, and until an observation shows what the pass did. Clients do not see
/// states between the calls of a pass: a container that is created but not started, one that was killed to be replaced, a pod
/// of which some containers have been stopped.
#[derive(Clone, Debug)]
struct BeforePass {
    observed: Arc<PodObservation>,
    waiting: WaitingContainers,
}

/// A step that failed, and when it is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FailingStep {
    step: PodStep,
    retries: u32,
    until: MonoTime,
}

impl PodMemory {
    #[must_use]
    pub fn new(backoff: BackoffTable) -> Self {
        Self {
            verdicts: ProbeVerdicts::default(),
            backoff,
            log_restarts: BTreeMap::new(),
            killed: BTreeMap::new(),
            waiting: WaitingContainers::default(),
            actuated: Actuated::default(),
            resize: ResizeState::default(),
            starting: BTreeSet::new(),
            is_replacing: false,
            failing: None,
            before_pass: None,
        }
    }

    /// Drops what concerns instances that the runtime does not have any more.
    pub fn observe(&mut self, observed: &PodObservation) {
        let ids: BTreeSet<&ContainerId> = observed.containers.iter().map(|c| &c.id).collect();
        self.killed.retain(|id, _| ids.contains(id));
        self.verdicts.retain(|id| ids.contains(id));
    }

    /// A step of the plan begins. One that starts again what the step before has killed belongs to the same pass.
    pub fn begin_step(&mut self, pod: &Pod, observed: &Arc<PodObservation>, step: &PodStep, now: Now) {
        if !self.is_replacing || self.before_pass.is_none() {
            self.hold(observed);
        }
        self.is_replacing = false;
        record_step(&mut self.backoff, pod, observed, step, now);
        let kills = match step {
            PodStep::Settled | PodStep::RepairCgroup => return,
            PodStep::CreateSandbox { kill, .. }
            | PodStep::Converge { kill, .. }
            | PodStep::Teardown { kill, .. } => kill,
        };
        self.killed.extend(kills.iter().map(|kill| (kill.id.clone(), kill.why)));
        self.record_kept_logs(step, observed);
    }

    /// All containers are stopped from here on.
    pub fn begin_termination(&mut self, observed: &Arc<PodObservation>) {
        self.is_replacing = false;
        self.hold(observed);
    }

    fn hold(&mut self, observed: &Arc<PodObservation>) {
        self.before_pass = Some(BeforePass { observed: observed.clone(), waiting: self.waiting.clone() });
    }

    /// The latest observation shows what the last pass did. If that only killed containers, the next pass belongs to it.
    pub fn pass_observed(&mut self) {
        if !self.is_replacing {
            self.before_pass = None;
        }
    }

    /// The status follows the observation again, whatever the last pass did.
    pub fn end_pass(&mut self) {
        self.before_pass = None;
        self.is_replacing = false;
    }

    /// The observation that the status shows.
    #[must_use]
    pub fn shown_observation<'a>(&'a self, latest: Option<&'a PodObservation>) -> Option<&'a PodObservation> {
        self.before_pass.as_ref().map_or(latest, |before| Some(&before.observed))
    }

    /// The waiting states that the status shows.
    #[must_use]
    pub fn shown_waiting(&self) -> &WaitingContainers {
        self.before_pass.as_ref().map_or(&self.waiting, |before| &before.waiting)
    }

    /// Where a container is removed and its logs stay, its next instance counts on from them.
    fn record_kept_logs(&mut self, step: &PodStep, observed: &PodObservation) {
        let PodStep::Converge { remove, .. } = step else { return };
        for removal in remove.iter().filter(|removal| removal.why.keeps_logs()) {
            let Some(instance) = observed.container(&removal.id) else { continue };
            let highest = self.log_restarts.entry(removal.name.to_string()).or_default();
            *highest = (*highest).max(instance.record.restart_count);
        }
    }

    /// The step was carried out.
    pub fn step_succeeded(&mut self, step: Option<&PodStep>) {
        self.failing = None;
        self.is_replacing = step.is_some_and(only_kills);
    }

    /// The step failed: the same one waits for longer each time. Returns when it is tried next, unless `retry_at` is
    /// earlier.
    pub fn step_failed(
        &mut self,
        step: PodStep,
        retry_at: Option<MonoTime>,
        now: MonoTime,
        jitter: Duration,
    ) -> MonoTime {
        self.is_replacing = false;
        let before = self.failing.take().filter(|failing| step.repeats(&failing.step));
        let retries = before.map_or(0, |failing| failing.retries).saturating_add(1);
        let next = now + step_retry_delay(retries, jitter);
        let until = retry_at.map_or(next, |at| at.min(next));
        self.failing = Some(Box::new(FailingStep { step, retries, until }));
        until
    }

    /// When this step may be tried again, if it failed and nothing has changed since.
    #[must_use]
    pub fn retry_at(&self, step: &PodStep) -> Option<MonoTime> {
        self.failing.as_ref().filter(|failing| step.repeats(&failing.step)).map(|failing| failing.until)
    }

    /// Something has changed that the failed step may need: it is tried again at once.
    pub fn forget_failure(&mut self) {
        self.failing = None;
    }

    pub fn start_failed(&mut self, container: &str, state: WaitingState, now: MonoTime) {
        self.starting.remove(container);
        self.waiting.set(container, state, now);
    }

    pub fn started(&mut self, container: &str) {
        self.starting.remove(container);
        self.waiting.remove(container);
    }
}

/// The step kills containers and leaves it to the next one to start them again.
fn only_kills(step: &PodStep) -> bool {
    matches!(
        step,
        PodStep::Converge { kill, remove, start, .. }
            if !kill.is_empty() && remove.is_empty() && start.is_empty()
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::pods::fixture::case;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::ZERO + Duration::from_secs(seconds)
    }

    fn memory() -> PodMemory {
        case("main:a | ").memory
    }

    #[test]
    fn repeated_failure_of_one_step_is_retried_after_1_s_and_then_after_10_s() {
        let mut memory = memory();
        let step = PodStep::RepairCgroup;
        assert_eq!(memory.retry_at(&step), None);
        let retries: Vec<MonoTime> =
            (0..3).map(|_| memory.step_failed(step.clone(), None, at(100), Duration::ZERO)).collect();
        assert_eq!(retries, [at(101), at(110), at(110)]);
        assert_eq!(memory.retry_at(&step), Some(at(110)));
        memory.forget_failure();
        assert_eq!(memory.retry_at(&step), None);
    }

    #[test]
    fn failed_step_is_retried_earlier_where_its_failure_says_when() {
        let mut memory = memory();
        let step = PodStep::RepairCgroup;
        memory.step_failed(step.clone(), None, at(100), Duration::ZERO);
        assert_eq!(memory.step_failed(step.clone(), Some(at(103)), at(101), Duration::ZERO), at(103));
        assert_eq!(memory.step_failed(step, Some(at(600)), at(103), Duration::ZERO), at(113));
    }

    #[test]
    fn success_ends_the_back_off_of_the_failed_step() {
        let mut memory = memory();
        memory.step_failed(PodStep::RepairCgroup, None, at(100), Duration::ZERO);
        memory.step_succeeded(Some(&PodStep::RepairCgroup));
        assert_eq!(memory.retry_at(&PodStep::RepairCgroup), None);
        assert_eq!(memory.step_failed(PodStep::RepairCgroup, None, at(200), Duration::ZERO), at(201));
    }

    #[test]
    fn killed_instances_are_remembered_until_they_are_no_longer_observed() {
        let mut case = case("main:a | sandbox a=running");
        let observed = case.observed.clone();
        let id = observed.containers[0].id.clone();
        case.memory.killed = BTreeMap::from([(id.clone(), KillReason::SpecChanged)]);
        case.memory.observe(&observed);
        assert!(case.memory.killed.contains_key(&id));
        let mut gone = observed;
        gone.containers.clear();
        case.memory.observe(&gone);
        assert!(case.memory.killed.is_empty());
    }

    fn waiting() -> WaitingState {
        WaitingState { reason: "RunContainerError".to_owned(), message: "no".to_owned() }
    }

    #[test]
    fn status_shows_the_pod_from_before_a_pass_until_an_observation_shows_the_pass() {
        let mut case = case("main:a | sandbox");
        let (before, after) = (Arc::new(case.observed.clone()), case.observed.clone());
        let step = case.plan().step;
        case.memory.begin_step(&case.pod, &before, &step, case.now);
        case.memory.start_failed("a", waiting(), at(1));
        case.memory.step_succeeded(Some(&step));
        assert!(std::ptr::eq(case.memory.shown_observation(Some(&after)).unwrap(), &*before));
        assert_eq!(case.memory.shown_waiting().get("a"), None);
        case.memory.pass_observed();
        assert!(std::ptr::eq(case.memory.shown_observation(Some(&after)).unwrap(), &after));
        assert_eq!(case.memory.shown_waiting().get("a"), Some(&waiting()));
    }

    #[test]
    fn pass_that_starts_what_the_last_one_killed_belongs_to_it() {
        let mut case = case("main:a | sandbox a=running(old)");
        let (before, killed) = (Arc::new(case.observed.clone()), Arc::new(case.observed.clone()));
        let step = case.plan().step;
        assert!(only_kills(&step), "{step:?}");
        let shows_the_first =
            |memory: &PodMemory| std::ptr::eq(memory.shown_observation(None).unwrap(), &*before);
        case.memory.begin_step(&case.pod, &before, &step, case.now);
        case.memory.step_succeeded(Some(&step));
        case.memory.pass_observed();
        assert!(shows_the_first(&case.memory), "killed, and not started again yet");
        case.memory.begin_step(&case.pod, &killed, &step, case.now);
        assert!(shows_the_first(&case.memory), "being started");
        case.memory.step_failed(step, None, at(1), Duration::ZERO);
        case.memory.pass_observed();
        assert!(case.memory.shown_observation(None).is_none(), "it failed, which the status shows");
    }

    #[test]
    fn termination_is_a_pass_of_its_own() {
        let mut case = case("main:a | sandbox a=running(old)");
        let (before, killed) = (Arc::new(case.observed.clone()), Arc::new(case.observed.clone()));
        let step = case.plan().step;
        case.memory.begin_step(&case.pod, &before, &step, case.now);
        case.memory.step_succeeded(Some(&step));
        case.memory.begin_termination(&killed);
        assert!(std::ptr::eq(case.memory.shown_observation(None).unwrap(), &*killed));
        case.memory.end_pass();
        assert!(case.memory.shown_observation(None).is_none());
    }

    #[test]
    fn container_that_starts_waits_no_longer() {
        let mut memory = memory();
        memory.starting.insert("a".to_owned());
        memory.start_failed("a", waiting(), at(1));
        assert_eq!((memory.waiting.get("a"), memory.starting.len()), (Some(&waiting()), 0));
        memory.started("a");
        assert_eq!(memory.waiting.get("a"), None);
    }
}
