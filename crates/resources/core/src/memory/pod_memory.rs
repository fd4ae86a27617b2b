//! The memory of the node while one pod is admitted.
//!
//! Works on a copy of the state; the caller keeps the copy if the pod is admitted.

use model::containers::{ContainerRef, init_containers, regular_containers};
use model::k8s::Pod;
use model::{PodUid, QosClass};

use super::hints::Supply;
use super::reusable::Reusable;
use super::{Blocks, MemoryPolicy, MemoryState, requests};
use crate::topology::align::has_pod_level_resources;

/// The memory of the node under the policy `Static`, while this pod is admitted.
#[derive(Clone, Debug)]
pub struct PodMemory<'a> {
    pub(super) policy: &'a MemoryPolicy,
    pub(super) state: MemoryState,
    pub(super) reusable: Reusable,
}

impl<'a> PodMemory<'a> {
    #[must_use]
    pub fn new(policy: &'a MemoryPolicy, state: MemoryState) -> Self {
        Self { policy, state, reusable: Reusable::default() }
    }

    /// The state with what was allocated to the pod.
    #[must_use]
    pub fn into_state(self) -> MemoryState {
        self.state
    }

    /// What the container has.
    pub(crate) fn blocks_of(&self, pod: &Pod, container: &ContainerRef<'_>) -> Option<&Blocks> {
        self.state.of_container(&uid_of(pod), container.name())
    }

    /// The pod has memory that its containers divide.
    pub(crate) fn has_blocks_as_a_whole(&self, pod: &Pod) -> bool {
        self.state.pods.contains_key(&uid_of(pod))
    }

    /// The number of containers, and of those that request memory for themselves.
    pub(crate) fn count_containers(&self, pod: &Pod) -> (usize, usize) {
        let requests = containers(pod).map(|c| requests::of_container(&c, self.is_pod_level(pod)));
        let exclusive = requests.flatten().filter(|requests| !requests.is_empty());
        (containers(pod).count(), exclusive.count())
    }

    pub(super) fn supply(&self) -> Supply<'_> {
        Supply { nodes: &self.state.nodes, reusable: &self.reusable }
    }

    /// The pod has resources of its own, and gets memory of its own for them.
    pub(super) fn is_pod_level(&self, pod: &Pod) -> bool {
        self.policy.gates.managers && has_pod_level_resources(pod)
    }

    /// Only guaranteed pods get memory of certain nodes; pods with resources of their own only if the feature gates say so.
    pub(crate) fn is_aligned(&self, pod: &Pod) -> bool {
        let gates = self.policy.gates;
        QosClass::of(pod) == QosClass::Guaranteed
            && ((gates.managers && gates.resources) || !has_pod_level_resources(pod))
    }
}

pub(super) fn uid_of(pod: &Pod) -> PodUid {
    PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default())
}

/// In start order.
pub(super) fn containers(pod: &Pod) -> impl Iterator<Item = ContainerRef<'_>> {
    init_containers(pod).chain(regular_containers(pod))
}
