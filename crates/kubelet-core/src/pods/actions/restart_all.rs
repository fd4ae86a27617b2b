//! `RestartAllContainers`: a container's exit restarts the whole pod in the same sandbox
//! (docs/behaviour/pod-lifecycle.md): everything is killed without grace and removed, the logs stay, and the init chain
//! starts from its first container.

use std::collections::BTreeSet;
use std::time::Duration;

use model::containers::{self, ContainerRef};
use model::{ContainerObservation, ContainerState};

use super::{Draft, kill, may_run, pending_restart};
use crate::pods::plan::{KillReason, RemoveContainer, RemoveReason, Waiting, WaitingReason};
use crate::pods::restart::AfterExit;

/// Fills the draft if a container asks for it and its back-off is over. Returns whether it does.
///
/// The exited source is both trigger and memory: it is removed last, so an interrupted step is taken up again.
pub(super) fn plan(draft: &mut Draft<'_>) -> bool {
    let pod = draft.inputs.pod;
    let all = || containers::init_containers(pod).chain(containers::regular_containers(pod));
    let sources: BTreeSet<&str> = all().filter(|c| asks_for_it(draft, c)).map(|c| c.name()).collect();
    if sources.is_empty() {
        return false;
    }
    // Regular containers go before the sidecars that serve them.
    let in_order = containers::regular_containers(pod).chain(containers::init_containers(pod));
    let affected: Vec<&ContainerObservation> =
        in_order.flat_map(|c| draft.inputs.observed.instances(c.name())).collect();
    draft.kill.extend(
        affected
            .iter()
            .filter(|c| may_run(c))
            .map(|c| kill(c, KillReason::RestartAllContainers, Some(Duration::ZERO))),
    );
    let (last, first): (Vec<&ContainerObservation>, Vec<_>) =
        affected.into_iter().partition(|c| sources.contains(&*c.name));
    draft.remove.extend(first.into_iter().map(|c| removal(c, RemoveReason::RestartAllContainers)));
    draft.remove.extend(last.into_iter().rev().map(|c| removal(c, RemoveReason::RestartAllSource)));
    draft.waiting.extend(
        all().map(|c| Waiting { container: c.name().into(), reason: WaitingReason::RestartingAllContainers }),
    );
    true
}

fn asks_for_it(draft: &Draft<'_>, container: &ContainerRef<'_>) -> bool {
    let Some(instance) = draft.newest_here(container.name()) else { return false };
    instance.state == ContainerState::Exited
        && matches!(draft.after_exit(container, instance), AfterExit::RestartsAll { .. })
        && pending_restart(draft.inputs, container).is_none()
}

fn removal(container: &ContainerObservation, why: RemoveReason) -> RemoveContainer {
    RemoveContainer { id: container.id.clone(), name: container.name.clone(), why }
}
