//! Does a container that ended start again? (docs/behaviour/pod-lifecycle.md)
//!
//! Owns the order of the rules: first the reason that we killed it for, then the container's restart rules, then its
//! policy. A changed spec counts for running containers only, as in the Go kubelet: it makes us kill one. Never looks at
//! back-off or at other containers.

use config::Features;
use model::containers::{all_containers, spec_of};
use model::k8s::{ContainerRestartRule, ContainerStateTerminated, Pod};
use model::{ContainerKind, ContainerObservation, ContainerRef, ContainerState};

use super::hash::container_hash;
use super::memory::PodMemory;
use super::plan::{KillReason, RestartPolicy, StartReason};
use crate::pods::probe::results::Verdict;

/// The action of a rule.
const RESTART_ALL: &str = "RestartAllContainers";

/// What follows from the end of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExit {
    StaysDead,
    Restarts(StartReason),
    /// A rule asks to begin the whole pod again.
    RestartsAll {
        code: i32,
    },
}

/// How one run of a container ended, from the runtime or from a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End<'a> {
    pub code: i32,
    pub reason: &'a str,
}

impl<'a> From<&'a ContainerObservation> for End<'a> {
    fn from(instance: &'a ContainerObservation) -> Self {
        Self { code: instance.exit_code, reason: &instance.reason }
    }
}

impl<'a> From<&'a ContainerStateTerminated> for End<'a> {
    fn from(end: &'a ContainerStateTerminated) -> Self {
        Self { code: end.exit_code, reason: end.reason.as_deref().unwrap_or_default() }
    }
}

/// The restart policy that holds for one container.
#[must_use]
pub fn effective_policy(pod: &Pod, container: &ContainerRef<'_>, features: Features) -> RestartPolicy {
    let own = container.restart_policy().filter(|_| features.container_restart_rules);
    match container.kind {
        ContainerKind::Sidecar => RestartPolicy::Always,
        ContainerKind::Ephemeral => RestartPolicy::Never,
        ContainerKind::Init | ContainerKind::Regular => {
            RestartPolicy::parse(own.or(spec_of(pod).restart_policy.as_deref()))
        }
    }
}

/// Whether the container was created from another spec. One without a recorded hash counts as unchanged. Init
/// containers that run to completion are never re-run for a new image.
#[must_use]
pub fn has_changed(container: &ContainerRef<'_>, instance: &ContainerObservation) -> bool {
    match container.kind {
        ContainerKind::Sidecar | ContainerKind::Regular => {
            instance.record.hash.is_some_and(|hash| hash != container_hash(container))
        }
        ContainerKind::Init | ContainerKind::Ephemeral => false,
    }
}

/// An init container that exits 0 after the kernel killed one of its processes for memory did not do its work.
#[must_use]
pub fn has_failed(kind: ContainerKind, end: End<'_>) -> bool {
    end.code != 0 || kind == ContainerKind::Init && end.reason == "OOMKilled"
}

/// Decides about one exited instance.
#[must_use]
pub fn after_exit(
    pod: &Pod,
    container: &ContainerRef<'_>,
    instance: &ContainerObservation,
    memory: &PodMemory,
    features: Features,
) -> AfterExit {
    let policy = effective_policy(pod, container, features);
    match restart_after_kill(container.kind, instance, policy, memory) {
        Some(why) => AfterExit::Restarts(why),
        None => after_end(pod, container, instance.into(), features),
    }
}

/// Whether a running container that is killed for this reason is started again. Rules do not count: there is no exit
/// code yet.
#[must_use]
pub fn restarts_after_kill(
    pod: &Pod,
    container: &ContainerRef<'_>,
    why: KillReason,
    features: Features,
) -> bool {
    match why {
        KillReason::UnknownState if container.kind == ContainerKind::Init => {
            effective_policy(pod, container, features) != RestartPolicy::Never
        }
        KillReason::SpecChanged | KillReason::ResizeRequiresRestart | KillReason::UnknownState => true,
        KillReason::LivenessFailed | KillReason::StartupFailed | KillReason::SandboxReplaced => {
            effective_policy(pod, container, features) != RestartPolicy::Never
        }
        KillReason::NotInSpec
        | KillReason::Superseded
        | KillReason::PodFinished
        | KillReason::PodTerminating
        | KillReason::RestartAllContainers
        | KillReason::PostStartHookFailed => false,
    }
}

