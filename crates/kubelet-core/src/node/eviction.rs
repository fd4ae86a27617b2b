//! Which resource of the node runs short, which pod is evicted for it, and what is reported about it
//! (docs/behaviour/eviction.md).
//!
//! Owns: thresholds and when they are met, the order in which pods are evicted, and the messages. Never: measuring, ending
//! a pod, or removing images. Which pods a node under pressure admits is decided in
//! [`resources_core::admission::pressure`].

pub mod alarm;
pub mod limits;
pub mod message;
pub mod observe;
pub mod pressure;
pub mod rank;
pub mod reclaim;
#[cfg(test)]
mod tests;
pub mod threshold;
pub mod usage;
pub mod view;

/// The eviction signals, named as in the configuration. The order is that in which shortages are relieved: memory first,
/// because a shortage of memory kills processes fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    MemoryAvailable,
    AllocatableMemoryAvailable,
    NodeFsAvailable,
    NodeFsInodesFree,
    ImageFsAvailable,
    ImageFsInodesFree,
    ContainerFsAvailable,
    ContainerFsInodesFree,
    PidAvailable,
}

/// The starved resource, named as in events and annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starved {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

/// The node condition that shows a shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PressureKind {
    Memory,
    Disk,
    Pids,
}

impl Signal {
    pub const ALL: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == name)
    }

    #[must_use]
    pub const fn starved(self) -> Starved {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Starved::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => {
                Starved::EphemeralStorage
            }
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => Starved::Inodes,
            Self::PidAvailable => Starved::Pids,
        }
    }

    #[must_use]
    pub const fn pressure(self) -> PressureKind {
        match self.starved() {
            Starved::Memory => PressureKind::Memory,
            Starved::EphemeralStorage | Starved::Inodes => PressureKind::Disk,
            Starved::Pids => PressureKind::Pids,
        }
    }
}

impl Starved {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

/// On which filesystems a pod's files are stored, as far as eviction needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskLayout {
    /// Everything is on the filesystem of the kubelet's directory.
    #[default]
    One,
    /// Images and writable layers have a filesystem of their own.
    ImagesApart,
    /// Images have a filesystem of their own; writable layers are elsewhere.
    Split,
}
