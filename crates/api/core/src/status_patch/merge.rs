//! Merges the status in the API with the status that the kubelet computed: each owner's fields stay, and no phase goes
//! back.

use jiff::Timestamp;
use model::k8s::{PodCondition, PodStatus, Time};
use model::pod_status::{all_container_statuses_mut, has_ended};

/// Conditions that only the kubelet writes. All others keep their value from the API.
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
/// Other clients write it too: the kubelet's value is used if the kubelet ends the pod.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The status to write. `may_run`: a container may still be running, so the pod has not ended yet.
#[must_use]
pub fn merge_status(in_api: &PodStatus, found: &PodStatus, may_run: bool) -> PodStatus {
    let mut merged = found.clone();
    merged.start_time = in_api.start_time.clone().or(merged.start_time);
    merged.qos_class = in_api.qos_class.clone().or(merged.qos_class);
    merged.nominated_node_name = in_api.nominated_node_name.clone();
    merged.resource_claim_statuses = in_api.resource_claim_statuses.clone();
    merged.extended_resource_claim_status = in_api.extended_resource_claim_status.clone();
    merged.node_allocatable_resource_claim_statuses = in_api.node_allocatable_resource_claim_statuses.clone();
    merged.resize = in_api.resize.clone();
    let is_end_withheld = !has_ended(in_api) && has_ended(found) && may_run;
    let would_go_back = has_ended(in_api) && in_api.phase != found.phase;
    if is_end_withheld || would_go_back {
        merged.phase = in_api.phase.clone();
        merged.reason = in_api.reason.clone();
        merged.message = in_api.message.clone();
    }
    let ends = has_ended(&merged);
    merged.conditions = Some(merge_conditions(in_api, found, ends)).filter(|all| !all.is_empty());
    cut_times(&mut merged);
    merged
}

fn merge_conditions(in_api: &PodStatus, found: &PodStatus, ends: bool) -> Vec<PodCondition> {
    let is_ours =
        |c: &PodCondition| OWNED.contains(&c.type_.as_str()) || (ends && c.type_ == DISRUPTION_TARGET);
    let mut ours: Vec<PodCondition> =
        found.conditions.iter().flatten().filter(|c| is_ours(c)).cloned().collect();
    if ends {
        for condition in ours.iter_mut().filter(|c| ["Ready", "ContainersReady"].contains(&c.type_.as_str()))
        {
            clear_readiness(condition, found, in_api);
        }
    }
    let is_replaced =
        |c: &PodCondition| OWNED.contains(&c.type_.as_str()) || ours.iter().any(|own| own.type_ == c.type_);
    let others: Vec<_> = in_api.conditions.iter().flatten().filter(|c| !is_replaced(c)).cloned().collect();
    others.into_iter().chain(ours).collect()
}

/// A pod that has ended must not receive traffic.
fn clear_readiness(condition: &mut PodCondition, found: &PodStatus, in_api: &PodStatus) {
    if condition.status != "True" {
        return;
    }
    let phase = if has_ended(found) { found } else { in_api };
    let reason = if phase.phase.as_deref() == Some("Failed") { "PodFailed" } else { "PodCompleted" };
    condition.status = "False".to_owned();
    condition.reason = Some(reason.to_owned());
    let before = in_api.conditions.iter().flatten().find(|c| c.type_ == condition.type_);
    if let Some(before) = before.filter(|before| before.status == "False") {
        condition.last_transition_time = before.last_transition_time.clone();
    }
}

/// The API stores whole seconds; finer times would always differ from the stored ones.
fn cut_times(status: &mut PodStatus) {
    cut(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        cut(&mut condition.last_transition_time);
        cut(&mut condition.last_probe_time);
    }
    for container in all_container_statuses_mut(status) {
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
