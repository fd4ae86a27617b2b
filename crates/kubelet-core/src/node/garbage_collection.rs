//! Which dead containers, dead sandboxes, log directories and log links are removed.
//!
//! Owns: the choice, as a plan with a reason for each removal. Never: removing anything; images and volumes.
//!
//! The newest instance of a container of a live pod always stays: the next decision about the pod reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::{
    ContainerId, ContainerObservation, ContainerState, PodObservation, PodUid, SandboxId, SandboxState,
};

/// A container, from the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcContainer {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    pub pod: PodUid,
    pub name: Arc<str>,
    pub state: ContainerState,
    pub created_at: Timestamp,
}

/// A sandbox, from the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcSandbox {
    pub id: SandboxId,
    pub pod: PodUid,
    pub state: SandboxState,
    pub created_at: Timestamp,
}

/// A link in `/var/log/containers`, by its file name `<pod>_<namespace>_<container>-<id>.log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLink {
    pub name: String,
    pub target_exists: bool,
}

/// The state of a pod. A pod that no pod worker knows is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodFate {
    /// Desired, or still handled by its worker.
    Live,
    /// Stopped, and evicted or deleted: its remains are not needed any more.
    ContentRemovable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// Dead instances to keep of each container.
    pub dead_per_container: usize,
    /// Dead instances to keep on the node; `None` is no limit.
    pub dead_total: Option<usize>,
    /// Younger ones are never removed.
    pub age_min: Duration,
}

impl Default for GcPolicy {
    fn default() -> Self {
        Self { dead_per_container: 1, dead_total: None, age_min: Duration::ZERO }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct GcInputs<'a> {
    pub containers: &'a [GcContainer],
    pub sandboxes: &'a [GcSandbox],
    pub pods: &'a BTreeMap<PodUid, PodFate>,
    /// The names of the directories in `/var/log/pods`: `<namespace>_<name>_<uid>`.
    pub log_dirs: &'a [String],
    pub log_links: &'a [LogLink],
    pub policy: GcPolicy,
    /// Until all sources have reported, an unknown pod may still be desired.
    pub sources_ready: bool,
    pub now: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcReason {
    /// A newer dead instance of the same container is kept instead.
    Superseded,
    /// The node keeps too many dead containers.
    TooManyDead,
    /// Its pod is gone, or its content is not needed any more.
    PodGone,
}

/// What to remove, containers before sandboxes before files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcPlan {
    /// Oldest first.
    pub containers: Vec<(ContainerId, GcReason)>,
    /// Oldest first.
    pub sandboxes: Vec<(SandboxId, GcReason)>,
    pub log_dirs: Vec<String>,
    pub log_links: Vec<String>,
}

/// The containers that are removed as soon as one of their name was seen to have ended: of each name all exited ones but the newest
/// `dead_per_container`, which are one at least.
#[must_use]
pub fn compute_superseded(
    observed: &PodObservation,
    ended: &BTreeSet<Arc<str>>,
    dead_per_container: usize,
) -> Vec<ContainerId> {
    let is_exited = |container: &&ContainerObservation| container.state == ContainerState::Exited;
    let mut superseded = Vec::new();
    for name in ended {
        let mut exited: Vec<_> = observed.instances(name).filter(is_exited).collect();
        exited.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        superseded
            .extend(exited.iter().skip(dead_per_container.max(1)).map(|container| container.id.clone()));
    }
    superseded
}

#[must_use]
pub fn compute_gc(inputs: &GcInputs<'_>) -> GcPlan {
    let containers = select_containers(inputs);
    let removed: BTreeSet<&ContainerId> = containers.iter().map(|(c, _)| &c.id).collect();
    let sandboxes = select_sandboxes(inputs, &removed);
    GcPlan {
        containers: containers.into_iter().map(|(c, why)| (c.id.clone(), why)).collect(),
        sandboxes,
        log_dirs: select_log_dirs(inputs),
        log_links: select_log_links(inputs),
    }
}

impl GcInputs<'_> {
    fn is_gone(&self, pod: &PodUid) -> bool {
        match self.pods.get(pod) {
            Some(PodFate::Live) => false,
            Some(PodFate::ContentRemovable) => true,
            None => self.sources_ready,
        }
    }

    fn is_old_enough(&self, created_at: Timestamp) -> bool {
        let age = Duration::try_from(self.now.duration_since(created_at)).unwrap_or(Duration::ZERO);
        age >= self.policy.age_min
    }
}

type Chosen<'a> = (&'a GcContainer, GcReason);

