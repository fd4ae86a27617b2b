//! Which parts of its earlier status a restarted kubelet may keep.

use std::sync::Arc;

use model::k8s::{ContainerStatus, PodStatus};
use model::pod_status::{container_statuses, has_ended, statuses_by_name};
use model::{ContainerId, ContainerState, PodObservation};

use super::whole_seconds;
use crate::pods::probe::results::{ProbeKind, Verdict};

/// A verdict to start from, until the probe gives its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSeed {
    pub container: ContainerId,
    pub kind: ProbeKind,
    pub verdict: Verdict,
}

/// The verdicts that survive a restart of the kubelet: those of containers that still run as the same instance, which
/// is proven by both id and start time. A kubelet restart alone must not make a pod unready, or restart its startup
/// probe.
#[must_use]
pub fn merge_for_restart(previous: &PodStatus, observed: &PodObservation) -> Vec<ProbeSeed> {
    container_statuses(previous).flat_map(|status| seeds_of(status, observed)).collect()
}

/// The status that a kubelet continues from. The one on disk is written before the API has it, except while the disk is full: then
/// the API may show that the pod has ended, or a container that was restarted since.
#[must_use]
pub fn latest_known(
    on_disk: Option<Arc<PodStatus>>,
    in_api: Option<&Arc<PodStatus>>,
) -> Option<Arc<PodStatus>> {
    let Some(on_disk) = on_disk else { return in_api.cloned() };
    let is_newer = |in_api: &&Arc<PodStatus>| {
        let known = statuses_by_name(&on_disk);
        let was_restarted = container_statuses(in_api).any(|container| {
            let known = known.get(container.name.as_str());
            known.is_some_and(|known| known.restart_count < container.restart_count)
        });
        !has_ended(&on_disk) && (has_ended(in_api) || was_restarted)
    };
    let newer = in_api.filter(is_newer).cloned();
    Some(newer.unwrap_or(on_disk))
}

/// The API does not keep the status of a static pod: after a restart of the kubelet only the runtime reports how its init
/// containers ended. One without a record counts as exited normally once the pod is initialized.
pub fn forget_ended_init_containers(previous: &mut PodStatus) {
    for status in previous.init_container_statuses.iter_mut().flatten() {
        status.state = status.state.take().filter(|state| state.terminated.is_none());
    }
}

fn seeds_of(status: &ContainerStatus, observed: &PodObservation) -> Vec<ProbeSeed> {
    let Some(container) = same_instance(status, observed) else { return Vec::new() };
    let seed = |holds: bool, kind| {
        holds.then(|| ProbeSeed { container: container.clone(), kind, verdict: Verdict::Success })
    };
    let is_started = status.started == Some(true);
    [seed(is_started, ProbeKind::Startup), seed(status.ready, ProbeKind::Readiness)]
        .into_iter()
        .flatten()
        .collect()
}

fn same_instance(status: &ContainerStatus, observed: &PodObservation) -> Option<ContainerId> {
    let (_, id) = status.container_id.as_deref()?.split_once("://")?;
    let id = ContainerId::new(id);
    let said_start = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?;
    let instance = observed.container(&id).filter(|c| c.state == ContainerState::Running)?;
    (whole_seconds(instance.started_at?) == whole_seconds(said_start.0)).then_some(id)
}
