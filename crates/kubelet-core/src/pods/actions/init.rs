//! The init chain: init containers one after the other, sidecars started in line and then kept running
//! (docs/behaviour/pod-lifecycle.md).

use model::containers::{self, ContainerRef};
use model::{ContainerKind, ContainerObservation, ContainerState};

use super::{Draft, may_run};
use crate::pods::plan::{KillReason, RemoveContainer, RemoveReason, StartReason};
use crate::pods::probe::results::Verdict;
use crate::pods::restart::{AfterExit, has_failed};

/// How far the chain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something in it runs, starts or waits.
    Running,
    /// The regular containers may run.
    Done,
    /// An init container failed and does not restart.
    Failed,
}

/// Moves the chain one step on.
pub(super) fn advance(draft: &mut Draft<'_>) -> Progress {
    let chain: Vec<ContainerRef<'_>> = containers::init_containers(draft.inputs.pod).collect();
    prune(draft, &chain);
    // The runtime may have lost finished init containers. What came after them proves that they did their work.
    if has_initialized(draft) {
        keep_sidecars(draft, &chain);
        return Progress::Done;
    }
    let Some(first) = chain.first() else { return Progress::Done };
    let Some(last_seen) = chain.iter().rposition(|c| draft.newest_here(c.name()).is_some()) else {
        draft.start_first(first);
        return Progress::Running;
    };
    let (before, rest) = chain.split_at(last_seen);
    keep_sidecars(draft, before);
    let Some((container, after)) = rest.split_first() else { return Progress::Running };
    match advance_one(draft, container) {
        Link::Holding => Progress::Running,
        Link::Failed => Progress::Failed,
        Link::Passed => {
            let Some(next) = after.first() else { return Progress::Done };
            draft.start_first(next);
            Progress::Running
        }
    }
}

/// Where the chain's last seen container stands.
enum Link {
    Holding,
    Passed,
    Failed,
}

/// Whatever state a regular container is in, it was only created because the chain was done.
fn has_initialized(draft: &Draft<'_>) -> bool {
    containers::regular_containers(draft.inputs.pod).any(|c| draft.newest_here(c.name()).is_some())
}

fn keep_sidecars(draft: &mut Draft<'_>, chain: &[ContainerRef<'_>]) {
    for container in chain.iter().filter(|c| c.kind == ContainerKind::Sidecar) {
        keep_sidecar(draft, container);
    }
}

/// Keeps one sidecar running. Returns whether it counts as started.
fn keep_sidecar(draft: &mut Draft<'_>, container: &ContainerRef<'_>) -> bool {
    let Some(instance) = draft.newest_here(container.name()) else {
        draft.start_first(container);
        return false;
    };
    match instance.state {
        ContainerState::Created => draft.start(container, StartReason::CreatedNotStarted),
        // Is being killed.
        ContainerState::Unknown => {}
        ContainerState::Exited => {
            if let Some(why) = restart_reason(draft.after_exit(container, instance)) {
                draft.start(container, why);
            }
        }
        ContainerState::Running => return keep_running_sidecar(draft, container, instance),
    }
    false
}

fn keep_running_sidecar(
    draft: &mut Draft<'_>,
    container: &ContainerRef<'_>,
    instance: &ContainerObservation,
) -> bool {
    let startup = draft.inputs.memory.verdicts.get(&instance.id).startup;
    let is_started = container.startup_probe().is_none() || startup == Some(Verdict::Success);
    let reason = match is_started {
        true => draft.keep_running(container, instance),
        false => draft.reason_to_kill(container, instance),
    };
    let Some((why, grace)) = reason else { return is_started };
    draft.kill_instance(instance, why, grace);
    // A sidecar that started and is restarted now does not hold up the ones behind it.
    is_started
        && matches!(
            why,
            KillReason::LivenessFailed | KillReason::SpecChanged | KillReason::ResizeRequiresRestart
        )
}

fn advance_one(draft: &mut Draft<'_>, container: &ContainerRef<'_>) -> Link {
    match container.kind {
        ContainerKind::Sidecar if keep_sidecar(draft, container) => Link::Passed,
        ContainerKind::Sidecar => Link::Holding,
        ContainerKind::Init | ContainerKind::Regular | ContainerKind::Ephemeral => {
            advance_init_container(draft, container)
        }
    }
}

fn advance_init_container(draft: &mut Draft<'_>, container: &ContainerRef<'_>) -> Link {
    let Some(instance) = draft.newest_here(container.name()) else { return Link::Holding };
    match instance.state {
        ContainerState::Running => {
            draft.resize_init_container(container, instance);
            Link::Holding
        }
        // It is being killed.
        ContainerState::Unknown => Link::Holding,
        ContainerState::Created => {
            draft.start(container, StartReason::CreatedNotStarted);
            Link::Holding
        }
        ContainerState::Exited if !has_failed(container.kind, instance.into()) => Link::Passed,
        ContainerState::Exited => match restart_reason(draft.after_exit(container, instance)) {
            None => Link::Failed,
            Some(why) => {
                draft.start(container, why);
                Link::Holding
            }
        },
    }
}

/// A container whose exit restarts everything is held back only by its back-off, so until then it reads as a restart.
fn restart_reason(after: AfterExit) -> Option<StartReason> {
    match after {
        AfterExit::StaysDead => None,
        AfterExit::Restarts(why) => Some(why),
        AfterExit::RestartsAll { code } => Some(StartReason::RestartRule { code }),
    }
}

/// Removes dead instances of the chain: all but the newest dead one, and that too once a newer one runs in a newer
/// sandbox.
fn prune(draft: &mut Draft<'_>, chain: &[ContainerRef<'_>]) {
    for container in chain {
        let mut instances = draft.inputs.observed.instances(container.name());
        let Some(newest) = instances.next() else { continue };
        let mut dead_kept = newest.state == ContainerState::Exited;
        for older in instances.filter(|c| !may_run(c)) {
            let is_worth_keeping =
                older.state == ContainerState::Exited && older.sandbox_id == newest.sandbox_id && !dead_kept;
            if is_worth_keeping {
                dead_kept = true;
                continue;
            }
            let (id, name) = (older.id.clone(), older.name.clone());
            draft.remove.push(RemoveContainer { id, name, why: RemoveReason::OldInitInstance });
        }
    }
}
