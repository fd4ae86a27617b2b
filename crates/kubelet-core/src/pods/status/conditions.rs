//! The conditions of a pod.
//!
//! Computes the six conditions that the kubelet writes, with their texts and transition times. Conditions of other
//! controllers are kept unchanged.

use std::collections::BTreeMap;

use base_core::pod_kind::is_static_pod;
use model::containers::{init_containers, regular_containers, spec_of};
use model::k8s::{ContainerStatus, Pod, PodCondition, PodStatus};
use model::{ContainerKind, ContainerRef, ContainerState, PodObservation};
use resources_core::admission::preemption::{PREEMPTED_CONDITION, PREEMPTING};

use super::containers::waits_for_all;
use super::phase::Phase;
use super::{ContainerStatuses, StatusInputs, generation, whole_seconds};
use crate::pods::resize::state::{IN_PROGRESS, PENDING};
use crate::pods::restart::{AfterExit, after_end, may_restart_all};

#[cfg(test)]
mod tests;

const READY_TO_START: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const SCHEDULED: &str = "PodScheduled";
const ALL_RESTARTING: &str = "AllContainersRestarting";
/// Written by the controller that terminates a pod, or by the kubelet if that does.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
const OWNED: [&str; 8] =
    [READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED, ALL_RESTARTING, PENDING, IN_PROGRESS];

pub(super) fn compute_conditions(
    inputs: &StatusInputs<'_>,
    statuses: &ContainerStatuses,
    phase: Phase,
) -> Vec<PodCondition> {
    let mut all = conditions_of_others(inputs);
    if inputs.is_rejected {
        return all;
    }
    let containers_ready = containers_ready(inputs.pod, statuses, phase);
    let mut findings = Vec::new();
    if !phase.is_terminal() {
        all.extend(inputs.memory.resize.conditions());
    }
    if inputs.features.ready_to_start_condition {
        findings.push((READY_TO_START, ready_to_start(inputs)));
    }
    findings.extend([
        (INITIALIZED, initialized(inputs.pod, statuses, phase)),
        (READY, ready(inputs.pod, &all, &containers_ready)),
        (CONTAINERS_READY, containers_ready),
        (SCHEDULED, Finding::met()),
    ]);
    findings.extend(restarting_all(inputs, statuses, phase).map(|finding| (ALL_RESTARTING, finding)));
    let last = inputs.last_status();
    all.extend(findings.into_iter().map(|(kind, finding)| {
        said_at_the_end(inputs, kind).unwrap_or_else(|| condition(inputs, last, kind, finding))
    }));
    all
}

/// Condition `Ready` or `ContainersReady`.
pub(super) fn is_any_ready(conditions: &[PodCondition]) -> bool {
    conditions.iter().any(|c| matches!(c.type_.as_str(), READY | CONTAINERS_READY) && c.status == "True")
}

/// The condition of a terminated pod's containers stays: they do not change any more.
fn said_at_the_end(inputs: &StatusInputs<'_>, kind: &str) -> Option<PodCondition> {
    let previous = inputs.previous.filter(|_| inputs.is_terminated())?;
    let is_terminal = Phase::of(Some(previous)).is_some_and(Phase::is_terminal);
    let is_final = is_terminal || has_settled(inputs, previous);
    let reported = find(previous.conditions.as_deref()?, kind)?;
    let stays = match kind {
        READY | CONTAINERS_READY => is_final && reported.status == "False",
        INITIALIZED => is_final,
        ALL_RESTARTING => is_terminal,
        _ => false,
    };
    let observed_generation = generation(inputs.pod).filter(|_| kind != ALL_RESTARTING);
    stays.then(|| PodCondition { observed_generation, ..reported.clone() })
}

/// A static pod that was stopped has no final phase. Containers of it that never ran count as ended, but not for conditions:
/// computed again from that status, the conditions would count them.
fn has_settled(inputs: &StatusInputs<'_>, previous: &PodStatus) -> bool {
    let has_ended = |s: &ContainerStatus| s.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let have_all_ended = previous.container_statuses.as_ref().is_some_and(|all| all.iter().all(has_ended));
    is_static_pod(inputs.pod) && inputs.terminal.is_none() && have_all_ended
}

/// The content of a condition, before it gets its times.
#[derive(Clone)]
struct Finding {
    is_met: bool,
    reason: &'static str,
    message: String,
}

