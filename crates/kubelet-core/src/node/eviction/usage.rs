//! What a pod uses of the resources that may run short, from the samples.

use model::k8s::Pod;
use model::stats::{FilesystemUsage, TreeUsage};
use model::{ContainerId, PodObservation};

use stats_core::sample::{PodDisks, PodSample};

/// `None` is unknown, not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// The working set.
    pub memory: Option<u64>,
    pub processes: Option<u64>,
    pub containers: Vec<ContainerUsage>,
    /// Volumes on the disk of the node: no persistent volume claims, nothing in memory.
    pub volumes: TreeUsage,
    /// Files of the kubelet that the pod's containers can write: `/etc/hosts` and termination logs.
    pub files: TreeUsage,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    pub name: Box<str>,
    pub memory: Option<u64>,
    /// Its writable layer.
    pub layer: Option<TreeUsage>,
    pub logs: Option<TreeUsage>,
}

impl ContainerUsage {
    /// `None` unless both parts are known.
    #[must_use]
    pub fn storage_bytes(&self) -> Option<u64> {
        self.layer.zip(self.logs).map(|(layer, logs)| layer.bytes.saturating_add(logs.bytes))
    }
}

impl PodUsage {
    /// The usage from the samples; without a disk sample of the node, storage is unknown.
    #[must_use]
    pub fn of(sample: &PodSample, disks: Option<&PodDisks>) -> Self {
        let nothing = PodDisks::default();
        let disks = disks.unwrap_or(&nothing);
        let containers = sample.containers.iter().map(|container| ContainerUsage {
            memory: container.placed.cgroup.memory.working_set,
            ..stored(&container.id, &container.name, disks)
        });
        Self {
            memory: sample.whole().cgroup.memory.working_set,
            processes: sample.processes(),
            containers: containers.collect(),
            volumes: local_volumes(disks),
            files: disks.files,
        }
    }

    /// Only the pod's use of disks.
    #[must_use]
    pub fn of_storage(observed: &PodObservation, disks: &PodDisks) -> Self {
        let containers = observed.running().map(|container| stored(&container.id, &container.name, disks));
        Self {
            containers: containers.collect(),
            volumes: local_volumes(disks),
            files: disks.files,
            ..Self::default()
        }
    }

    /// The writable layers of the containers.
    #[must_use]
    pub fn layers(&self) -> TreeUsage {
        self.containers.iter().filter_map(|container| container.layer).fold(TreeUsage::default(), plus)
    }

    #[must_use]
    pub fn logs(&self) -> TreeUsage {
        self.containers.iter().filter_map(|container| container.logs).fold(TreeUsage::default(), plus)
    }
}

fn stored(id: &ContainerId, name: &str, disks: &PodDisks) -> ContainerUsage {
    let layer = |usage: &FilesystemUsage| {
        Some(TreeUsage { bytes: usage.used_bytes?, inodes: usage.inodes_used.unwrap_or(0) })
    };
    ContainerUsage {
        name: name.into(),
        memory: None,
        layer: disks.layers.get(id).and_then(layer),
        logs: disks.logs.get(name).copied(),
    }
}

/// On the disk of the node: no persistent volume claims, nothing in memory.
fn local_volumes(disks: &PodDisks) -> TreeUsage {
    let local = disks.volumes.iter().filter(|volume| !volume.is_off_disk && volume.claim.is_none());
    local.map(|volume| volume.used).fold(TreeUsage::default(), plus)
}

#[must_use]
pub(super) fn plus(a: TreeUsage, b: TreeUsage) -> TreeUsage {
    TreeUsage { bytes: a.bytes.saturating_add(b.bytes), inodes: a.inodes.saturating_add(b.inodes) }
}

/// A pod that may have to go, with what it uses; `None`: nothing is known of it.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub pod: &'a Pod,
    pub usage: Option<PodUsage>,
}
