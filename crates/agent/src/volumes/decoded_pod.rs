//! A pod while its volumes are mounted: decoded once, and its containers read once, for all of its volumes.

use std::sync::Arc;

use model::k8s::{Pod, Volume};
use model::{KeptPod, PodRef};
use volumes_core::index::VolumeIndex;
use volumes_core::planned_pod::{PlannedPod, PodLimits};

/// A pod, with what mounting one of its volumes needs to know of the others.
#[derive(Debug)]
pub(super) struct DecodedPod {
    kept: KeptPod,
    pod: Arc<Pod>,
    index: VolumeIndex,
    limits: PodLimits,
}

impl DecodedPod {
    pub(super) fn new(kept: KeptPod) -> Self {
        let pod = kept.get();
        let (index, limits) = (VolumeIndex::of(&pod), PodLimits::of(&pod));
        Self { kept, pod, index, limits }
    }

    pub(super) fn identity(&self) -> &PodRef {
        self.kept.identity()
    }

    pub(super) fn get(&self) -> &Pod {
        &self.pod
    }

    pub(super) const fn index(&self) -> &VolumeIndex {
        &self.index
    }

    pub(super) fn planned(&self) -> PlannedPod<'_> {
        PlannedPod::with_limits(&self.pod, &self.limits)
    }

    /// The volume of that name.
    pub(super) fn volume(&self, name: &str) -> Result<&Volume, String> {
        self.index.volume(&self.pod, name).ok_or_else(|| format!("the pod has no volume {name:?}"))
    }
}
