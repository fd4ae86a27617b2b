//! The value of each eviction signal, from the samples of the node.

use stats_core::sample::{DiskSample, NodeSample, RuntimeFilesystem};

use super::{DiskLayout, Signal};
use model::stats::FilesystemSpace;

/// How much is available of which capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    pub available: i64,
    pub capacity: i64,
}

/// One observation. A signal that could not be measured is absent, and is neither crossed nor relieved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations([Option<Observation>; Signal::ALL.len()]);

impl Observations {
    #[must_use]
    pub fn get(&self, signal: Signal) -> Option<Observation> {
        self.0.get(signal as usize).copied().flatten()
    }

    pub fn set(&mut self, signal: Signal, observation: Option<Observation>) {
        if let Some(place) = self.0.get_mut(signal as usize) {
            *place = observation;
        }
    }
}

/// Reads the signals from the samples.
#[must_use]
pub fn observe(node: Option<&NodeSample>, disks: Option<&DiskSample>) -> Observations {
    let mut all = Observations::default();
    if let Some(node) = node {
        let used = node.root.cgroup.memory.working_set;
        all.set(Signal::MemoryAvailable, used.map(|used| left_of(node.machine.memory_bytes, used)));
        let pods = node.pods_together().map(|pods| &pods.cgroup.memory);
        let pods = pods.and_then(|memory| memory.limit.zip(memory.working_set));
        all.set(Signal::AllocatableMemoryAvailable, pods.map(|(limit, used)| left_of(limit, used)));
        let tasks = node.machine.max_tasks.zip(node.machine.tasks);
        // If more run than the limit allows, the result is negative.
        let tasks = tasks.map(|(most, running)| Observation {
            available: signed(most).saturating_sub(signed(running)),
            capacity: signed(most),
        });
        all.set(Signal::PidAvailable, tasks);
    }
    if let Some(disks) = disks {
        let space = |fs: &RuntimeFilesystem| fs.space;
        for (space, bytes, inodes) in [
            (disks.node, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
            (disks.images.as_ref().map(space), Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
            (
                disks.containers.as_ref().map(space),
                Signal::ContainerFsAvailable,
                Signal::ContainerFsInodesFree,
            ),
        ] {
            all.set(bytes, space.map(bytes_left));
            // Some filesystems create inodes on demand and report no count.
            all.set(inodes, space.filter(|space| space.inodes > 0).map(inodes_left));
        }
    }
    all
}

/// On which filesystems a pod's files are stored. `None`: the runtime has not reported it yet.
#[must_use]
pub fn disk_layout(disks: &DiskSample, may_split: bool) -> Option<DiskLayout> {
    let (node, images) = (disks.node?, disks.images.as_ref()?);
    if images.space.device == node.device {
        return Some(DiskLayout::One);
    }
    let is_split =
        disks.containers.as_ref().is_some_and(|containers| containers.space.device != images.space.device);
    Some(if is_split && may_split { DiskLayout::Split } else { DiskLayout::ImagesApart })
}

fn left_of(capacity: u64, used: u64) -> Observation {
    Observation { available: signed(capacity.saturating_sub(used)), capacity: signed(capacity) }
}

fn bytes_left(space: FilesystemSpace) -> Observation {
    Observation { available: signed(space.available_bytes), capacity: signed(space.capacity_bytes) }
}

fn inodes_left(space: FilesystemSpace) -> Observation {
    Observation { available: signed(space.inodes_free), capacity: signed(space.inodes) }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
