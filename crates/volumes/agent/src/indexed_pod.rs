//! A pod while its volumes are mounted: its containers are read once for all of its volumes.

use std::sync::Arc;

use model::PodRef;
use model::k8s::{Pod, Volume};
use volumes_core::index::VolumeIndex;
use volumes_core::planned_pod::{PlannedPod, PodLimits};

/// A pod, with what mounting one of its volumes needs to know of the others.
#[derive(Debug)]
pub(super) struct IndexedPod {
    identity: PodRef,
    pod: Arc<Pod>,
    index: VolumeIndex,
    limits: PodLimits,
}

impl IndexedPod {
    pub(crate) fn new(pod: Arc<Pod>) -> Self {
        let (index, limits) = (VolumeIndex::of(&pod), PodLimits::of(&pod));
        Self { identity: PodRef::of(&pod), pod, index, limits }
    }

    pub(crate) const fn identity(&self) -> &PodRef {
        &self.identity
    }

    pub(crate) fn get(&self) -> &Pod {
        &self.pod
    }

    pub(crate) const fn index(&self) -> &VolumeIndex {
        &self.index
    }

    pub(super) fn planned(&self) -> PlannedPod<'_> {
        PlannedPod::with_limits(&self.pod, &self.limits)
    }

    /// The volume of that name.
    pub(crate) fn volume(&self, name: &str) -> Result<&Volume, String> {
        self.index.volume(&self.pod, name).ok_or_else(|| format!("the pod has no volume {name:?}"))
    }
}
