//! The pod lifecycle event generator: which pods must be observed again, from two listings of the runtime.
//!
//! Owns: the comparison, and when a relist is overdue. Never: listing, inspecting a pod. Events are hints: a lost event
//! causes a delay, not a wrong state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use model::{
    ContainerId, ContainerObservation, ContainerState, MonoTime, PodUid, SandboxId, SandboxState, SmallMap,
};

use config::{Features, GoDuration};

/// Relist period.
const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// The same while the runtime sends container events, with the gate `EventedPLEG`.
const RARE_RELIST_PERIOD: Duration = Duration::from_secs(300);
/// The same while the node has no pod.
const EMPTY_RELIST_PERIOD: Duration = Duration::from_secs(10);
const MAX_INSPECTION_RETRY: Duration = Duration::from_secs(10);
/// How long after a container was killed the runtime may still add the reason: under load it gets the kernel's report late.
const LAST_WORD: Duration = Duration::from_secs(10);
/// The exit code of a process that was killed.
const KILLED: i32 = 137;
const OOM_KILLED: &str = "OOMKilled";
/// Age of the last relist from which the node is not ready.
const RELIST_THRESHOLD: Duration = Duration::from_secs(3 * 60);
/// The same with the longer relist period.
const RARE_RELIST_THRESHOLD: Duration = Duration::from_secs(10 * 60);

/// What decides how soon the runtime is listed again.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelistNeed {
    /// Events of the runtime report every change.
    pub are_events_complete: bool,
    /// A pod waits for the next relist.
    pub is_owing: bool,
    /// The last relist failed, so that what is known is older.
    pub has_failed: bool,
    /// The runtime has no pod, and no worker follows one.
    pub is_node_empty: bool,
}

/// From the end of one relist to the next. It may only be longer while no worker needs one: workers get their looks without it, no pod
/// is owed one, the last one was answered, and either events report all or there is no pod that could change.
#[must_use]
pub const fn relist_period(features: Features, need: RelistNeed) -> Duration {
    if !features.on_demand_relist || need.is_owing || need.has_failed {
        return RELIST_PERIOD;
    }
    match (features.evented_pleg && need.are_events_complete, need.is_node_empty) {
        (true, _) => RARE_RELIST_PERIOD,
        (false, true) => EMPTY_RELIST_PERIOD,
        (false, false) => RELIST_PERIOD,
    }
}

/// How long an inspection that has failed this often in a row (at least once) waits before it is repeated, if nothing of the pod
/// changes before.
#[must_use]
pub fn inspection_retry_delay(failures: u32) -> Duration {
    let factor = 1 << failures.saturating_sub(1).min(8);
    RELIST_PERIOD.saturating_mul(factor).min(MAX_INSPECTION_RETRY)
}

/// The runtime's list of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodListing {
    pub sandboxes: SmallMap<SandboxId, SandboxState>,
    pub containers: SmallMap<ContainerId, ContainerState>,
}

impl PodListing {
    /// Something of the pod runs, or it is not known whether it does.
    #[must_use]
    pub fn may_run(&self) -> bool {
        let may_run = |state: &ContainerState| match state {
            ContainerState::Running | ContainerState::Unknown => true,
            ContainerState::Created | ContainerState::Exited => false,
        };
        self.containers.values().any(may_run) || self.sandboxes.values().any(|s| *s == SandboxState::Ready)
    }
}

/// One listing of the whole runtime.
pub type Listing = BTreeMap<PodUid, PodListing>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodLifecycleEvent {
    pub pod: PodUid,
    pub what: PodLifecycle,
}

/// A lifecycle event of a pod. Sandboxes count like containers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodLifecycle {
    ContainerStarted(Instance),
    ContainerDied(Instance),
    ContainerRemoved(Instance),
    /// Its state is unknown.
    ContainerChanged(Instance),
    /// Nothing changed in the list, but the pod must be observed again, because the last observation failed.
    PodSync,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instance {
    Sandbox(SandboxId),
    Container(ContainerId),
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sandbox(id) => id.fmt(f),
            Self::Container(id) => id.fmt(f),
        }
    }
}

/// The outcome of one relist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlegDiff {
    /// Pods to be observed again before their events are sent.
    pub look: BTreeSet<PodUid>,
    /// In order of pods; of one pod, containers before sandboxes.
    pub events: Vec<PodLifecycleEvent>,
}

