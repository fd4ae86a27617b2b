//! The memory usage at which the kernel notifies us, so that a shortage is found before the next observation.

use model::cgroup::MemoryMark;
use stats_core::sample::{NodeSample, Placed};

use super::Signal;
use super::threshold::Threshold;

/// One mark for each memory threshold that is not crossed yet. Thresholds refer to the working set and the kernel watches
/// the whole usage, so a mark is higher by the inactive file pages of the last observation.
#[must_use]
pub fn compute_memory_marks(thresholds: &[Threshold], node: &NodeSample) -> Vec<MemoryMark> {
    thresholds.iter().filter_map(|threshold| mark(threshold, node)).collect()
}

fn mark(threshold: &Threshold, node: &NodeSample) -> Option<MemoryMark> {
    let (capacity, placed) = whole(threshold.signal, node)?;
    let memory = &placed.cgroup.memory;
    let (usage, working_set) = memory.usage.zip(memory.working_set)?;
    let kept = threshold.level.of(i64::try_from(capacity).ok()?);
    let most = capacity.checked_sub(u64::try_from(kept).ok()?)?;
    let inactive_file = usage.saturating_sub(working_set);
    // This usage is still within the threshold; one byte more is not.
    let bytes = most.saturating_add(inactive_file).saturating_add(1);
    (usage < bytes).then(|| MemoryMark { cgroup: placed.path.clone(), bytes })
}

/// The whole capacity, and the cgroup in which its use is counted.
fn whole(signal: Signal, node: &NodeSample) -> Option<(u64, &Placed)> {
    match signal {
        Signal::MemoryAvailable => Some((node.machine.memory_bytes, &node.root)),
        Signal::AllocatableMemoryAvailable => {
            let pods = node.pods_together()?;
            Some((pods.cgroup.memory.limit?, pods))
        }
        Signal::NodeFsAvailable
        | Signal::NodeFsInodesFree
        | Signal::ImageFsAvailable
        | Signal::ImageFsInodesFree
        | Signal::ContainerFsAvailable
        | Signal::ContainerFsInodesFree
        | Signal::PidAvailable => None,
    }
}
