//! The end of the machine (docs/behaviour/node-shutdown.md): which pods are ended in which order and how fast, what the pods
//! and the node say of it, and what is kept about it on disk.
//!
//! Never ends a pod, and never asks whether the machine ends.

mod times;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use config::{Features, KubeletConfiguration};
use model::PodRef;
use model::containers::spec_of;
use model::k8s::{Pod, PodStatus};

pub use times::ShutdownTimes;

use crate::pod_kind::CRITICAL_PRIORITY;
use crate::pod_kind::is_static_pod;
use crate::resources::admission::SHUTTING_DOWN;

/// The reason and the message of a pod that ended with its node.
pub const TERMINATED: (&str, &str) =
    ("Terminated", "Pod was terminated in response to imminent node shutdown.");

/// What keeps the node from being ready, in the words of its condition.
pub const PROBLEM: &str = "node is shutting down";
/// The reason of events about the node.
pub const EVENT: &str = "Shutdown";
pub const DETECTED: &str = "Shutdown manager detected shutdown event";
pub const CANCELLED: &str = "Shutdown manager detected shutdown cancellation";
/// The name of the file below the root directory that keeps [`ShutdownTimes`].
pub const STATE_FILE: &str = "graceful_node_shutdown_state";

/// What pods of this priority and above, up to the next one, get together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPeriod {
    pub priority: i32,
    pub seconds: u32,
}

/// The groups of pods and their periods, by priority; none where pods end with the machine and nobody cares.
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
    // Validation has refused the second, and without it nothing could be shared out.
    if whole_time.is_zero() || whole_time < critical {
        return Vec::new();
    }
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    vec![
        GroupPeriod { priority: 0, seconds: seconds(whole_time.saturating_sub(critical)) },
        GroupPeriod { priority: CRITICAL_PRIORITY, seconds: seconds(critical) },
    ]
}

/// Validation has refused what is negative.
fn whole(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// How long the end of the machine must be held up at most.
#[must_use]
pub fn compute_delay(periods: &[GroupPeriod]) -> Duration {
    periods.iter().map(|period| Duration::from_secs(period.seconds.into())).sum()
}

/// The drop-in by which logind lets somebody hold up the end for so long.
#[must_use]
pub fn logind_drop_in(delay: Duration) -> String {
    let mut text =
        String::from("# Written by the kubelet, which needs this time to end its pods.\n[Login]\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "InhibitDelayMaxSec={}", delay.as_secs());
    text
}

/// Pods that end together, before those of the next group are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    pub priority: i32,
    /// They are waited for no longer.
    pub within: Duration,
    pub pods: Vec<PodEnd>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    pub pod: PodRef,
    /// What it gets, if it has not been given less before.
    pub grace_seconds: i64,
}

/// Which pods end in which order, those of low priority first. Groups without pods take no time.
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
        let place = place_of(periods, spec.priority.unwrap_or(0));
        let (Some(period), Some(group)) = (periods.get(place), groups.get_mut(place)) else { continue };
        let most = i64::from(period.seconds);
        let grace_seconds = spec.termination_grace_period_seconds.map_or(most, |own| own.min(most));
        group.pods.push(PodEnd { pod: PodRef::of(pod), grace_seconds });
    }
    groups.retain(|group| !group.pods.is_empty());
    groups
}

/// The group of a priority: the last that begins at or below it; what is below all of them belongs to the first.
fn place_of(periods: &[GroupPeriod], priority: i32) -> usize {
    let place = periods.partition_point(|period| period.priority < priority);
    match periods.get(place) {
        Some(period) if period.priority == priority => place,
        Some(_) | None => place.saturating_sub(1),
    }
}

/// What follows from a look at the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Stay,
    /// The machine is about to end.
    Begin,
    /// It is not, after all.
    TakeBack,
}

#[must_use]
pub const fn compute_turn(was_ending: bool, is_ending: bool) -> Turn {
    match (was_ending, is_ending) {
        (false, true) => Turn::Begin,
        (true, false) => Turn::TakeBack,
        (true, true) | (false, false) => Turn::Stay,
    }
}

/// The pod ended with the machine, or came too late, and is due again with the next kubelet: a static pod has nobody who
/// would put another one in its place.
#[must_use]
pub fn begins_again(pod: &Pod, said: &PodStatus) -> bool {
    let reason = said.reason.as_deref().unwrap_or_default();
    let has_ended = said.phase.as_deref() == Some("Failed");
    is_static_pod(pod) && has_ended && [TERMINATED.0, SHUTTING_DOWN.0].contains(&reason)
}

#[cfg(test)]
mod tests;
