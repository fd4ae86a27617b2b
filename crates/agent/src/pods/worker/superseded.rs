//! Dead containers that newer ones of their name have replaced: they are removed when the next one ends, not by the next run of garbage
//! collection.

use kubelet_core::node::garbage_collection::compute_superseded;
use model::{ContainerObservation, ContainerState, PodObservation};

use super::PodWorker;

impl PodWorker {
    /// Removes what newer instances of containers that ended since the last observation have replaced.
    pub(super) fn remove_superseded(&self, observed: &PodObservation) {
        let before = self.observed.latest.as_ref();
        let has_ended = |container: &&ContainerObservation| {
            let was_seen =
                || before.and_then(|before| before.container(&container.id)).map(|seen| seen.state);
            container.state == ContainerState::Exited && was_seen() != Some(ContainerState::Exited)
        };
        let ended =
            observed.containers.iter().filter(has_ended).map(|container| container.name.clone()).collect();
        let flags = &self.handles.ctx.settings.flags;
        // Negative: no limit.
        let kept = usize::try_from(flags.maximum_dead_containers_per_container).unwrap_or(usize::MAX);
        for container in compute_superseded(observed, &ended, kept) {
            // Garbage collection finds what the queue has no space for.
            let _ = self.handles.node.superseded.try_send(container);
        }
    }
}
