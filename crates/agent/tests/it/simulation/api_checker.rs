//! What must hold for pods in the API at every change and at every start and stop of a container.

use std::collections::{BTreeMap, BTreeSet};

use fakes::FakeRuntime;
use model::{ContainerId, ContainerState};
use serde_json::Value;

use super::resizes::{RESIZED, ResizeChecker};

pub(super) fn is_over(phase: &str) -> bool {
    ["Succeeded", "Failed"].contains(&phase)
}

/// Sees every change at the moment it is made.
pub(super) struct ApiChecker {
    fake: FakeRuntime,
    /// The last phase in the API by UID; deleted pods have none.
    pub(super) phases: BTreeMap<String, String>,
    gone: BTreeSet<String>,
    /// UIDs of pods that users deleted by force.
    pub(super) forced: BTreeSet<String>,
    /// UIDs of pods that users still want, with their names.
    pub(super) alive: BTreeMap<String, String>,
    pub(super) resizes: ResizeChecker,
    pub(super) violations: Vec<String>,
}

impl ApiChecker {
    pub(super) fn new(fake: &FakeRuntime) -> Self {
        Self {
            fake: fake.clone(),
            phases: BTreeMap::new(),
            gone: BTreeSet::new(),
            forced: BTreeSet::new(),
            alive: BTreeMap::new(),
            resizes: ResizeChecker::default(),
            violations: Vec::new(),
        }
    }

    /// UIDs with a running container.
    pub(super) fn running(&self) -> BTreeSet<String> {
        let all = self.fake.containers();
        let running = all.into_iter().filter(|(_, c)| c.state == ContainerState::Running);
        running.map(|(uid, _)| uid.as_str().to_owned()).collect()
    }

    pub(super) fn pod_changed(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let running = self.running();
        if let Some(gone) = before.map(uid).filter(|gone| after.map(uid).as_ref() != Some(gone)) {
            if running.contains(&gone) && !self.forced.contains(&gone) {
                self.violations.push(format!("{gone} is gone from the API and runs"));
            }
            self.phases.remove(&gone);
            self.alive.remove(&gone);
            self.gone.insert(gone);
        }
        let Some(pod) = after else { return };
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if pod["metadata"]["deletionTimestamp"].is_null() {
            self.alive.insert(uid(pod), name);
        } else {
            self.alive.remove(&uid(pod));
        }
        let (uid, phase) = (uid(pod), pod["status"]["phase"].as_str().unwrap_or_default().to_owned());
        let previous = self.phases.insert(uid.clone(), phase.clone()).unwrap_or_default();
        if is_over(&previous) && previous != phase {
            self.violations.push(format!("{uid} was {previous} and is {phase}"));
        }
        if is_over(&phase) && !is_over(&previous) && running.contains(&uid) {
            self.violations.push(format!("{uid} is {phase} and runs"));
        }
    }

    /// The agent may not have seen yet what users did immediately; it knows what it did itself.
    pub(super) fn starts(&mut self, id: &ContainerId) {
        let all = self.fake.containers();
        let Some((uid, _)) = all.iter().find(|(_, c)| c.id == *id) else { return };
        let uid = uid.as_str();
        if let Some(phase) = self.phases.get(uid).filter(|phase| is_over(phase)) {
            self.violations.push(format!("{uid} is {phase} and started again"));
        }
        if self.gone.contains(uid) && !self.forced.contains(uid) {
            self.violations.push(format!("{uid} is gone from the API and started again"));
        }
    }
}

impl ApiChecker {
    /// A running container is stopped: no user of a mode without resizes gave a reason while the pod is wanted.
    pub(super) fn stops_wanted(&mut self, id: &ContainerId) {
        let all = self.fake.containers();
        let running = |c: &model::ContainerObservation| c.id == *id && c.state == ContainerState::Running;
        let Some((uid, _)) = all.iter().find(|(_, c)| running(c)) else { return };
        if let Some(name) = self.alive.get(uid.as_str()) {
            self.violations.push(format!("a running container of {name} is stopped"));
        }
    }

    /// A running container is stopped: only a resize can be the reason while users want the pod.
    pub(super) fn stops(&mut self, id: &ContainerId) {
        let all = self.fake.containers();
        let running = |c: &model::ContainerObservation| c.id == *id && c.state == ContainerState::Running;
        let Some((uid, _)) = all.iter().find(|(_, c)| running(c)) else { return };
        let Some(name) = self.alive.get(uid.as_str()).cloned() else { return };
        if RESIZED.contains(&name.as_str()) {
            self.violations.extend(self.resizes.stops(uid.as_str(), &name, id));
        }
    }
}
