//! What pinning means for the cgroups of a pod and its containers.

use model::PodRef;
use model::containers::ContainerRef;
use model::k8s::Pod;
use model::request::LinuxResources;

use super::{PinPolicies, Pinned};
use crate::cpus::{CpuPolicy, disables_quota_of_container, disables_quota_of_pod};

/// The cpuset of a container. An empty text leaves it to the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerPins {
    /// `0-3,8`.
    pub cpus: String,
    /// `0,1`.
    pub memory_nodes: String,
    /// No CPU quota: the CPUs are its own.
    pub has_no_quota: bool,
}

impl ContainerPins {
    /// Removes the CPU quota, if the CPUs are the container's own.
    pub const fn lift_quota(&self, resources: &mut LinuxResources) {
        if self.has_no_quota {
            lift_quota(resources);
        }
    }
}

/// Removes the CPU quota. Nothing is changed if quotas are not enforced.
pub const fn lift_quota(resources: &mut LinuxResources) {
    if resources.cpu_period.is_some() {
        resources.cpu_quota = Some(-1);
    }
}

impl PinPolicies {
    #[must_use]
    pub fn pins_of(&self, pinned: &Pinned, pod: &Pod, container: &ContainerRef<'_>) -> ContainerPins {
        let uid = &PodRef::of(pod).uid;
        let cpus = match self.cpus {
            CpuPolicy::None => String::new(),
            CpuPolicy::Static(_) => pinned.cpus.cpus_of(uid, container.name()).to_string(),
        };
        let nodes = pinned.memory.nodes_of(uid, container.name());
        let nodes: Vec<String> =
            nodes.into_iter().flat_map(|nodes| nodes.ids()).map(|id| id.to_string()).collect();
        let has_no_quota = self.disables_quota
            && disables_quota_of_container(&pinned.cpus, pod, container, self.has_pod_level_managers);
        ContainerPins { cpus, memory_nodes: nodes.join(","), has_no_quota }
    }

    /// A quota of the pod would slow down a container whose CPUs are its own.
    #[must_use]
    pub fn disable_quota_of_pod(&self, pinned: &Pinned, pod: &Pod) -> bool {
        matches!(self.cpus, CpuPolicy::Static(_))
            && self.disables_quota
            && disables_quota_of_pod(&pinned.cpus, pod, self.has_pod_level_managers)
    }
}
