//! What must hold for claims at every moment, whatever fails. Reads the drivers and the runtime directly.

use std::collections::{BTreeMap, BTreeSet};

use fakes::{DraMethod, FakeDraDriver, FakeRuntime};
use model::ContainerId;
use model::dra::ClaimId;
use model::request::ContainerRequest;
use serde_json::Value;

use super::super::api_checker::ApiChecker;
use super::shapes::{DRIVERS, Devices};

pub(super) struct Checker {
    pub(super) api: ApiChecker,
    runtime: FakeRuntime,
    drivers: [FakeDraDriver; 2],
    /// The devices of each pod that was ever created, by UID.
    devices: BTreeMap<String, Devices>,
    /// Acts of the kubelet in the runtime so far.
    pub(super) acts: u64,
    /// A write of the state failed. The next kubelet may find a pod in it that is gone, and keeps a claim that the pod shared until the loop
    /// has noticed. The end of such a pod does not wait for the disk: on a full one, its volumes are what must go.
    pub(super) has_stale_references: bool,
    /// Whether objects may go although their claims are prepared.
    pub(super) ignores_gone: bool,
}

impl Checker {
    pub(super) fn new(runtime: &FakeRuntime, drivers: &[FakeDraDriver; 2]) -> Self {
        Self {
            api: ApiChecker::new(runtime),
            runtime: runtime.clone(),
            drivers: drivers.clone(),
            devices: BTreeMap::new(),
            acts: 0,
            has_stale_references: false,
            ignores_gone: false,
        }
    }

    pub(super) fn add_pod(&mut self, uid: String, devices: Devices) {
        self.devices.insert(uid, devices);
    }

    /// The devices that some driver has prepared, by their CDI names.
    fn prepared(&self) -> BTreeSet<String> {
        let of_driver = |(driver, fake): (&super::shapes::Driver, &FakeDraDriver)| {
            let class = driver.class;
            fake.prepared_uids().into_iter().map(move |uid| format!("{class}={uid}"))
        };
        DRIVERS.iter().zip(&self.drivers).flat_map(of_driver).collect()
    }

    /// The devices of the claims of a pod.
    fn devices_of(&self, uid: &str) -> BTreeSet<String> {
        self.devices.get(uid).into_iter().flat_map(BTreeMap::values).flatten().cloned().collect()
    }

    /// At each change of a pod in the API.
    pub(super) fn pod_changed(&mut self, before: Option<&Value>, after: Option<&Value>) {
        self.api.pod_changed(before, after);
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let gone = before.map(uid).filter(|gone| after.map(uid).as_ref() != Some(gone));
        if let Some(gone) = gone.filter(|gone| !self.ignores_gone && !self.api.forced.contains(gone)) {
            self.check_unprepared(&gone);
        }
    }

    /// The object of a pod goes: its claims are unprepared, unless another pod uses them.
    fn check_unprepared(&mut self, gone: &str) {
        let is_user = |uid: &&String| {
            let is_alive = self.api.phases.contains_key(*uid) || self.api.forced.contains(*uid);
            *uid != gone && (is_alive || self.has_stale_references)
        };
        let others = self.devices.keys().filter(is_user);
        let of_others: BTreeSet<String> = others.flat_map(|uid| self.devices_of(uid)).collect();
        let prepared = self.prepared();
        let left = |device: &String| !of_others.contains(device) && prepared.contains(device);
        let left: Vec<String> = self.devices_of(gone).into_iter().filter(left).collect();
        if !left.is_empty() {
            self.violate(format!("{gone} is gone from the API before {left:?} is unprepared"));
        }
    }

    fn violate(&mut self, what: String) {
        self.api.violations.push(what);
    }

    /// At the beginning of each call of a driver.
    pub(super) fn check_call(&mut self, class: &str, method: DraMethod, claims: &[ClaimId]) {
        if method == DraMethod::Prepare {
            return;
        }
        for (uid, request, _) in self.runtime.running_requests() {
            let uses = |claim: &&ClaimId| request.cdi_devices.contains(&format!("{class}={}", claim.uid));
            if let Some(claim) = claims.iter().find(uses) {
                let name = &claim.name;
                self.violate(format!("{name} is unprepared while a container of {uid} runs with it"));
            }
        }
    }

    /// At each start of a container.
    pub(super) fn check_start(&mut self, id: &ContainerId) {
        self.api.starts(id);
        if let Some((uid, request)) = self.runtime.request_of(id) {
            self.check_container(uid.as_str(), &request, "starts");
        }
    }

    fn check_container(&mut self, uid: &str, request: &ContainerRequest, how: &str) {
        let expected = self.devices.get(uid).and_then(|devices| devices.get(request.name.as_str()));
        let given: BTreeSet<String> = request.cdi_devices.iter().cloned().collect();
        let name = &request.name;
        if expected != Some(&given) {
            let what = format!("{name} of {uid} {how} with the devices {given:?} instead of {expected:?}");
            return self.violate(what);
        }
        let prepared = self.prepared();
        let missing: Vec<&String> = given.difference(&prepared).collect();
        if !missing.is_empty() {
            let what = format!("{name} of {uid} {how} although {missing:?} is not prepared");
            self.violate(what);
        }
    }

    /// The first violated invariant.
    pub(super) fn observe(&mut self) -> Result<(), String> {
        for (uid, request, _) in self.runtime.running_requests() {
            self.check_container(uid.as_str(), &request, "runs");
        }
        for (driver, fake) in DRIVERS.iter().zip(self.drivers.clone()) {
            let calls = fake.violations().into_iter().map(|line| format!("{}: {line}", driver.name));
            self.api.violations.extend(calls);
        }
        self.api.violations.first().map_or(Ok(()), |violation| Err(violation.clone()))
    }
}
