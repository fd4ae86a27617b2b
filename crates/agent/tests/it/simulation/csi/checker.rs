//! What must hold for the volumes of drivers at every moment, whatever fails. Reads the drivers, the machine and the runtime
//! directly.

use std::collections::{BTreeMap, BTreeSet};

use fakes::{CsiMethod, FakeCluster, FakeCsiDriver, FakeHost, FakeRuntime};
use model::k8s::Node;
use model::{ContainerId, ContainerState};

use super::shapes::{DISK, Frame, PodVolume, unique_name, volumes_of};

pub(super) struct Checker {
    frame: Frame,
    runtime: FakeRuntime,
    host: FakeHost,
    api: FakeCluster,
    drivers: [(&'static str, FakeCsiDriver); 2],
    /// The volumes of each pod that was ever created, by UID.
    pods: BTreeMap<String, &'static [PodVolume]>,
    /// Files that pods wrote in published volumes.
    written: BTreeSet<String>,
    /// Calls that take volumes away, and calls that hang.
    unpublished: (usize, usize),
    violations: Vec<String>,
}

/// Where the drivers have volumes published.
pub(super) fn all_published(drivers: &[(&str, FakeCsiDriver)]) -> BTreeSet<String> {
    let all = drivers.iter().flat_map(|(_, driver)| driver.published());
    all.map(|(_, target)| target.display().to_string()).collect()
}

impl Checker {
    pub(super) fn new(
        frame: Frame,
        runtime: &FakeRuntime,
        host: &FakeHost,
        api: &FakeCluster,
        drivers: &[(&'static str, FakeCsiDriver); 2],
    ) -> Self {
        Self {
            frame,
            runtime: runtime.clone(),
            host: host.clone(),
            api: api.clone(),
            drivers: drivers.clone(),
            pods: BTreeMap::new(),
            written: BTreeSet::new(),
            unpublished: (0, 0),
            violations: Vec::new(),
        }
    }

    pub(super) fn add_pod(&mut self, uid: String, name: &str) {
        self.pods.insert(uid, volumes_of(name));
    }

    /// The node starts again: what pods wrote is not visible where it was.
    pub(super) fn forget_written(&mut self) {
        for path in std::mem::take(&mut self.written) {
            self.host.delete(path);
        }
    }

    /// At each start and stop of a container.
    pub(super) fn check_container(&mut self, id: &ContainerId) {
        let all = self.runtime.containers();
        let is_running = |c: &model::ContainerObservation| c.state == ContainerState::Running;
        let found = all.iter().find(|(_, c)| c.id == *id);
        if let Some((uid, _)) = found.filter(|(_, c)| is_running(c) || c.started_at.is_none()) {
            self.check_mounted(uid.as_str());
        }
    }

    fn check_mounted(&mut self, uid: &str) {
        let (published, mounts) = (all_published(&self.drivers), self.host.mounts());
        for volume in self.pods.get(uid).copied().unwrap_or_default() {
            let target = volume.target(uid);
            let is_mounted = mounts.iter().any(|mount| mount.ends_with(&target));
            if !published.contains(&target) || !is_mounted {
                self.violations.push(format!("a container runs without its volume at {target}"));
            }
        }
    }

    /// The first violated invariant.
    pub(super) fn observe(&mut self) -> Result<(), String> {
        for (_, container) in self.runtime.containers() {
            if container.state == ContainerState::Running {
                self.check_container(&container.id);
            }
        }
        for (name, driver) in &self.drivers {
            self.violations.extend(driver.violations().iter().map(|line| format!("{name}: {line}")));
        }
        self.check_files();
        if self.frame.is_attached {
            self.check_in_use();
        }
        self.violations.first().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    /// What a pod wrote in a volume stays there until its driver unpublishes it.
    fn check_files(&mut self) {
        let unpublished = self.drivers.iter().fold((0, 0), |(calls, hanging), (_, driver)| {
            (calls + driver.count(CsiMethod::NodeUnpublishVolume), hanging + driver.hanging())
        });
        let published = all_published(&self.drivers);
        if unpublished == self.unpublished {
            for path in self.written.iter().filter(|path| self.host.text(path).is_none()) {
                self.violations.push(format!("{path} was deleted through a mount"));
            }
        }
        self.unpublished = unpublished;
        let is_file_system = |target: &&String| target.ends_with("/mount");
        self.written =
            published.iter().filter(is_file_system).map(|target| format!("{target}/file")).collect();
        for path in &self.written {
            self.host.put(path, "written by the pod");
        }
    }

    /// No volume is detached while it is mounted: the API has it in use.
    fn check_in_use(&mut self) {
        let node = self.api.object::<Node>("", "node").and_then(|node| node.status);
        let in_use = node.and_then(|status| status.volumes_in_use).unwrap_or_default();
        let Some((_, disk)) = self.drivers.iter().find(|(name, _)| *name == DISK) else { return };
        for handle in disk.staged().keys() {
            if !in_use.contains(&unique_name(handle)) {
                self.violations.push(format!("{handle} is staged and not in use in the API: {in_use:?}"));
            }
        }
    }
}
