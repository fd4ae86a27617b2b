//! What must hold at every moment, whatever fails. Reads the runtime directly, and checks each act of the agent at the moment it
//! is requested.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fakes::{FakeRuntime, Method};
use jiff::Timestamp;
use kubelet_core::pods::hash::container_hash;
use model::containers::{find_container, init_containers, regular_containers};
use model::k8s::Pod;
use model::{
    ContainerId, ContainerKind, ContainerObservation, ContainerState, PodRef, SandboxId, SandboxState,
};
use tokio::sync::watch;

use super::shapes::{Outcome, Shape};
use crate::recording_runtime::Act;

/// Two ready sandboxes of one pod may exist at the same time no longer than this: an inspection and some stops that fail.
const TWO_SANDBOXES: Duration = Duration::from_secs(120);
/// A younger sandbox may have become ready since its pod was last inspected: by a call that outlived its client.
const UNSEEN: Duration = Duration::from_secs(1);
/// More sandbox lists than this in a second, on average over ten, mean that the agent runs in a busy loop.
const MAX_LISTS_PER_SECOND: u64 = 30;
/// How long after the probes failed a container may still be stopped for it.
const PROBES_SETTLE: Duration = Duration::from_secs(60);

/// A pod that the sources specify.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) shape: Shape,
    pub(super) pod: Pod,
    /// When the sources added it; older acts belong to an earlier pod of the same UID.
    pub(super) since: Timestamp,
}

pub(super) struct InvariantChecker {
    fake: FakeRuntime,
    /// By UID.
    pub(super) wanted: BTreeMap<String, Want>,
    /// UIDs that the sources had since the agent was started.
    announced: BTreeSet<String>,
    specs: BTreeMap<String, Pod>,
    sources_ready: Option<watch::Receiver<bool>>,
    pub(super) probes_bad_until: Duration,
    initialized: BTreeSet<(SandboxId, String)>,
    /// Sandboxes in which a regular container was started.
    begun: BTreeSet<SandboxId>,
    restarts: BTreeMap<(String, String), i32>,
    ended: BTreeMap<String, String>,
    doubled_since: BTreeMap<String, Duration>,
    /// When lists were counted last, and how many there had been.
    counted: (Duration, u64),
    pub(super) acts: u64,
    violations: Vec<String>,
    clock: ports::Clock,
}

impl InvariantChecker {
    pub(super) fn new(fake: FakeRuntime, clock: ports::Clock) -> Self {
        Self {
            fake,
            wanted: BTreeMap::new(),
            announced: BTreeSet::new(),
            specs: BTreeMap::new(),
            sources_ready: None,
            probes_bad_until: Duration::ZERO,
            initialized: BTreeSet::new(),
            begun: BTreeSet::new(),
            restarts: BTreeMap::new(),
            ended: BTreeMap::new(),
            doubled_since: BTreeMap::new(),
            counted: (Duration::ZERO, 0),
            acts: 0,
            violations: Vec::new(),
            clock,
        }
    }

    fn now(&self) -> Duration {
        self.clock.mono().since_start()
    }

    fn violated(&mut self, what: String) {
        let line = format!("{:?}: {what}", self.now());
        self.violations.push(line);
    }

    // ---- notifications by the simulation ----

    pub(super) fn agent_started(&mut self, sources_ready: watch::Receiver<bool>) {
        self.sources_ready = Some(sources_ready);
        self.announced = self.wanted.keys().cloned().collect();
        self.doubled_since.clear();
    }

    pub(super) fn agent_crashed(&mut self) {
        self.sources_ready = None;
    }

    pub(super) fn add_pod(&mut self, shape: Shape, pod: Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.announced.insert(uid.clone());
        self.specs.insert(uid.clone(), pod.clone());
        let since = self.wanted.get(&uid).map_or_else(|| self.clock.now().wall, |want| want.since);
        self.wanted.insert(uid, Want { shape, pod, since });
    }

    pub(super) fn remove_pod(&mut self, uid: &str) {
        self.wanted.remove(uid);
        self.ended.remove(uid);
        self.restarts.retain(|(previous, _), _| previous != uid);
    }

    pub(super) fn probes_failed(&mut self) {
        self.probes_bad_until = Duration::MAX;
    }

    pub(super) fn probes_recovered(&mut self) {
        if self.probes_bad_until == Duration::MAX {
            self.probes_bad_until = self.now() + PROBES_SETTLE;
        }
    }

    // ---- at each act ----

