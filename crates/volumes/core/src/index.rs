//! What a pod's containers do with each of its volumes, found in one pass over the pod for all of them. A pod may have thousands of
//! volumes and of mounts, so a search through the mounts for each volume would take minutes.

use std::collections::{BTreeMap, BTreeSet};

use model::containers::{ContainerRef, all_containers, spec_of};
use model::k8s::{Pod, Volume};

use super::nested::mount_points;

/// The volumes of one pod, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeIndex {
    uses: BTreeMap<Box<str>, VolumeUse>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct VolumeUse {
    /// In the spec's list of volumes.
    position: Option<usize>,
    is_mapped: bool,
    /// The containers that mount it: their positions among all containers.
    users: BTreeSet<usize>,
    /// Mount points inside it, relative to it: the outermost of each branch.
    nested: BTreeSet<String>,
}

impl VolumeIndex {
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let mut uses: BTreeMap<Box<str>, VolumeUse> = BTreeMap::new();
        for (position, volume) in spec_of(pod).volumes.iter().flatten().enumerate() {
            uses.entry((&*volume.name).into()).or_default().position.get_or_insert(position);
        }
        for (position, container) in all_containers(pod).enumerate() {
            for mount in container.volume_mounts() {
                uses.entry((&*mount.name).into()).or_default().users.insert(position);
            }
            for device in container.volume_devices() {
                uses.entry((&*device.name).into()).or_default().is_mapped = true;
            }
            for (volume, point) in mount_points(container.volume_mounts()) {
                uses.entry(volume.into()).or_default().nested.insert(point);
            }
        }
        Self { uses }
    }

    /// The volume of that name; the pod must be the one of the index.
    #[must_use]
    pub fn volume<'p>(&self, pod: &'p Pod, name: &str) -> Option<&'p Volume> {
        let position = self.uses.get(name)?.position?;
        spec_of(pod).volumes.as_deref()?.get(position)
    }

    /// The containers that mount the volume; the pod must be the one of the index.
    pub fn users<'p>(&self, pod: &'p Pod, name: &str) -> impl Iterator<Item = ContainerRef<'p>> {
        let users = self.uses.get(name).map(|of_volume| &of_volume.users);
        let last = users.and_then(|users| users.last()).map_or(0, |position| position + 1);
        let containers = all_containers(pod).take(last).enumerate();
        let is_user = move |position: &usize| users.is_some_and(|users| users.contains(position));
        containers.filter(move |(position, _)| is_user(position)).map(|(_, container)| container)
    }

    pub(super) fn is_mounted(&self, name: &str) -> bool {
        self.uses.get(name).is_some_and(|of_volume| !of_volume.users.is_empty())
    }

    pub(super) fn is_mapped(&self, name: &str) -> bool {
        self.uses.get(name).is_some_and(|of_volume| of_volume.is_mapped)
    }

    /// Mount points inside the volume, relative to it.
    pub fn nested(&self, name: &str) -> impl Iterator<Item = &String> {
        self.uses.get(name).into_iter().flat_map(|of_volume| &of_volume.nested)
    }
}
