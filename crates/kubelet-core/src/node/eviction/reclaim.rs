//! What can be removed from a disk that runs short before a pod is evicted.

use super::{DiskLayout, Signal, Starved};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// Containers of pods that have ended.
    pub dead_containers: bool,
    /// Images that no container uses.
    pub images: bool,
}

impl Reclaim {
    #[must_use]
    pub const fn is_anything(self) -> bool {
        self.dead_containers || self.images
    }
}

/// Which of these are stored on the filesystem that runs short.
#[must_use]
pub const fn compute_reclaim(signal: Signal, layout: DiskLayout) -> Reclaim {
    let nothing = Reclaim { dead_containers: false, images: false };
    match signal.starved() {
        Starved::Memory | Starved::Pids => return nothing,
        Starved::EphemeralStorage | Starved::Inodes => {}
    }
    let is_of_images = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    match (layout, is_of_images) {
        (DiskLayout::One, _) | (DiskLayout::ImagesApart, true) => {
            Reclaim { dead_containers: true, images: true }
        }
        // Only logs and volumes are left there, and pods still use them.
        (DiskLayout::ImagesApart, false) => nothing,
        (DiskLayout::Split, true) => Reclaim { dead_containers: false, images: true },
        (DiskLayout::Split, false) => Reclaim { dead_containers: true, images: false },
    }
}
