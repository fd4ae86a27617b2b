//! What to do next for a pod: the one decision that turns a spec and an observation into a [`PodPlan`].
//!
//! ```text
//! sandbox usable? --no--> wanted? --yes--> CreateSandbox          (sandbox.rs; a pod whose cgroup is gone has none)
//!       | yes                `--no---> Teardown or Settled
//! a rule restarts all? --yes--> Converge: kill and remove         (restart_all.rs)
//!       | no
//! init chain --failed--> Teardown                                 (init.rs)
//!       | done
//! regular containers --all ended for good--> Teardown             (regular.rs)
//!       | else
//! Converge, or Settled when nothing is left to do
//! ```
//! Level-triggered: after each step the pod is observed and decided about again, so every case must follow from
//! the observation alone. There is no I/O and no state, and no step kills and starts a container of the same name.

mod init;
mod regular;
mod restart_all;
mod sandbox;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::Features;
use model::cgroup::CgroupState;
use model::containers::{self, ContainerRef, ContainersByName};
use model::k8s::{Pod, Probe};
use model::{ContainerKind, ContainerObservation, ContainerState, Now, PodObservation, SandboxId};

pub(crate) use sandbox::find_usable;

use super::backoff;
use super::memory::PodMemory;
use super::plan::{
    KillContainer, KillReason, PodPlan, PodStep, RemoveContainer, SandboxReason, StartContainer, StartReason,
    TeardownReason, Waiting, WaitingReason,
};
use super::resize::changes::{Change, ContainerChange, PodResize, change_of, is_pod_level_due};
use super::restart::{AfterExit, after_exit, has_changed};
use crate::pods::probe::results::Verdict;

/// The inputs of the decision.
#[derive(Clone, Copy, Debug)]
pub struct PodInputs<'a> {
    pub pod: &'a Pod,
    pub observed: &'a PodObservation,
    pub memory: &'a PodMemory,
    /// The state of the pod's cgroup; also up to date if it is unknown or pods have no cgroups.
    pub cgroup: CgroupState,
    pub features: Features,
    pub now: Now,
}

/// Decides the next step for a pod that should run. Pods that are to end go through [`super::termination`] instead.
#[must_use]
pub fn compute_pod_actions(inputs: &PodInputs<'_>) -> PodPlan {
    match find_usable(inputs.pod, inputs.observed) {
        Err(why) => sandbox::plan_without(inputs, why),
        Ok(_) if inputs.cgroup == CgroupState::Missing => {
            sandbox::plan_without(inputs, SandboxReason::CgroupGone)
        }
        Ok(sandbox) => {
            let mut plan = plan_within(inputs, &sandbox.id);
            if plan.step == PodStep::Settled && inputs.cgroup == CgroupState::Changed {
                plan.step = PodStep::RepairCgroup;
            }
            plan
        }
    }
}

fn plan_within(inputs: &PodInputs<'_>, current: &SandboxId) -> PodPlan {
    let mut draft = Draft::new(inputs, current);
    if restart_all::plan(&mut draft) {
        return draft.into_plan();
    }
    draft.kill_strays();
    draft.start_ephemeral();
    match init::advance(&mut draft) {
        init::Progress::Failed => teardown(inputs, TeardownReason::InitFailed),
        init::Progress::Running => draft.into_plan(),
        init::Progress::Done if regular::advance(&mut draft) => draft.into_plan(),
        init::Progress::Done => teardown(inputs, TeardownReason::Completed),
    }
}

/// Stops whatever still runs. Once nothing does, there is nothing to do.
fn teardown(inputs: &PodInputs<'_>, why: TeardownReason) -> PodPlan {
    let kill = kill_everything(inputs, KillReason::PodFinished);
    let stop: Vec<SandboxId> = inputs.observed.ready_sandboxes().map(|s| s.id.clone()).collect();
    let is_over = kill.is_empty() && stop.is_empty();
    let step = if is_over { PodStep::Settled } else { PodStep::Teardown { kill, stop, why } };
    PodPlan { step, waiting: Vec::new(), wake_at: None }
}

/// Everything that may run: first the containers that stop in parallel, then the sidecars from last to first.
fn kill_everything(inputs: &PodInputs<'_>, why: KillReason) -> Vec<KillContainer> {
    let mut doomed: Vec<&ContainerObservation> =
        inputs.observed.containers.iter().filter(|c| may_run(c)).collect();
    let turns = StopTurns::of(inputs.pod);
    doomed.sort_by_key(|c| turns.of_container(&c.name));
    doomed.into_iter().map(|c| kill(c, why, None)).collect()
}

/// When a container stops: turn 0 for all but sidecars, which follow in reverse order.
pub(super) struct StopTurns<'a>(BTreeMap<&'a str, usize>);

