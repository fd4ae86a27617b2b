//! Graceful node shutdown (docs/behaviour/node-shutdown.md): which pods are ended in which order and how fast, what the
//! pods and the node report, and what is stored about it on disk.
//!
//! Never ends a pod, and never queries whether the machine shuts down.

mod times;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use config::{Features, KubeletConfiguration};
use model::PodRef;
use model::containers::spec_of;
use model::k8s::{Pod, PodStatus};

pub use times::ShutdownTimes;

use base_core::pod_kind::CRITICAL_PRIORITY;
use base_core::pod_kind::is_static_pod;

use resources_core::admission::SHUTTING_DOWN;

/// The reason and the message of a pod that was ended by the shutdown.
pub const TERMINATED: (&str, &str) =
    ("Terminated", "Pod was terminated in response to imminent node shutdown.");

/// Why the node is not ready, in the message of its Ready condition.
pub const PROBLEM: &str = "node is shutting down";
/// The reason of events about the node.
pub const EVENT: &str = "Shutdown";
pub const DETECTED: &str = "Shutdown manager detected shutdown event";
pub const CANCELLED: &str = "Shutdown manager detected shutdown cancellation";
/// The name of the file in the root directory that stores [`ShutdownTimes`].
pub const STATE_FILE: &str = "graceful_node_shutdown_state";

/// The shutdown period shared by pods of this priority and above, up to the next priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPeriod {
    pub priority: i32,
    pub seconds: u32,
}

/// The groups of pods and their periods, by priority; empty if graceful shutdown is disabled.
#[must_use]
pub fn compute_periods(config: &KubeletConfiguration, features: Features) -> Vec<GroupPeriod> {
    let by_priority = &config.shutdown_grace_period_by_pod_priority;
    let mut periods: Vec<GroupPeriod> = match (features.graceful_shutdown, by_priority.as_slice()) {
        (false, _) => Vec::new(),
        (true, []) => simple_periods(config),
        (true, _) if !features.graceful_shutdown_by_priority => simple_periods(config),
        (true, entries) => entries
            .iter()
            .map(|entry| GroupPeriod {
                priority: entry.priority,
                seconds: whole(entry.shutdown_grace_period_seconds),
            })
            .collect(),
    };
    periods.sort_by_key(|period| period.priority);
    periods
}

/// Two groups: critical pods, and the others before them.
fn simple_periods(config: &KubeletConfiguration) -> Vec<GroupPeriod> {
    let (whole_time, critical) =
        (config.shutdown_grace_period.as_std(), config.shutdown_grace_period_critical_pods.as_std());
    // Validation has rejected a critical period that is longer than the whole.
    if whole_time.is_zero() || whole_time < critical {
        return Vec::new();
    }
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    vec![
        GroupPeriod { priority: 0, seconds: seconds(whole_time.saturating_sub(critical)) },
        GroupPeriod { priority: CRITICAL_PRIORITY, seconds: seconds(critical) },
    ]
}

/// Validation has rejected negative values.
fn whole(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// How long the shutdown must be delayed at max.
#[must_use]
pub fn compute_delay(periods: &[GroupPeriod]) -> Duration {
    periods.iter().map(|period| Duration::from_secs(period.seconds.into())).sum()
}

/// The drop-in that raises logind's maximum inhibitor delay to this time.
#[must_use]
pub fn logind_drop_in(delay: Duration) -> String {
    let mut text =
        String::from("# Written by the kubelet, which needs this time to end its pods.\n[Login]\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "InhibitDelayMaxSec={}", delay.as_secs());
    text
}

/// Pods that end together, before the next group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    pub priority: i32,
    /// The time after which the next group begins.
    pub within: Duration,
    pub pods: Vec<PodEnd>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    pub pod: PodRef,
    /// Its grace period, unless it has a shorter one already.
    pub grace_seconds: i64,
}

/// Which pods end in which order, low priority first. Groups without pods take no time.
#[must_use]
pub fn compute_groups(periods: &[GroupPeriod], pods: &[Arc<Pod>]) -> Vec<PodGroup> {
    let mut groups: Vec<PodGroup> = periods
        .iter()
        .map(|period| PodGroup {
            priority: period.priority,
            within: Duration::from_secs(period.seconds.into()),
            pods: Vec::new(),
        })
        .collect();
    for pod in pods {
        let spec = spec_of(pod);
        let index = group_index(periods, spec.priority.unwrap_or(0));
        let (Some(period), Some(group)) = (periods.get(index), groups.get_mut(index)) else { continue };
        let max = i64::from(period.seconds);
        let grace_seconds = spec.termination_grace_period_seconds.map_or(max, |own| own.min(max));
        group.pods.push(PodEnd { pod: PodRef::of(pod), grace_seconds });
    }
    groups.retain(|group| !group.pods.is_empty());
    groups
}

/// The group of a priority: the last that begins at or below it; a priority below all groups belongs to the first.
fn group_index(periods: &[GroupPeriod], priority: i32) -> usize {
    let index = periods.partition_point(|period| period.priority < priority);
    match periods.get(index) {
        Some(period) if period.priority == priority => index,
        Some(_) | None => index.saturating_sub(1),
    }
}

/// What changed between two observations of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownChange {
    Unchanged,
    /// The machine is about to shut down.
    Begin,
    /// The shutdown was cancelled.
    Cancel,
}

#[must_use]
pub const fn compute_shutdown_change(was_ending: bool, is_ending: bool) -> ShutdownChange {
    match (was_ending, is_ending) {
        (false, true) => ShutdownChange::Begin,
        (true, false) => ShutdownChange::Cancel,
        (true, true) | (false, false) => ShutdownChange::Unchanged,
    }
}

/// The pod ended with the machine, or was rejected during the shutdown, and starts again with the next kubelet: no
/// controller would replace a static pod.
#[must_use]
pub fn begins_again(pod: &Pod, status: &PodStatus) -> bool {
    let reason = status.reason.as_deref().unwrap_or_default();
    let has_ended = status.phase.as_deref() == Some("Failed");
    is_static_pod(pod) && has_ended && [TERMINATED.0, SHUTTING_DOWN.0].contains(&reason)
}

#[cfg(test)]
mod tests;
