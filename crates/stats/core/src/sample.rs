//! One sample of the whole node: measurements of the machine, of system cgroups, and of each pod; and, less often, of the
//! disks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use model::stats::{FilesystemSpace, FilesystemUsage, TreeUsage, VolumeSample};
use model::{ContainerId, Now, PodRef, PodUid};

use super::cgroup::{CgroupSample, Detail, MemorySample};
use super::procfs::{Disk, Interface};

/// Measurements that are cheap enough to be taken on request.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSample {
    pub taken: Now,
    pub detail: Detail,
    pub machine: MachineSample,
    /// The root of all cgroups.
    pub root: Placed,
    pub system: Vec<SystemSample>,
    /// The cgroups of the QoS classes, with [`Detail::Full`] only.
    pub qos: Vec<Placed>,
    /// In the order of their UIDs.
    pub pods: Vec<PodSample>,
    /// Something that should exist could not be read.
    pub is_incomplete: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineSample {
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    pub booted: Timestamp,
    pub interfaces: Vec<Interface>,
    pub default_interface: Option<Box<str>>,
    pub tasks: Option<u64>,
    pub max_tasks: Option<u64>,
    /// With [`Detail::Full`] only.
    pub disks: Vec<Disk>,
    /// With [`Detail::Full`] only.
    pub filesystems: Vec<LocalFilesystem>,
}

/// A filesystem of the machine itself, on a block device or in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalFilesystem {
    /// `/dev/vda1`; for a filesystem in memory its mount point.
    pub device: Box<str>,
    pub space: FilesystemSpace,
}

/// A cgroup with its path and its CPU rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// `/kubepods/…`.
    pub path: Box<str>,
    pub cgroup: CgroupSample,
    /// Nanoseconds of CPU per second; `None` until there are two readings.
    pub rate: Option<u64>,
    /// When the runtime measured it; `None` for what was read when the sample was taken.
    pub measured_at: Option<Timestamp>,
}

/// A system cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemSample {
    /// `kubelet`, `runtime`, `misc` or `pods`.
    pub name: &'static str,
    pub started: Option<Timestamp>,
    pub placed: Placed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PodSample {
    pub pod: PodRef,
    pub started: Option<Timestamp>,
    /// The pod's own cgroup, if it has one.
    pub own: Option<Placed>,
    /// The pod sandbox.
    pub sandbox: Option<ContainerSample>,
    pub containers: Vec<ContainerSample>,
    /// For a pod in the node's network namespace, the node's interfaces.
    pub interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSample {
    pub id: ContainerId,
    /// Empty for a sandbox.
    pub name: Box<str>,
    /// The pause image for a sandbox; empty if the runtime does not report it.
    pub image: Box<str>,
    pub started: Timestamp,
    pub placed: Placed,
}

impl NodeSample {
    /// What all pods together use.
    #[must_use]
    pub fn pods_together(&self) -> Option<&Placed> {
        self.system.iter().find(|system| system.name == "pods").map(|system| &system.placed)
    }
}

impl PodSample {
    /// All parts of the pod that have a cgroup: the sandbox first.
    pub fn parts(&self) -> impl Iterator<Item = &ContainerSample> + Clone {
        self.sandbox.iter().chain(&self.containers)
    }

    /// The pod as a whole: its own cgroup, or else the sum of its parts.
    #[must_use]
    pub fn whole(&self) -> Placed {
        self.own.clone().unwrap_or_else(|| add_up(self.parts().map(|part| &part.placed)))
    }

    /// The pod's own cgroup contains no processes, so its parts are counted; a runtime counts those of the whole pod.
    #[must_use]
    pub fn processes(&self) -> Option<u64> {
        let of_runtime = self.own.as_ref().filter(|own| own.measured_at.is_some());
        sum(self.parts().map(|part| part.placed.cgroup.processes))
            .or_else(|| of_runtime.and_then(|own| own.cgroup.processes))
    }
}

/// The sum of several cgroups. It has a limit only if each has one, and no pressure, because waits do not add up.
#[must_use]
pub fn add_up<'a>(parts: impl Iterator<Item = &'a Placed> + Clone) -> Placed {
    let of = |field: fn(&CgroupSample) -> Option<u64>| sum(parts.clone().map(|part| field(&part.cgroup)));
    let memory = MemorySample {
        usage: of(|c| c.memory.usage),
        working_set: of(|c| c.memory.working_set),
        limit: None,
        rss: of(|c| c.memory.rss),
        cache: of(|c| c.memory.cache),
        mapped_file: of(|c| c.memory.mapped_file),
        active_file: of(|c| c.memory.active_file),
        inactive_file: of(|c| c.memory.inactive_file),
        swap: of(|c| c.memory.swap),
        swap_limit: None,
        page_faults: of(|c| c.memory.page_faults),
        major_page_faults: of(|c| c.memory.major_page_faults),
        tree_page_faults: of(|c| c.memory.tree_page_faults),
        tree_major_page_faults: of(|c| c.memory.tree_major_page_faults),
    };
    let cgroup = CgroupSample {
        cpu_nanoseconds: of(|c| c.cpu_nanoseconds),
        memory,
        processes: of(|c| c.processes),
        ..CgroupSample::default()
    };
    Placed { cgroup, rate: sum(parts.map(|part| part.rate)), ..Placed::default() }
}

/// `None` if no number is known.
fn sum(numbers: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    numbers.flatten().reduce(u64::saturating_add)
}

/// Measurements that need a walk over disks or calls to the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSample {
    pub taken: Now,
    /// The filesystem of the kubelet's root directory.
    pub node: Option<FilesystemSpace>,
    pub images: Option<RuntimeFilesystem>,
    pub containers: Option<RuntimeFilesystem>,
    pub pods: BTreeMap<PodUid, PodDisks>,
    /// It is unknown whether images and containers share the kubelet's filesystem, because the runtime did not answer.
    pub is_incomplete: bool,
}

/// A filesystem of the runtime: its capacity, and how much of it images (or containers) use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeFilesystem {
    pub space: FilesystemSpace,
    pub used: TreeUsage,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodDisks {
    pub volumes: Vec<VolumeSample>,
    /// By container.
    pub layers: BTreeMap<ContainerId, FilesystemUsage>,
    /// By the container's name.
    pub logs: BTreeMap<Box<str>, TreeUsage>,
    /// Files of the kubelet that the pod's containers can write: `/etc/hosts` and termination logs.
    pub files: TreeUsage,
}
