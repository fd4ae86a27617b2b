//! The regular containers: started in the order of the spec once the init chain is done, and restarted by policy
//! (docs/behaviour/pod-lifecycle.md).

use model::ContainerState;
use model::containers::{self, ContainerRef};

use super::Draft;
use crate::pods::plan::StartReason;
use crate::pods::restart::{AfterExit, restarts_after_kill};

/// Decides about each regular container. Returns whether any of them lives or will live again.
pub(super) fn advance(draft: &mut Draft<'_>) -> bool {
    let mut any_lives = false;
    for container in containers::regular_containers(draft.inputs.pod) {
        any_lives |= advance_one(draft, &container);
    }
    any_lives
}

fn advance_one(draft: &mut Draft<'_>, container: &ContainerRef<'_>) -> bool {
    let Some(instance) = draft.newest(container.name()) else {
        draft.start(container, StartReason::NeverStarted);
        return true;
    };
    let is_here = instance.sandbox_id == *draft.sandbox;
    match instance.state {
        // These are being killed already, and decided about once they are dead.
        ContainerState::Unknown => {}
        ContainerState::Running if !is_here => {}
        ContainerState::Running => {
            if let Some((why, grace)) = draft.keep_running(container, instance) {
                draft.kill_instance(instance, why, grace);
                return restarts_after_kill(draft.inputs.pod, container, why, draft.inputs.features);
            }
        }
        ContainerState::Created if is_here => draft.start(container, StartReason::CreatedNotStarted),
        ContainerState::Created => draft.start(container, StartReason::NewSandbox),
        ContainerState::Exited => {
            let why = match draft.after_exit(container, instance) {
                AfterExit::StaysDead => return false,
                AfterExit::Restarts(_) | AfterExit::RestartsAll { .. } if !is_here => StartReason::NewSandbox,
                AfterExit::Restarts(why) => why,
                AfterExit::RestartsAll { code } => StartReason::RestartRule { code },
            };
            draft.start(container, why);
        }
    }
    true
}
