//! Which containers of a pod have ended for good, so that nothing needs to be kept for them.
//!
//! Asks the same questions as the plan ([`crate::pods::actions`]): whatever that would start again has not ended. Where
//! it is not certain, the container counts as one that comes back.

use config::Features;
use model::containers::{ContainerRef, init_containers, regular_containers, spec_of};
use model::k8s::Pod;
use model::{ContainerKind, ContainerObservation, ContainerState, PodObservation, SandboxId};
use resources_core::allocations::Ended;

use crate::pods::actions::find_usable;
use crate::pods::memory::PodMemory;
use crate::pods::plan::RestartPolicy;
use crate::pods::restart::{AfterExit, after_exit, effective_policy, has_failed, may_restart_all};

/// What distinguishes the end of a container from a pause between two runs.
#[derive(Clone, Copy, Debug)]
pub struct EndedFacts<'a> {
    pub memory: &'a PodMemory,
    pub features: Features,
    /// The pod is being stopped: nothing of it is started again.
    pub is_stopping: bool,
}

/// Decides what of the pod has ended for good, from what was seen of it.
#[must_use]
pub fn compute_ended(pod: &Pod, observed: &PodObservation, facts: &EndedFacts<'_>) -> Ended {
    if is_over(pod, observed, facts) {
        return Ended::All;
    }
    let all = || init_containers(pod).chain(regular_containers(pod));
    let name = |container: ContainerRef<'_>| container.name().into();
    if facts.is_stopping {
        // One that was never seen may be on its way: its start was cut short, and perhaps too late.
        let has_exited = |container: &ContainerRef<'_>| exited(container, observed).is_some();
        return Ended::Containers(all().filter(has_exited).map(name).collect());
    }
    if may_restart_all(pod, facts.features) {
        return Ended::NOTHING;
    }
    let begins_again = may_begin_again(pod, facts.features);
    let may_end = |container: &ContainerRef<'_>| match container.kind {
        ContainerKind::Init => !begins_again && is_in_sandbox(pod, container, observed),
        // While others run it comes back.
        ContainerKind::Sidecar => false,
        ContainerKind::Regular | ContainerKind::Ephemeral => true,
    };
    let has_ended = |container: &ContainerRef<'_>| stays_dead(pod, container, observed, facts);
    Ended::Containers(all().filter(may_end).filter(has_ended).map(name).collect())
}

/// Nothing runs, and the plan has nothing left to start: all work is done, or the pod cannot get to it.
fn is_over(pod: &Pod, observed: &PodObservation, facts: &EndedFacts<'_>) -> bool {
    let may_run = |container: &ContainerObservation| match container.state {
        ContainerState::Running | ContainerState::Unknown => true,
        ContainerState::Created | ContainerState::Exited => false,
    };
    if observed.containers.iter().any(may_run) {
        return false;
    }
    let begins_all_again = |container: ContainerRef<'_>| {
        matches!(after(pod, &container, observed, facts), Some(AfterExit::RestartsAll { .. }))
    };
    if init_containers(pod).any(begins_all_again) {
        return false;
    }
    let is_done = |container: ContainerRef<'_>| {
        stays_dead(pod, &container, observed, facts) && has_no_newer_sandbox(pod, &container, observed)
    };
    regular_containers(pod).all(is_done) || has_failed_at_start(pod, observed, facts)
}

/// No regular container had its turn, because one before them failed for good.
fn has_failed_at_start(pod: &Pod, observed: &PodObservation, facts: &EndedFacts<'_>) -> bool {
    let has_begun = |container: &ContainerRef<'_>| observed.newest(container.name()).is_some();
    if regular_containers(pod).any(|container| has_begun(&container)) {
        return false;
    }
    let last = init_containers(pod).rev().find(has_begun);
    last.is_some_and(|container| {
        let end = exited(&container, observed);
        container.kind == ContainerKind::Init
            && end.is_some_and(|end| has_failed(container.kind, end.into()))
            && stays_dead(pod, &container, observed, facts)
            && has_no_newer_sandbox(pod, &container, observed)
    })
}

fn exited<'a>(
    container: &ContainerRef<'_>,
    observed: &'a PodObservation,
) -> Option<&'a ContainerObservation> {
    observed.newest(container.name()).filter(|newest| newest.state == ContainerState::Exited)
}

fn stays_dead(
    pod: &Pod,
    container: &ContainerRef<'_>,
    observed: &PodObservation,
    facts: &EndedFacts<'_>,
) -> bool {
    after(pod, container, observed, facts) == Some(AfterExit::StaysDead)
}

/// What follows from the end of the container; `None` for one that has not ended.
fn after(
    pod: &Pod,
    container: &ContainerRef<'_>,
    observed: &PodObservation,
    facts: &EndedFacts<'_>,
) -> Option<AfterExit> {
    let memory = facts.memory;
    exited(container, observed).map(|end| after_exit(pod, container, end, memory, facts.features))
}

/// It ran in the sandbox that the pod goes on with: in another one the init chain begins again.
fn is_in_sandbox(pod: &Pod, container: &ContainerRef<'_>, observed: &PodObservation) -> bool {
    find_usable(pod, observed).is_ok() && has_no_newer_sandbox(pod, container, observed)
}

/// No newer sandbox waits for it.
fn has_no_newer_sandbox(pod: &Pod, container: &ContainerRef<'_>, observed: &PodObservation) -> bool {
    let instance = observed.newest(container.name());
    let is_there = |id: &SandboxId| instance.is_some_and(|instance| instance.sandbox_id == *id);
    find_usable(pod, observed).ok().is_none_or(|sandbox| is_there(&sandbox.id))
}

/// A pod whose sandbox dies gets another one if one of its containers wants to run again, and begins with its init chain.
fn may_begin_again(pod: &Pod, features: Features) -> bool {
    let never = |container: ContainerRef<'_>| {
        effective_policy(pod, &container, features) == RestartPolicy::Never
            && container.restart_policy_rules().is_empty()
    };
    RestartPolicy::parse(spec_of(pod).restart_policy.as_deref()) != RestartPolicy::Never
        || !regular_containers(pod).all(never)
}

#[cfg(test)]
mod tests;