impl<'a> StopTurns<'a> {
    pub(super) fn of(pod: &'a Pod) -> Self {
        let sidecars = containers::init_containers(pod).filter(|c| c.kind == ContainerKind::Sidecar).rev();
        Self(sidecars.enumerate().map(|(index, sidecar)| (sidecar.name(), index + 1)).collect())
    }

    pub(super) fn of_container(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or(0)
    }
}

pub(super) const fn may_run(container: &ContainerObservation) -> bool {
    match container.state {
        ContainerState::Running | ContainerState::Unknown => true,
        ContainerState::Created | ContainerState::Exited => false,
    }
}

fn kill(container: &ContainerObservation, why: KillReason, grace: Option<Duration>) -> KillContainer {
    KillContainer { id: container.id.clone(), name: container.name.clone(), why, grace }
}

/// The step under construction, with the queries that all parts use.
struct Draft<'a> {
    inputs: &'a PodInputs<'a>,
    sandbox: &'a SandboxId,
    kill: Vec<KillContainer>,
    remove: Vec<RemoveContainer>,
    resize: Vec<ContainerChange>,
    start: Vec<StartContainer>,
    waiting: Vec<Waiting>,
}

impl<'a> Draft<'a> {
    const fn new(inputs: &'a PodInputs<'a>, sandbox: &'a SandboxId) -> Self {
        Self {
            inputs,
            sandbox,
            kill: Vec::new(),
            remove: Vec::new(),
            resize: Vec::new(),
            start: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn into_plan(self) -> PodPlan {
        let wake_at = self.waiting.iter().filter_map(|w| match w.reason {
            WaitingReason::CrashLoopBackOff { until, .. } => Some(until),
            WaitingReason::RestartingAllContainers => None,
        });
        let wake_at = wake_at.min();
        let resize = self.resize();
        let is_idle =
            self.kill.is_empty() && self.remove.is_empty() && resize.is_none() && self.start.is_empty();
        let step = if is_idle {
            PodStep::Settled
        } else {
            PodStep::Converge {
                sandbox: self.sandbox.clone(),
                kill: self.kill,
                remove: self.remove,
                resize,
                start: self.start,
            }
        };
        PodPlan { step, waiting: self.waiting, wake_at }
    }

    /// The resize of the pod, once all containers are dead that have to end first. A container that starts finds the limits of
    /// its pod as they are to be.
    fn resize(&self) -> Option<PodResize> {
        let PodInputs { pod, memory, cgroup, features, .. } = self.inputs;
        let may_start_too_small =
            memory.resize.is_in_progress() && *cgroup == CgroupState::Changed && !self.start.is_empty();
        let is_due = !self.resize.is_empty()
            || is_pod_level_due(pod, &memory.actuated, *features)
            || may_start_too_small;
        (is_due && self.kill.is_empty()).then(|| PodResize { containers: self.resize.clone() })
    }

    fn newest(&self, name: &str) -> Option<&'a ContainerObservation> {
        self.inputs.observed.newest(name)
    }

    /// The newest instance, if it belongs to the sandbox in use.
    fn newest_here(&self, name: &str) -> Option<&'a ContainerObservation> {
        self.newest(name).filter(|c| c.sandbox_id == *self.sandbox)
    }

    fn after_exit(&self, container: &ContainerRef<'_>, instance: &ContainerObservation) -> AfterExit {
        after_exit_of(self.inputs, container, instance)
    }

    /// Kills unusable instances of any kind: names that the spec does not contain, leftovers of another sandbox, older
    /// duplicates, and instances in an unknown state.
    fn kill_strays(&mut self) {
        // A debug container starts once: killing one that may still run would end it for good.
        let in_spec = ContainersByName::of(self.inputs.pod);
        let is_ephemeral = |name: &str| in_spec.get(name).is_some_and(|c| c.kind == ContainerKind::Ephemeral);
        for container in self.inputs.observed.containers.iter().filter(|c| may_run(c)) {
            let is_newest = self.newest(&container.name).is_some_and(|newest| newest.id == container.id);
            let why = if in_spec.get(&container.name).is_none() {
                KillReason::NotInSpec
            } else if container.sandbox_id != *self.sandbox {
                KillReason::SandboxReplaced
            } else if !is_newest {
                KillReason::Superseded
            } else if container.state == ContainerState::Unknown && !is_ephemeral(&container.name) {
                KillReason::UnknownState
            } else {
                continue;
            };
            self.kill.push(kill(container, why, None));
        }
    }

    /// Ephemeral containers start once, whatever the init chain is doing.
    fn start_ephemeral(&mut self) {
        for container in containers::ephemeral_containers(self.inputs.pod) {
            if self.newest(container.name()).is_none() {
                self.start(&container, StartReason::NeverStarted);
            }
        }
    }

