//! Which parts of its earlier status a restarted kubelet may keep.

use model::k8s::{ContainerStatus, PodStatus};
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
    let statuses = [&previous.init_container_statuses, &previous.container_statuses];
    statuses.into_iter().flatten().flatten().flat_map(|status| seeds_of(status, observed)).collect()
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