fn select_containers<'a>(inputs: &GcInputs<'a>) -> Vec<Chosen<'a>> {
    let mut units: BTreeMap<(&PodUid, &str), Vec<&GcContainer>> = BTreeMap::new();
    for container in inputs.containers {
        units.entry((&container.pod, &container.name)).or_default().push(container);
    }
    let mut chosen = Vec::new();
    // Per container, newest first: dead instances that may be removed if the node keeps too many.
    let mut kept: Vec<Vec<&GcContainer>> = Vec::new();
    for ((pod, _), mut instances) in units {
        instances.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        if inputs.is_gone(pod) {
            let is_idle = |c: &&GcContainer| c.state != ContainerState::Running;
            let idle = instances.into_iter().filter(|c| is_idle(c) && inputs.is_old_enough(c.created_at));
            chosen.extend(idle.map(|c| (c, GcReason::PodGone)));
            continue;
        }
        let newest_is_dead = instances.first().is_some_and(|c| is_dead(c));
        let spare =
            instances.into_iter().skip(1).filter(|c| is_dead(c) && inputs.is_old_enough(c.created_at));
        let mut spare: Vec<_> = spare.collect();
        let keep = inputs.policy.dead_per_container.saturating_sub(usize::from(newest_is_dead));
        let superseded = spare.split_off(keep.min(spare.len()));
        chosen.extend(superseded.into_iter().map(|c| (c, GcReason::Superseded)));
        kept.push(spare);
    }
    chosen.extend(over_total(inputs, &chosen, kept));
    chosen.sort_by(|(a, _), (b, _)| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    chosen
}

/// What exceeds the limit of the node: the oldest first, of whichever pod.
fn over_total<'a>(
    inputs: &GcInputs<'a>,
    chosen: &[Chosen<'a>],
    kept: Vec<Vec<&'a GcContainer>>,
) -> Vec<Chosen<'a>> {
    let Some(limit) = inputs.policy.dead_total else { return Vec::new() };
    let dead = inputs.containers.iter().filter(|c| is_dead(c)).count();
    let going = chosen.iter().filter(|(c, _)| is_dead(c)).count();
    let mut spare: Vec<&GcContainer> = kept.into_iter().flatten().collect();
    spare.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let excess = (dead - going).saturating_sub(limit);
    spare.into_iter().take(excess).map(|c| (c, GcReason::TooManyDead)).collect()
}

/// Exited, or created by a start that did not finish. An unknown state may still be running.
const fn is_dead(container: &GcContainer) -> bool {
    match container.state {
        ContainerState::Exited | ContainerState::Created => true,
        ContainerState::Running | ContainerState::Unknown => false,
    }
}

/// Dead sandboxes without containers; of a live pod all but the newest one.
fn select_sandboxes(inputs: &GcInputs<'_>, removed: &BTreeSet<&ContainerId>) -> Vec<(SandboxId, GcReason)> {
    let left = inputs.containers.iter().filter(|c| !removed.contains(&c.id));
    let in_use: BTreeSet<&SandboxId> = left.map(|c| &c.sandbox).collect();
    let mut newest: BTreeMap<&PodUid, &GcSandbox> = BTreeMap::new();
    for sandbox in inputs.sandboxes {
        let held = newest.entry(&sandbox.pod).or_insert(sandbox);
        if (held.created_at, &held.id) < (sandbox.created_at, &sandbox.id) {
            *held = sandbox;
        }
    }
    let mut chosen: Vec<(&GcSandbox, GcReason)> = inputs
        .sandboxes
        .iter()
        .filter(|s| s.state == SandboxState::NotReady && !in_use.contains(&s.id))
        .filter_map(|s| {
            if inputs.is_gone(&s.pod) {
                return Some((s, GcReason::PodGone));
            }
            let is_newest = newest.get(&s.pod).is_some_and(|held| held.id == s.id);
            (!is_newest).then_some((s, GcReason::Superseded))
        })
        .collect();
    chosen.sort_by(|(a, _), (b, _)| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    chosen.into_iter().map(|(s, why)| (s.id.clone(), why)).collect()
}

/// Directories of pods that are gone, unless a running container still writes there. Names that do not parse stay.
fn select_log_dirs(inputs: &GcInputs<'_>) -> Vec<String> {
    if !inputs.sources_ready {
        return Vec::new();
    }
    let writes = |pod: &PodUid| inputs.containers.iter().any(|c| c.pod == *pod && !is_dead(c));
    let goes = |name: &&String| {
        let parts: Vec<&str> = name.split('_').collect();
        match parts.as_slice() {
            [namespace, name, uid] if ![namespace, name, uid].iter().any(|part| part.is_empty()) => {
                let pod = PodUid::from(*uid);
                inputs.is_gone(&pod) && !writes(&pod)
            }
            _ => false,
        }
    };
    inputs.log_dirs.iter().filter(goes).cloned().collect()
}

/// Dangling links. While a container runs, its log may just be rotating, so its link stays.
fn select_log_links(inputs: &GcInputs<'_>) -> Vec<String> {
    let still_writes = |name: &str| {
        let id = name.strip_suffix(".log").and_then(|stem| stem.rsplit_once('-')).map(|(_, id)| id);
        inputs.containers.iter().any(|c| Some(c.id.as_str()) == id && !is_ended(c))
    };
    let dangling = inputs.log_links.iter().filter(|link| !link.target_exists);
    dangling.filter(|link| !still_writes(&link.name)).map(|link| link.name.clone()).collect()
}

const fn is_ended(container: &GcContainer) -> bool {
    matches!(container.state, ContainerState::Exited)
}

#[cfg(test)]
mod tests;