impl Finding {
    const fn met() -> Self {
        Self { is_met: true, reason: "", message: String::new() }
    }

    const fn unmet(reason: &'static str, message: String) -> Self {
        Self { is_met: false, reason, message }
    }
}

fn condition(
    inputs: &StatusInputs<'_>,
    last: Option<&PodStatus>,
    kind: &str,
    finding: Finding,
) -> PodCondition {
    let status = if finding.is_met { "True" } else { "False" };
    let reported = last.and_then(|s| find(s.conditions.as_deref().unwrap_or_default(), kind));
    let since = reported.filter(|c| c.status == status).and_then(|c| c.last_transition_time.clone());
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: (!finding.reason.is_empty()).then(|| finding.reason.to_owned()),
        message: (!finding.message.is_empty()).then_some(finding.message),
        last_transition_time: Some(since.unwrap_or_else(|| whole_seconds(inputs.now))),
        last_probe_time: None,
        // The Go kubelet sets none on this condition.
        observed_generation: generation(inputs.pod).filter(|_| kind != ALL_RESTARTING),
    }
}

fn find<'a>(conditions: &'a [PodCondition], kind: &str) -> Option<&'a PodCondition> {
    conditions.iter().find(|c| c.type_ == kind)
}

/// Other controllers write their conditions to the API object, so they are read from there.
fn conditions_of_others(inputs: &StatusInputs<'_>) -> Vec<PodCondition> {
    let of = |status: Option<&PodStatus>| status.and_then(|s| s.conditions.clone()).unwrap_or_default();
    let mut all = of(inputs.in_source);
    all.retain(|c| !OWNED.contains(&c.type_.as_str()));
    if find(&all, DISRUPTION_TARGET).is_none() {
        all.extend(of(inputs.previous).into_iter().find(|c| c.type_ == DISRUPTION_TARGET));
    }
    if let Some(why) = inputs.terminal
        && why.is_disruption
        && find(&all, DISRUPTION_TARGET).is_none()
        && !Phase::of(inputs.in_source).is_some_and(Phase::is_terminal)
    {
        let is_preempted = why.reason == PREEMPTING.0;
        let message = if is_preempted { PREEMPTED_CONDITION.to_owned() } else { why.message.clone() };
        let finding = Finding { is_met: true, reason: "TerminationByKubelet", message };
        all.push(condition(inputs, inputs.last_status(), DISRUPTION_TARGET, finding));
    }
    all
}

/// The sandbox is ready and has its network, so containers can start.
fn ready_to_start(inputs: &StatusInputs<'_>) -> Finding {
    let Some(observed) = inputs.observed else {
        let reported = inputs.last_status().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        let was_met = find(reported, READY_TO_START).is_some_and(|c| c.status == "True");
        return Finding { is_met: was_met, ..Finding::met() };
    };
    let needs_ip = spec_of(inputs.pod).host_network != Some(true);
    let mut ready = observed.ready_sandboxes();
    let is_met = match (ready.next(), ready.next()) {
        (Some(only), None) => {
            let is_newest = observed.sandboxes.first().is_some_and(|newest| newest.id == only.id);
            is_newest && (!needs_ip || !only.ips.is_empty())
        }
        (None | Some(_), _) => false,
    };
    Finding { is_met, ..Finding::met() }
}

fn initialized(pod: &Pod, statuses: &ContainerStatuses, phase: Phase) -> Finding {
    let mut incomplete = Names::default();
    let by_name = statuses.by_name();
    for container in init_containers(pod) {
        let is_sidecar = container.kind == ContainerKind::Sidecar;
        let is_complete = |s: &ContainerStatus| if is_sidecar { s.started == Some(true) } else { s.ready };
        incomplete.add(container.name(), by_name.get(container.name()).copied().map(is_complete));
    }
    if phase == Phase::Succeeded && incomplete.unknown.is_empty() {
        return Finding { is_met: true, reason: "PodCompleted", message: String::new() };
    }
    if statuses.is_initialized() {
        return Finding::met();
    }
    match incomplete.message("incomplete") {
        Some(message) => Finding::unmet("ContainersNotInitialized", message),
        None => Finding::met(),
    }
}