/// Compares two listings. `reinspect` are pods whose last observation failed: they are observed again even if nothing changed.
#[must_use]
pub fn compute_pleg_diff(old: &Listing, new: &Listing, reinspect: &BTreeSet<PodUid>) -> PlegDiff {
    let mut diff = PlegDiff::default();
    let pods: BTreeSet<&PodUid> = old.keys().chain(new.keys()).chain(reinspect).collect();
    let nothing = PodListing::default();
    for pod in pods {
        let (before, after) = (old.get(pod).unwrap_or(&nothing), new.get(pod).unwrap_or(&nothing));
        let mut happened = pod_events(before, after);
        if happened.is_empty() && reinspect.contains(pod) {
            happened.push(PodLifecycle::PodSync);
        }
        if !happened.is_empty() {
            diff.look.insert(pod.clone());
            diff.events.extend(happened.into_iter().map(|what| PodLifecycleEvent { pod: pod.clone(), what }));
        }
    }
    diff
}

/// Nothing that the runtime says of an ended container changes any more. Only that memory was the reason comes later than
/// the end itself: the kernel reports both separately.
#[must_use]
pub fn is_final(container: &ContainerObservation, now: Timestamp) -> bool {
    let has_ended = container.state == ContainerState::Exited;
    let may_be_for_memory = container.exit_code == KILLED && container.reason != OOM_KILLED;
    let is_fresh = container.finished_at.is_some_and(|at| now.duration_since(at).unsigned_abs() < LAST_WORD);
    has_ended && !(may_be_for_memory && is_fresh)
}

/// The message for the node's Ready condition if the relist is overdue, after the prefix `PLEG is not healthy: `.
#[must_use]
pub fn relist_problem(last: Option<MonoTime>, now: MonoTime, features: Features) -> Option<String> {
    let Some(last) = last else { return Some("pleg has yet to be successful".to_owned()) };
    let ago = now.saturating_since(last);
    let threshold = if features.evented_pleg { RARE_RELIST_THRESHOLD } else { RELIST_THRESHOLD };
    (ago > threshold).then(|| {
        let (ago, threshold) = (GoDuration::from(ago), GoDuration::from(threshold));
        format!("pleg was last seen active {ago} ago; threshold is {threshold}")
    })
}

/// A state as lifecycle events see it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Absent,
    Between,
    Running,
    Exited,
}

impl Life {
    fn of_container(state: Option<&ContainerState>) -> Self {
        match state {
            None => Self::Absent,
            Some(ContainerState::Created | ContainerState::Unknown) => Self::Between,
            Some(ContainerState::Running) => Self::Running,
            Some(ContainerState::Exited) => Self::Exited,
        }
    }

    fn of_sandbox(state: Option<&SandboxState>) -> Self {
        match state {
            None => Self::Absent,
            Some(SandboxState::Ready) => Self::Running,
            Some(SandboxState::NotReady) => Self::Exited,
        }
    }
}

fn pod_events(before: &PodListing, after: &PodListing) -> Vec<PodLifecycle> {
    let containers: BTreeSet<_> = before.containers.keys().chain(after.containers.keys()).collect();
    let sandboxes: BTreeSet<_> = before.sandboxes.keys().chain(after.sandboxes.keys()).collect();
    let of_containers =
        containers.into_iter().filter(|id| !is_only_created(before, after, id)).flat_map(|id| {
            let old = Life::of_container(before.containers.get(id));
            let new = Life::of_container(after.containers.get(id));
            instance_events(&Instance::Container(id.clone()), old, new)
        });
    let of_sandboxes = sandboxes.into_iter().flat_map(|id| {
        let old = Life::of_sandbox(before.sandboxes.get(id));
        let new = Life::of_sandbox(after.sandboxes.get(id));
        instance_events(&Instance::Sandbox(id.clone()), old, new)
    });
    of_containers.chain(of_sandboxes).collect()
}

/// Whoever creates a container inspects its pod afterwards, and its start is an event.
fn is_only_created(before: &PodListing, after: &PodListing, id: &ContainerId) -> bool {
    !before.containers.contains_key(id) && after.containers.get(id) == Some(&ContainerState::Created)
}

fn instance_events(instance: &Instance, old: Life, new: Life) -> Vec<PodLifecycle> {
    if old == new {
        return Vec::new();
    }
    let id = || instance.clone();
    match new {
        Life::Running => vec![PodLifecycle::ContainerStarted(id())],
        Life::Exited => vec![PodLifecycle::ContainerDied(id())],
        Life::Between => vec![PodLifecycle::ContainerChanged(id())],
        // Its end was reported when it exited.
        Life::Absent if old == Life::Exited => vec![PodLifecycle::ContainerRemoved(id())],
        Life::Absent => vec![PodLifecycle::ContainerDied(id()), PodLifecycle::ContainerRemoved(id())],
    }
}

#[cfg(test)]
mod tests;