    pub(super) fn check(&mut self, act: &Act) {
        self.acts += 1;
        self.learn();
        match act {
            Act::RunSandbox(pod) => self.check_sandbox(pod),
            Act::Start(id) => self.check_start(id),
            Act::Stop(id) | Act::Remove(id) => {
                let container = self.fake.containers().into_iter().find(|(_, c)| c.id == *id);
                if let Some((uid, container)) = container {
                    self.check_end(uid.as_str(), &container, act);
                }
            }
            Act::StopSandbox(id) | Act::RemoveSandbox(id) => self.check_sandbox_end(id, act),
        }
    }

    /// A sandbox is requested only where none is ready, and none of another pod of that name.
    fn check_sandbox(&mut self, pod: &PodRef) {
        let (now, seen_since) = (self.clock.now().wall, UNSEEN);
        let sandboxes = self.fake.sandboxes();
        let in_the_way = sandboxes.iter().find(|sandbox| {
            sandbox.state == SandboxState::Ready
                && sandbox.pod.full_name() == pod.full_name()
                && now.duration_since(sandbox.created_at).unsigned_abs() > seen_since
        });
        if let Some(sandbox) = in_the_way {
            let since = sandbox.created_at;
            let whose = if sandbox.pod.uid == pod.uid { "its own" } else { "another pod's" };
            self.violated(format!(
                "{pod} ({}) gets a sandbox although {whose} is ready since {since}",
                pod.uid
            ));
        }
    }

    fn check_start(&mut self, id: &ContainerId) {
        let all = self.fake.containers();
        let Some((uid, container)) = all.iter().find(|(_, c)| c.id == *id) else { return };
        let Some(spec) = self.specs.get(uid.as_str()).cloned() else { return };
        let sandbox = &container.sandbox_id;
        if !regular_containers(&spec).any(|c| c.name() == &*container.name) || self.begun.contains(sandbox) {
            return;
        }
        for init in init_containers(&spec) {
            let is_done = match init.kind {
                ContainerKind::Sidecar => all.iter().any(|(_, c)| {
                    c.sandbox_id == *sandbox && &*c.name == init.name() && c.started_at.is_some()
                }),
                ContainerKind::Init | ContainerKind::Regular | ContainerKind::Ephemeral => {
                    self.initialized.contains(&(sandbox.clone(), init.name().to_owned()))
                }
            };
            if !is_done {
                self.violated(format!("{uid}/{} is started before {} is done", container.name, init.name()));
            }
        }
        self.begun.insert(sandbox.clone());
    }

    fn check_sandbox_end(&mut self, id: &SandboxId, act: &Act) {
        let Some(sandbox) = self.fake.sandboxes().into_iter().find(|s| s.id == *id) else { return };
        if sandbox.state != SandboxState::Ready {
            return;
        }
        let uid = sandbox.pod.uid.as_str().to_owned();
        let running: Vec<ContainerObservation> =
            self.containers_of(&uid).filter(|c| c.sandbox_id == *id).collect();
        for container in &running {
            self.check_end(&uid, container, act);
        }
        self.check_sources(&uid, act);
        let Some(want) = self.wanted.get(&uid) else { return };
        let is_only = self.ready_sandboxes(&uid).len() == 1;
        if want.shape.outcome() == Outcome::Ready && is_only && sandbox.created_at > want.since {
            self.violated(format!("{act:?} ends the only sandbox of {uid} ({:?})", want.shape));
        }
    }

    fn check_sources(&mut self, uid: &str, act: &Act) {
        let all_reported = self.sources_ready.as_ref().is_some_and(|ready| *ready.borrow());
        if !all_reported && !self.announced.contains(uid) {
            self.violated(format!("{act:?} terminates {uid} before all sources are ready"));
        }
    }

    /// A running container may be stopped only for a reason.
    fn check_end(&mut self, uid: &str, container: &ContainerObservation, act: &Act) {
        if container.state != ContainerState::Running {
            return;
        }
        self.check_sources(uid, act);
        let Some(want) = self.wanted.get(uid).cloned() else { return };
        if !self.has_reason(uid, &want, container) {
            self.violated(format!(
                "{act:?} ends {uid}/{} ({:?}) without a reason",
                container.name, want.shape
            ));
        }
    }

    fn has_reason(&self, uid: &str, want: &Want, container: &ContainerObservation) -> bool {
        let ready = self.ready_sandboxes(uid);
        let is_in_use = ready.as_slice() == [container.sandbox_id.clone()];
        let is_of_earlier_pod = container.created_at <= want.since;
        let spec = find_container(&want.pod, &container.name);
        let has_changed = spec.is_none_or(|spec| container.record.hash != Some(container_hash(&spec)));
        let same_name = self.containers_of(uid).filter(|c| c.name == container.name);
        let is_superseded = same_name.into_iter().any(|c| c.created_at > container.created_at);
        let probes_failed = want.shape == Shape::Probed && self.now() <= self.probes_bad_until;
        let regular: Vec<&str> =
            want.pod.spec.iter().flat_map(|s| &s.containers).map(|c| c.name.as_str()).collect();
        let work_is_done = want.shape.outcome() == Outcome::Done
            && !self
                .containers_of(uid)
                .any(|c| regular.contains(&&*c.name) && c.state == ContainerState::Running);
        !is_in_use || is_of_earlier_pod || has_changed || is_superseded || probes_failed || work_is_done
    }