fn containers_ready(pod: &Pod, statuses: &ContainerStatuses, phase: Phase) -> Finding {
    let mut unready = Names::default();
    let by_name = statuses.by_name();
    let sidecars = init_containers(pod).filter(|c| c.kind == ContainerKind::Sidecar);
    for container in sidecars.chain(regular_containers(pod)) {
        unready.add(container.name(), by_name.get(container.name()).map(|s| s.ready));
    }
    match phase {
        Phase::Succeeded => return Finding::unmet("PodCompleted", String::new()),
        Phase::Failed => return Finding::unmet("PodFailed", String::new()),
        Phase::Pending | Phase::Running => {}
    }
    if statuses.regular.is_empty() {
        return Finding::unmet("UnknownContainerStatuses", String::new());
    }
    match unready.message("unready") {
        Some(message) => Finding::unmet("ContainersNotReady", message),
        None => Finding::met(),
    }
}

fn ready(pod: &Pod, conditions: &[PodCondition], containers_ready: &Finding) -> Finding {
    if !containers_ready.is_met {
        return containers_ready.clone();
    }
    let gates = spec_of(pod).readiness_gates.as_deref().unwrap_or_default();
    let conditions: BTreeMap<&str, &PodCondition> =
        conditions.iter().rev().map(|condition| (condition.type_.as_str(), condition)).collect();
    let shut: Vec<String> = gates
        .iter()
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match conditions.get(kind.as_str()) {
                None => {
                    Some(format!("corresponding condition of pod readiness gate {kind:?} does not exist."))
                }
                Some(c) if c.status != "True" => Some(format!(
                    "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                    c.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if shut.is_empty() { Finding::met() } else { Finding::unmet("ReadinessGatesNotReady", shut.join(", ")) }
}

/// Every pod with a rule that restarts all containers has it. True from the exit that a rule matches until no container
/// of the pod is left in the runtime.
fn restarting_all(inputs: &StatusInputs<'_>, statuses: &ContainerStatuses, phase: Phase) -> Option<Finding> {
    if !may_restart_all(inputs.pod, inputs.features) {
        return None;
    }
    match phase {
        Phase::Succeeded => return Some(Finding::unmet("PodCompleted", String::new())),
        Phase::Failed => return Some(Finding::unmet("PodFailed", String::new())),
        Phase::Pending | Phase::Running => {}
    }
    let reported = inputs.last_status().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let has_begun = find(reported, ALL_RESTARTING).is_some_and(|c| c.status == "True")
        && statuses.init.iter().chain(&statuses.regular).any(waits_for_all);
    let is_left = |o: &PodObservation| {
        init_containers(inputs.pod)
            .chain(regular_containers(inputs.pod))
            .any(|c| o.newest(c.name()).is_some())
    };
    let is_met = (has_begun || exit_restarts_all(inputs)) && inputs.observed.is_none_or(is_left);
    Some(match is_met {
        true => Finding {
            is_met,
            reason: "RestartAllContainersStarted",
            message: "container exited with restart policy rule".to_owned(),
        },
        false => Finding { is_met, ..Finding::met() },
    })
}

/// The last exit of some container matches a rule that restarts all.
fn exit_restarts_all(inputs: &StatusInputs<'_>) -> bool {
    let newest = |container: &ContainerRef<'_>| inputs.observed?.newest(container.name());
    init_containers(inputs.pod).chain(regular_containers(inputs.pod)).any(|container| {
        newest(&container).is_some_and(|instance| {
            let after = after_end(inputs.pod, &container, instance.into(), inputs.features);
            instance.state == ContainerState::Exited && matches!(after, AfterExit::RestartsAll { .. })
        })
    })
}

/// Containers that keep a condition from being met.
#[derive(Default)]
struct Names<'a> {
    unknown: Vec<&'a str>,
    unmet: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn add(&mut self, name: &'a str, is_met: Option<bool>) {
        match is_met {
            None => self.unknown.push(name),
            Some(false) => self.unmet.push(name),
            Some(true) => {}
        }
    }

    fn message(&self, what: &str) -> Option<String> {
        let list = |names: &[&str], what: &str| {
            (!names.is_empty()).then(|| format!("containers with {what} status: [{}]", names.join(" ")))
        };
        let parts: Vec<String> =
            [list(&self.unknown, "unknown"), list(&self.unmet, what)].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
