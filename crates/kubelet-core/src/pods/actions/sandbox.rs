//! Whether the pod has a usable sandbox, and whether it gets another one (docs/behaviour/pod-lifecycle.md).

use model::containers::{self, ContainerRef, spec_of};
use model::k8s::Pod;
use model::observation::NamespaceMode;
use model::{ContainerKind, ContainerState, PodObservation, SandboxObservation, SandboxState};

use super::{PodInputs, after_exit_of, kill_everything, teardown};
use crate::pods::plan::{KillReason, PodPlan, PodStep, RestartPolicy, SandboxReason, TeardownReason};
use crate::pods::restart::{AfterExit, effective_policy, has_failed};

/// The newest sandbox if it can be used, else why a new one is needed.
pub(crate) fn find_usable<'a>(
    pod: &Pod,
    observed: &'a PodObservation,
) -> Result<&'a SandboxObservation, SandboxReason> {
    let Some(newest) = observed.sandboxes.first() else { return Err(SandboxReason::NoSandbox) };
    if observed.ready_sandboxes().count() > 1 {
        return Err(SandboxReason::MoreThanOneReady);
    }
    if newest.state != SandboxState::Ready {
        return Err(SandboxReason::NewestNotReady);
    }
    let wants_host = spec_of(pod).host_network.unwrap_or(false);
    if wants_host != (newest.network == NamespaceMode::Node) {
        return Err(SandboxReason::NetworkNamespaceChanged);
    }
    if !wants_host && newest.ips.is_empty() {
        return Err(SandboxReason::NoPodIp);
    }
    Ok(newest)
}

/// The plan for a pod without a usable sandbox.
pub(super) fn plan_without(inputs: &PodInputs<'_>, why: SandboxReason) -> PodPlan {
    if has_failed_init(inputs) {
        return teardown(inputs, TeardownReason::InitFailed);
    }
    if !containers::regular_containers(inputs.pod).any(|c| wants_to_run(inputs, &c)) {
        return teardown(inputs, why_no_other_sandbox(inputs));
    }
    let observed = inputs.observed;
    let attempt = observed.sandboxes.first().map_or(0, |newest| newest.attempt.saturating_add(1));
    let stop = observed.sandboxes.iter().map(|s| s.id.clone()).collect();
    let kill = kill_everything(inputs, KillReason::SandboxReplaced);
    PodPlan { step: PodStep::CreateSandbox { attempt, stop, kill, why }, waiting: Vec::new(), wake_at: None }
}

/// A regular container that would run if there was a sandbox.
fn wants_to_run(inputs: &PodInputs<'_>, container: &ContainerRef<'_>) -> bool {
    if has_begun_nothing(inputs) {
        return true;
    }
    let policy = effective_policy(inputs.pod, container, inputs.features);
    let Some(newest) = inputs.observed.newest(container.name()) else {
        // Parity: a pod with restartPolicy Never that has had any container is finished when its sandbox dies, even if this
        // container had not been started yet.
        let pod_policy = RestartPolicy::parse(spec_of(inputs.pod).restart_policy.as_deref());
        return pod_policy != RestartPolicy::Never || policy != RestartPolicy::Never;
    };
    match newest.state {
        ContainerState::Running | ContainerState::Unknown | ContainerState::Created => {
            policy != RestartPolicy::Never
        }
        ContainerState::Exited => after_exit_of(inputs, container, newest) != AfterExit::StaysDead,
    }
}

/// No container of the pod has run but sidecars, which restart whatever the policy of the pod; at most others were created. The pod
/// may start over.
fn has_begun_nothing(inputs: &PodInputs<'_>) -> bool {
    let is_sidecar = |name: &str| {
        let mut init_containers = containers::init_containers(inputs.pod);
        init_containers.any(|c| c.name() == name && c.kind == ContainerKind::Sidecar)
    };
    let mut observed = inputs.observed.containers.iter();
    observed.all(|container| container.state == ContainerState::Created || is_sidecar(&container.name))
}

fn why_no_other_sandbox(inputs: &PodInputs<'_>) -> TeardownReason {
    let has_ended = |c: ContainerRef<'_>| {
        inputs.observed.newest(c.name()).is_some_and(|i| i.state == ContainerState::Exited)
    };
    let all_ended = containers::regular_containers(inputs.pod).all(has_ended);
    if all_ended { TeardownReason::Completed } else { TeardownReason::SandboxLost }
}

/// The init chain ended in a container that failed for good, so no new sandbox would help.
fn has_failed_init(inputs: &PodInputs<'_>) -> bool {
    let observed = inputs.observed;
    if containers::regular_containers(inputs.pod).any(|c| observed.newest(c.name()).is_some()) {
        return false;
    }
    let last = containers::init_containers(inputs.pod)
        .rev()
        .find_map(|c| observed.newest(c.name()).map(|newest| (c, newest)));
    last.is_some_and(|(container, newest)| {
        container.kind == ContainerKind::Init
            && newest.state == ContainerState::Exited
            && has_failed(container.kind, newest.into())
            && after_exit_of(inputs, &container, newest) == AfterExit::StaysDead
    })
}