    // ---- all the time ----

    /// What was true once and must be remembered.
    fn learn(&mut self) {
        for (_, c) in self.fake.containers() {
            if c.state == ContainerState::Exited && c.exit_code == 0 && c.started_at.is_some() {
                self.initialized.insert((c.sandbox_id.clone(), c.name.to_string()));
            }
        }
    }

    /// Returns the first violated invariant, if any.
    pub(super) fn observe(&mut self, agent: Option<&agent::Agent>) -> Option<String> {
        self.learn();
        for twin in self.fake.double_starts() {
            self.violated(twin);
        }
        self.check_sandboxes();
        self.check_list_rate();
        if let Some(agent) = agent {
            self.check_statuses(agent);
        }
        self.violations.first().cloned()
    }

    fn check_sandboxes(&mut self) {
        let now = self.now();
        let uids: BTreeSet<String> =
            self.fake.sandboxes().iter().map(|s| s.pod.uid.as_str().to_owned()).collect();
        for uid in uids {
            if self.ready_sandboxes(&uid).len() < 2 {
                self.doubled_since.remove(&uid);
                continue;
            }
            let since = *self.doubled_since.entry(uid.clone()).or_insert(now);
            if now.saturating_sub(since) > TWO_SANDBOXES {
                self.violated(format!("{uid} has had two ready sandboxes since {since:?}"));
            }
        }
    }

    fn check_list_rate(&mut self) {
        let (now, total) = (self.now(), self.fake.count(Method::ListPodSandbox));
        let (since, before) = self.counted;
        if now - since < Duration::from_secs(10) {
            return;
        }
        self.counted = (now, total);
        if (total - before) > MAX_LISTS_PER_SECOND * (now - since).as_secs() {
            self.violated(format!("the runtime was listed {} times since {since:?}", total - before));
        }
    }

    fn check_statuses(&mut self, agent: &agent::Agent) {
        for entry in agent.pods().all() {
            let uid = entry.identity.uid.to_string();
            // The agent has not seen yet that a pod was added at this moment, and shows an earlier one of its UID.
            if self.wanted.get(&uid).is_none_or(|want| want.since >= self.clock.now().wall) {
                continue;
            }
            let status = &entry.status;
            let phase = status.phase.clone().unwrap_or_default();
            if let Some(ended) = self.ended.get(&uid).filter(|ended| **ended != phase).cloned() {
                self.violated(format!("{uid} was {ended} and is {phase} now"));
            }
            if matches!(phase.as_str(), "Succeeded" | "Failed") {
                self.ended.insert(uid.clone(), phase);
            }
            let statuses = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
            for container in statuses {
                let key = (uid.clone(), container.name.clone());
                let previous = self.restarts.insert(key, container.restart_count).unwrap_or(0);
                if previous > container.restart_count {
                    let (name, count) = (&container.name, container.restart_count);
                    self.violated(format!(
                        "{uid}/{name} was restarted {previous} times and now {count} times"
                    ));
                }
            }
        }
    }

    /// Every container that is to run permanently does, once, as its spec says now.
    pub(super) fn runs_as_wanted(&self, uid: &str) -> bool {
        let Some(want) = self.wanted.get(uid) else { return false };
        let lasting = init_containers(&want.pod).filter(|c| c.kind == ContainerKind::Sidecar);
        lasting.chain(regular_containers(&want.pod)).all(|spec| {
            let running = self.containers_of(uid).filter(|c| &*c.name == spec.name());
            let running: Vec<_> = running.filter(|c| c.state == ContainerState::Running).collect();
            running.len() == 1 && running[0].record.hash == Some(container_hash(&spec))
        })
    }

    pub(super) fn ready_sandboxes(&self, uid: &str) -> Vec<SandboxId> {
        let is_match =
            |s: &model::SandboxObservation| s.pod.uid.as_str() == uid && s.state == SandboxState::Ready;
        self.fake.sandboxes().into_iter().filter(is_match).map(|s| s.id).collect()
    }

    fn containers_of<'a>(&self, uid: &'a str) -> impl Iterator<Item = ContainerObservation> + 'a {
        self.fake.containers().into_iter().filter(move |(of, _)| of.as_str() == uid).map(|(_, c)| c)
    }
}