/// The instance was killed in order to start its container again.
#[must_use]
pub fn was_killed_to_restart(
    pod: &Pod,
    container: &ContainerRef<'_>,
    instance: &ContainerObservation,
    memory: &PodMemory,
    features: Features,
) -> bool {
    let why = memory.killed.get(&instance.id);
    why.is_some_and(|why| restarts_after_kill(pod, container, *why, features))
}

/// Whether the plan starts a container again whose newest instance does not run, for whatever reason. A changed spec and a
/// failed probe show neither in the exit nor in the policy.
#[must_use]
pub fn starts_again(
    pod: &Pod,
    container: &ContainerRef<'_>,
    newest: &ContainerObservation,
    memory: &PodMemory,
    features: Features,
) -> bool {
    match newest.state {
        ContainerState::Created => true,
        ContainerState::Exited => {
            after_exit(pod, container, newest, memory, features) != AfterExit::StaysDead
        }
        ContainerState::Running | ContainerState::Unknown => false,
    }
}

/// What rules and policy alone say about an end. The status asks this about runs that only it remembers.
#[must_use]
pub fn after_end(pod: &Pod, container: &ContainerRef<'_>, end: End<'_>, features: Features) -> AfterExit {
    let code = end.code;
    if let Some(outcome) = by_rules(container.restart_policy_rules(), code, features) {
        return outcome;
    }
    let policy = effective_policy(pod, container, features);
    let again = match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => has_failed(container.kind, end),
        RestartPolicy::Never => false,
    };
    if again { AfterExit::Restarts(StartReason::Exited { code, policy }) } else { AfterExit::StaysDead }
}

/// A container that we stopped may have ended with 0, which says nothing about success. So the reason it was stopped
/// for decides, where we know it.
fn restart_after_kill(
    kind: ContainerKind,
    instance: &ContainerObservation,
    policy: RestartPolicy,
    memory: &PodMemory,
) -> Option<StartReason> {
    let unless_never = |why| (policy != RestartPolicy::Never).then_some(why);
    let verdicts = memory.verdicts.get(&instance.id);
    match memory.killed.get(&instance.id).copied() {
        Some(why @ (KillReason::SpecChanged | KillReason::ResizeRequiresRestart)) => {
            Some(StartReason::Killed(why))
        }
        // Parity: of a pod that never restarts, only an init container in an unknown state ends the pod.
        Some(KillReason::UnknownState) if kind == ContainerKind::Init => unless_never(StartReason::Unknown),
        Some(KillReason::UnknownState) => Some(StartReason::Unknown),
        Some(
            why @ (KillReason::LivenessFailed | KillReason::StartupFailed | KillReason::SandboxReplaced),
        ) => unless_never(StartReason::Killed(why)),
        Some(
            KillReason::NotInSpec
            | KillReason::Superseded
            | KillReason::PodFinished
            | KillReason::PodTerminating
            | KillReason::RestartAllContainers
            | KillReason::PostStartHookFailed,
        ) => None,
        None if verdicts.liveness == Some(Verdict::Failure) => {
            unless_never(StartReason::Killed(KillReason::LivenessFailed))
        }
        None if verdicts.startup == Some(Verdict::Failure) => {
            unless_never(StartReason::Killed(KillReason::StartupFailed))
        }
        None => None,
    }
}

/// The first rule that matches the exit code wins. Rules this version does not know are passed over.
fn by_rules(rules: &[ContainerRestartRule], code: i32, features: Features) -> Option<AfterExit> {
    if !features.container_restart_rules {
        return None;
    }
    let rule = rules.iter().find(|rule| matches(rule, code))?;
    match rule.action.as_str() {
        "Restart" => Some(AfterExit::Restarts(StartReason::RestartRule { code })),
        RESTART_ALL if features.restart_all_containers => Some(AfterExit::RestartsAll { code }),
        _ => None,
    }
}

/// Some container has a rule by which its end begins the whole pod again.
#[must_use]
pub fn may_restart_all(pod: &Pod, features: Features) -> bool {
    let is_one = |rule: &ContainerRestartRule| rule.action == RESTART_ALL;
    features.container_restart_rules
        && features.restart_all_containers
        && all_containers(pod).any(|container| container.restart_policy_rules().iter().any(is_one))
}

fn matches(rule: &ContainerRestartRule, code: i32) -> bool {
    let Some(condition) = &rule.exit_codes else { return false };
    let listed = condition.values.as_deref().unwrap_or_default().contains(&code);
    match condition.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}
