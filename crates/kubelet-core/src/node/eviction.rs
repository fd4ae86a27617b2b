//! Which resource of the node runs short, which pod has to go for it, and what is said about it (docs/behaviour/eviction.md).
//!
//! Owns: thresholds and when they count, the order in which pods go, and the texts. Never: measuring, ending a pod, or
//! removing images. What a node under pressure takes in is decided in [`crate::resources::admission::pressure`].

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

/// What is measured, in the words of the configuration. The order is that in which shortages are relieved: memory first,
/// because nothing else kills so fast.
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

/// What runs short, in the words of events and annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starved {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

/// Under which condition of the node a shortage is shown.
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

/// On which filesystems a pod's files lie, as far as it matters who is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskLayout {
    /// Everything is on the filesystem of the kubelet's directory.
    #[default]
    One,
    /// Images and what containers write have a filesystem of their own.
    ImagesApart,
    /// Images have a filesystem of their own, what containers write is elsewhere.
    Split,
}