    /// Keeps a running container; returns why it must end nevertheless.
    fn keep_running(
        &mut self,
        container: &ContainerRef<'_>,
        instance: &ContainerObservation,
    ) -> Option<(KillReason, Option<Duration>)> {
        if let Some(reason) = self.reason_to_kill(container, instance) {
            return Some(reason);
        }
        let PodInputs { pod, memory, features, .. } = self.inputs;
        match change_of(pod, container, instance, &memory.actuated, *features)? {
            Change::Restart => Some((KillReason::ResizeRequiresRestart, None)),
            Change::Update(change) => {
                self.resize.push(change);
                None
            }
        }
    }

    /// An init container that runs to completion is not restarted for its resources.
    fn resize_init_container(&mut self, container: &ContainerRef<'_>, instance: &ContainerObservation) {
        let PodInputs { pod, memory, features, .. } = self.inputs;
        if let Some(Change::Update(change)) = change_of(pod, container, instance, &memory.actuated, *features)
        {
            self.resize.push(change);
        }
    }

    /// A reason to stop a running container that would otherwise go on.
    fn reason_to_kill(
        &self,
        container: &ContainerRef<'_>,
        instance: &ContainerObservation,
    ) -> Option<(KillReason, Option<Duration>)> {
        if has_changed(container, instance) {
            return Some((KillReason::SpecChanged, None));
        }
        let verdicts = self.inputs.memory.verdicts.get(&instance.id);
        if verdicts.liveness == Some(Verdict::Failure) {
            return Some((KillReason::LivenessFailed, probe_grace(container.liveness_probe())));
        }
        if verdicts.startup == Some(Verdict::Failure) {
            return Some((KillReason::StartupFailed, probe_grace(container.startup_probe())));
        }
        None
    }

    fn kill_instance(&mut self, instance: &ContainerObservation, why: KillReason, grace: Option<Duration>) {
        self.kill.push(kill(instance, why, grace));
    }

    /// Starts a container that has no instance in this sandbox.
    fn start_first(&mut self, container: &ContainerRef<'_>) {
        let existed = self.newest(container.name()).is_some();
        self.start(container, if existed { StartReason::NewSandbox } else { StartReason::NeverStarted });
    }

    /// Starts a container, or returns what it waits for: the exit of a running instance, or its back-off.
    fn start(&mut self, container: &ContainerRef<'_>, why: StartReason) {
        let name = container.name();
        if self.inputs.observed.instances(name).any(may_run) {
            return;
        }
        let shared_name: Arc<str> = self.newest(name).map_or_else(|| Arc::from(name), |c| c.name.clone());
        if let Some(delay) = pending_restart(self.inputs, container) {
            let reason = WaitingReason::CrashLoopBackOff { delay: delay.delay, until: delay.until };
            self.waiting.push(Waiting { container: shared_name, reason });
            return;
        }
        self.start.push(StartContainer {
            name: shared_name,
            kind: container.kind,
            restart_count: next_restart_count(self.inputs, name),
            why,
        });
    }
}

fn after_exit_of(
    inputs: &PodInputs<'_>,
    container: &ContainerRef<'_>,
    instance: &ContainerObservation,
) -> AfterExit {
    let memory = inputs.memory;
    after_exit(inputs.pod, container, instance, memory, inputs.features)
}

/// How long the container must still wait before it may start again.
fn pending_restart(
    inputs: &PodInputs<'_>,
    container: &ContainerRef<'_>,
) -> Option<base_core::backoff::Delay> {
    let (_, finished_at) = backoff::newest_exited(inputs.observed, container.name())?;
    let (key, now) = (backoff::restart_key(inputs.pod, container), inputs.now);
    if backoff::was_set_back(finished_at, now) {
        // The end has no place on the monotonic clock, but the restart before it has.
        return inputs.memory.backoff.pending(&key, now.mono);
    }
    let failed_at = backoff::mono_of_past(finished_at, now);
    inputs.memory.backoff.pending_after(&key, failed_at, now.mono)
}

/// One more than the last known instance, or than the newest log file of one that the runtime no longer has
/// (docs/behaviour/pod-lifecycle.md).
fn next_restart_count(inputs: &PodInputs<'_>, name: &str) -> u32 {
    let last = inputs.observed.newest(name).map(|c| c.record.restart_count);
    last.or_else(|| inputs.memory.log_restarts.get(name).copied()).map_or(0, |count| count.saturating_add(1))
}

fn probe_grace(probe: Option<&Probe>) -> Option<Duration> {
    probe?.termination_grace_period_seconds.map(model::time::wait_of)
}
