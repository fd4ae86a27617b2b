//! Which containers run on other CPUs than they should, because the shared pool has changed or the kubelet has restarted.

use model::PodUid;
use model::cpu_set::CpuSet;

use super::state::CpuState;

/// What is known about a container of an active pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerCpuState {
    /// It has no id yet, or waits.
    NotRunning,
    /// It may be restarted, and keeps its CPUs.
    Exited,
    /// The CPUs that were last set; `None` if this kubelet has not set any.
    Running { set: Option<CpuSet> },
}

/// What to do for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuUpdate {
    /// It runs where it should, or has ended.
    None,
    /// Try again later: it does not run yet, or there is no CPU for it.
    Later,
    Set(CpuSet),
}

/// The update of each container, in the order in which they are given.
#[must_use]
pub fn compute_cpu_updates<'a>(
    state: &CpuState,
    containers: impl IntoIterator<Item = (&'a PodUid, &'a str, &'a ContainerCpuState)>,
) -> Vec<CpuUpdate> {
    containers.into_iter().map(|(pod, name, now)| update(state.cpus_of(pod, name), now)).collect()
}

fn update(cpus: &CpuSet, now: &ContainerCpuState) -> CpuUpdate {
    match now {
        ContainerCpuState::NotRunning => CpuUpdate::Later,
        ContainerCpuState::Exited => CpuUpdate::None,
        ContainerCpuState::Running { .. } if cpus.is_empty() => CpuUpdate::Later,
        ContainerCpuState::Running { set } if set.as_ref() == Some(cpus) => CpuUpdate::None,
        ContainerCpuState::Running { .. } => CpuUpdate::Set(cpus.clone()),
    }
}
