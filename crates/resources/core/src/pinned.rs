//! CPUs and memory that pods have for themselves: what the CPU, memory and topology managers decide together.
//!
//! Owns the three policies of a machine as one value, their state as another, and the order in which they and the devices of a pod are
//! decided. The state is part of the [allocations](crate::allocations); no file and no cgroup is written here.

mod containers;
mod place;
mod policies;
mod provider;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::PodUid;

use crate::cpus::CpuState;
use crate::memory::MemoryState;

pub use containers::{ContainerPins, lift_quota};
pub use place::{Placement, compute_placement, compute_placement_after};
pub use policies::{PinPolicies, PinPolicyError, PinSettings};
pub use tally::{Alignment, Assignments, Attempts, CountByResource, Tally};

/// Who has which CPUs and which memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    pub cpus: CpuState,
    pub memory: MemoryState,
}

impl Pinned {
    /// Takes back what the pod has. Returns whether it had anything.
    pub fn release(&mut self, pod: &PodUid) -> bool {
        let had = self.cpus.assigned.contains_key(pod) || self.memory.containers.contains_key(pod);
        if had {
            self.cpus.release_inactive(|other, _| other != pod);
            self.memory.remove_pod(pod);
        }
        had
    }

    /// Takes back what containers have that are not active. Returns whether there were any.
    pub fn release_inactive(&mut self, is_active: impl Fn(&PodUid, &str) -> bool) -> bool {
        let count = |cpus: &CpuState| cpus.assigned.values().map(BTreeMap::len).sum::<usize>();
        let before = count(&self.cpus);
        self.cpus.release_inactive(&is_active);
        self.memory.retain(is_active) || count(&self.cpus) != before
    }
}
