//! The order of eviction (docs/behaviour/eviction.md): first pods that use more than they requested, then those of low
//! priority, then those that exceed their request most.

use std::cmp::Reverse;

use model::containers::spec_of;
use model::k8s::Pod;
use model::stats::TreeUsage;
use resources_core::requests::pod_requests;

use super::usage::{Candidate, PodUsage, plus};
use super::{DiskLayout, Signal, Starved};

/// Smaller is evicted first. Pods without statistics come before others, because they may be the cause.
type Rank = (Reverse<bool>, Reverse<bool>, i32, Reverse<i64>);

/// Sorts the candidates into the order in which they are evicted for a shortage of that signal. The sort is stable.
pub fn rank(candidates: &mut [Candidate<'_>], signal: Signal, layout: DiskLayout) {
    candidates.sort_by_cached_key(|candidate| rank_of(candidate, signal, layout));
}

fn rank_of(candidate: &Candidate<'_>, signal: Signal, layout: DiskLayout) -> Rank {
    let pod = candidate.pod;
    let used = candidate.usage.as_ref().and_then(|usage| used(usage, signal, layout));
    let requested = requested(pod, signal.starved());
    let exceeds = match signal.starved() {
        // There are no requests of process IDs, so no pod exceeds one.
        Starved::Pids => false,
        Starved::Memory | Starved::EphemeralStorage | Starved::Inodes => {
            used.is_some_and(|used| used > requested)
        }
    };
    let beyond = used.map_or(i64::MAX, |used| used.saturating_sub(requested));
    let is_unknown = used.is_none() && signal.starved() != Starved::Pids;
    (Reverse(is_unknown), Reverse(exceeds), spec_of(pod).priority.unwrap_or(0), Reverse(beyond))
}

fn requested(pod: &Pod, starved: Starved) -> i64 {
    match starved {
        Starved::Memory | Starved::EphemeralStorage => {
            pod_requests(pod).get(starved.as_str()).map_or(0, |amount| amount.units())
        }
        Starved::Inodes | Starved::Pids => 0,
    }
}

fn used(usage: &PodUsage, signal: Signal, layout: DiskLayout) -> Option<i64> {
    let used = match signal.starved() {
        Starved::Memory => usage.memory?,
        Starved::Pids => usage.processes?,
        Starved::EphemeralStorage => on_filesystem(usage, signal, layout).bytes,
        Starved::Inodes => on_filesystem(usage, signal, layout).inodes,
    };
    Some(i64::try_from(used).unwrap_or(i64::MAX))
}

/// What the pod stores on the filesystem that runs short.
fn on_filesystem(usage: &PodUsage, signal: Signal, layout: DiskLayout) -> TreeUsage {
    let logs_and_volumes = plus(usage.logs(), plus(usage.volumes, usage.files));
    let is_of_images = match signal {
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree => true,
        Signal::MemoryAvailable
        | Signal::AllocatableMemoryAvailable
        | Signal::NodeFsAvailable
        | Signal::NodeFsInodesFree
        | Signal::ContainerFsAvailable
        | Signal::ContainerFsInodesFree
        | Signal::PidAvailable => false,
    };
    match (layout, is_of_images) {
        (DiskLayout::One, _) | (DiskLayout::Split, false) => plus(usage.layers(), logs_and_volumes),
        (DiskLayout::ImagesApart, true) => usage.layers(),
        (DiskLayout::ImagesApart, false) => logs_and_volumes,
        // Images belong to no pod in particular.
        (DiskLayout::Split, true) => TreeUsage::default(),
    }
}
