//! One status out of what the API has and what the kubelet found: each keeps what it owns, and nothing goes back.

use jiff::Timestamp;
use model::k8s::{PodCondition, PodStatus, Time};

/// Conditions that only the kubelet writes. All others stay as they are in the API.
const OWNED: [&str; 8] = [
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodReadyToStartContainers",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
];
/// Written by others too: the kubelet's word counts where it ends the pod.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The status to write. `may_run`: a container may still be running, so nothing is over yet.
#[must_use]
pub fn merge_status(said: &PodStatus, found: &PodStatus, may_run: bool) -> PodStatus {
    let mut merged = found.clone();
    merged.start_time = said.start_time.clone().or(merged.start_time);
    merged.qos_class = said.qos_class.clone().or(merged.qos_class);
    merged.nominated_node_name = said.nominated_node_name.clone();
    merged.resource_claim_statuses = said.resource_claim_statuses.clone();
    merged.extended_resource_claim_status = said.extended_resource_claim_status.clone();
    merged.node_allocatable_resource_claim_statuses = said.node_allocatable_resource_claim_statuses.clone();
    merged.resize = said.resize.clone();
    let is_end_withheld = !is_terminal(said) && is_terminal(found) && may_run;
    let would_go_back = is_terminal(said) && said.phase != found.phase;
    if is_end_withheld || would_go_back {
        merged.phase = said.phase.clone();
        merged.reason = said.reason.clone();
        merged.message = said.message.clone();
    }
    let ends = is_terminal(&merged);
    merged.conditions = Some(merge_conditions(said, found, ends)).filter(|all| !all.is_empty());
    cut_times(&mut merged);
    merged
}

/// The pod is over: Succeeded or Failed.
pub(super) fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn merge_conditions(said: &PodStatus, found: &PodStatus, ends: bool) -> Vec<PodCondition> {
    let is_ours =
        |c: &PodCondition| OWNED.contains(&c.type_.as_str()) || (ends && c.type_ == DISRUPTION_TARGET);
    let mut ours: Vec<PodCondition> =
        found.conditions.iter().flatten().filter(|c| is_ours(c)).cloned().collect();
    if ends {
        for condition in ours.iter_mut().filter(|c| ["Ready", "ContainersReady"].contains(&c.type_.as_str()))
        {
            take_readiness(condition, found, said);
        }
    }
    let is_replaced =
        |c: &PodCondition| OWNED.contains(&c.type_.as_str()) || ours.iter().any(|own| own.type_ == c.type_);
    let others: Vec<_> = said.conditions.iter().flatten().filter(|c| !is_replaced(c)).cloned().collect();
    others.into_iter().chain(ours).collect()
}

/// Nobody is to send traffic to a pod that is over.
fn take_readiness(condition: &mut PodCondition, found: &PodStatus, said: &PodStatus) {
    if condition.status != "True" {
        return;
    }
    let phase = if is_terminal(found) { found } else { said };
    let reason = if phase.phase.as_deref() == Some("Failed") { "PodFailed" } else { "PodCompleted" };
    condition.status = "False".to_owned();
    condition.reason = Some(reason.to_owned());
    let before = said.conditions.iter().flatten().find(|c| c.type_ == condition.type_);
    if let Some(before) = before.filter(|before| before.status == "False") {
        condition.last_transition_time = before.last_transition_time.clone();
    }
}

/// The API keeps whole seconds; finer ones would differ from what it has forever.
fn cut_times(status: &mut PodStatus) {
    cut(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        cut(&mut condition.last_transition_time);
        cut(&mut condition.last_probe_time);
    }
    let lists = [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    for container in lists.into_iter().flatten().flatten() {
        for state in [&mut container.state, &mut container.last_state].into_iter().flatten() {
            if let Some(running) = &mut state.running {
                cut(&mut running.started_at);
            }
            if let Some(ended) = &mut state.terminated {
                cut(&mut ended.started_at);
                cut(&mut ended.finished_at);
            }
        }
    }
}

fn cut(time: &mut Option<Time>) {
    if let Some(Time(at)) = time {
        *at = Timestamp::from_second(at.as_second()).unwrap_or(*at);
    }
}
