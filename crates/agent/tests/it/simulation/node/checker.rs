//! What must hold for devices, CPUs and ended pods of a whole node at every moment. Reads the runtime and the disk directly.

use std::collections::{BTreeMap, BTreeSet};

use fakes::{FakeHost, FakeRuntime};
use model::k8s::{Pod, PodStatus};

use super::super::api_checker::{ApiChecker, is_over};
use super::shapes::{DEVICES, devices_of};
use crate::world::{PODS, World};

const DEVICE_CHECKPOINT: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
const CPU_STATE: &str = "/var/lib/kubelet/cpu_manager_state";
const ALLOCATED: &str = "/var/lib/kubelet/allocated_pods_state";

/// What a container has for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Assigned {
    devices: BTreeSet<String>,
    cpus: BTreeSet<u32>,
}

/// The final phase and reason of a pod.
type Final = (String, String);

pub(super) struct Checker {
    pub(super) api: ApiChecker,
    fake: FakeRuntime,
    host: FakeHost,
    /// Of each pod that was ever created, by UID.
    names: BTreeMap<String, String>,
    /// By UID and name of the container: what its first instance had.
    assigned: BTreeMap<(String, String), Assigned>,
    /// The last final status that was on disk, by UID.
    on_disk: BTreeMap<String, Final>,
    /// Pods that the running kubelet evicted.
    evicted: BTreeSet<String>,
    /// Pods that existed when sandboxes died from outside.
    without_sandbox: BTreeSet<String>,
    /// The files of statuses as they were last read.
    read: BTreeMap<String, String>,
}

impl Checker {
    pub(super) fn new(world: &World) -> Self {
        Self {
            api: ApiChecker::new(&world.fake),
            fake: world.fake.clone(),
            host: world.host.clone(),
            names: BTreeMap::new(),
            assigned: BTreeMap::new(),
            on_disk: BTreeMap::new(),
            evicted: BTreeSet::new(),
            without_sandbox: BTreeSet::new(),
            read: BTreeMap::new(),
        }
    }

    pub(super) fn add_pod(&mut self, uid: String, name: &str) {
        self.names.insert(uid, name.to_owned());
    }

    pub(super) fn sandboxes_lost(&mut self) {
        self.without_sandbox = self.names.keys().cloned().collect();
    }

    /// As with the Go kubelet: a pod that is never restarted, and whose sandbox dies between the creation and the start of its container,
    /// gets no other sandbox, and no exit code either.
    pub(super) fn may_stay_pending(&self, uid: &str, pod: &Pod) -> bool {
        let is_never = pod.spec.as_ref().is_some_and(|spec| spec.restart_policy.as_deref() == Some("Never"));
        let is_pending = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Pending"));
        let is_created = self.fake.containers().iter().any(|(of, _)| of.as_str() == uid);
        is_never && is_pending && is_created && self.without_sandbox.contains(uid)
    }

    /// A kill may come before the eviction is on disk.
    pub(super) fn kubelet_killed(&mut self) {
        self.evicted.clear();
    }

    /// The first violated invariant.
    pub(super) fn observe(&mut self, world: &World) -> Result<(), String> {
        let running = self.api.running();
        let exceeded = self.api.resizes.check_allocations(world, &running);
        self.api.violations.extend(exceeded);
        self.check_assigned();
        self.read_final_statuses();
        self.record_evictions(world);
        self.api.violations.first().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    /// No device and no CPU of its own has two live containers, and each instance of a container has the same.
    pub(super) fn check_assigned(&mut self) {
        let mut holders: BTreeMap<String, String> = BTreeMap::new();
        for (uid, request, resources) in self.fake.running_requests() {
            let uid = uid.as_str().to_owned();
            let Some(name) = self.names.get(&uid) else { continue };
            let devices =
                request.env.iter().find(|variable| variable.0 == "DEVICES").and_then(|v| v.1.as_text());
            let devices: BTreeSet<String> =
                devices.into_iter().flat_map(|all| all.split(',')).map(str::to_owned).collect();
            let cpus =
                if name.starts_with("pin") { numbers(&resources.cpuset_cpus) } else { BTreeSet::new() };
            let (container, title) = (request.name.clone(), format!("{name} ({uid})"));
            let assigned = Assigned { devices, cpus };
            self.check_amounts(&title, &container, &assigned);
            // The Go kubelet, too, gives away what a pod has that was deleted by force, although it may still terminate.
            if !self.api.forced.contains(&uid) {
                let all = assigned.devices.iter().map(|device| format!("device {device}"));
                for one in all.chain(assigned.cpus.iter().map(|cpu| format!("CPU {cpu}"))) {
                    if let Some(other) = holders.insert(one.clone(), title.clone()) {
                        self.api
                            .violations
                            .push(format!("{one} has two live containers: {other} and {title}"));
                    }
                }
            }
            let first = self.assigned.entry((uid, container)).or_insert_with(|| assigned.clone());
            let (now, first) = (assigned, first.clone());
            if now.devices != first.devices {
                let change = format!("had the devices {:?} and has {:?}", first.devices, now.devices);
                self.api.violations.push(format!("{title} {change}"));
            }
            if now.cpus != first.cpus {
                let change = format!("had the CPUs {:?} and has {:?}", first.cpus, now.cpus);
                self.api.violations.push(format!("{title} {change}"));
            }
        }
    }

    fn check_amounts(&mut self, title: &str, container: &str, assigned: &Assigned) {
        let is_known = assigned.devices.iter().all(|device| DEVICES.contains(&device.as_str()));
        if !is_known || assigned.devices.len() != devices_of(container) {
            self.api.violations.push(format!("{title} has the devices {:?}", assigned.devices));
        }
        if container.starts_with("pin") && (assigned.cpus.len() != 1 || assigned.cpus.contains(&0)) {
            self.api.violations.push(format!("{title} has the CPUs {:?}", assigned.cpus));
        }
    }

    /// A kubelet continues a final status that is on disk.
    fn read_final_statuses(&mut self) {
        for uid in self.names.keys() {
            let Some(text) = self.host.text(format!("{PODS}/{uid}/status.json")) else { continue };
            if self.read.get(uid) == Some(&text) {
                continue;
            }
            self.read.insert(uid.clone(), text.clone());
            let Ok(status) = serde_json::from_str::<PodStatus>(&text) else { continue };
            let found = (status.phase.unwrap_or_default(), status.reason.unwrap_or_default());
            if is_over(&found.0) {
                self.on_disk.insert(uid.clone(), found);
            }
        }
    }

    fn record_evictions(&mut self, world: &World) {
        let latest = world.agent.iter().flat_map(|agent| agent.recorder().latest());
        for event in latest.filter(|event| event.reason == "Evicted") {
            if let base_agent::events::EventObject::Pod(pod) = event.about {
                self.evicted.insert(pod.uid.as_str().to_owned());
            }
        }
    }

    /// How ended pods differ in the API from what the kubelet knew.
    pub(super) fn final_differences(&self, in_api: &BTreeMap<String, Pod>) -> Vec<String> {
        let found = |uid: &String| {
            let status = in_api.get(uid)?.status.clone().unwrap_or_default();
            Some((status.phase.unwrap_or_default(), status.reason.unwrap_or_default()))
        };
        let lost = self.on_disk.iter().filter_map(|(uid, known)| Some((uid, known, found(uid)?)));
        let lost = lost.filter(|(_, known, found)| *known != found);
        let lost = lost.map(|(uid, known, found)| {
            format!("the final status of {uid} is lost: {known:?}, and in the API {found:?}")
        });
        let evicted = self.evicted.iter().filter_map(|uid| Some((uid, found(uid)?)));
        let evicted = evicted.filter(|(_, found)| *found != ("Failed".to_owned(), "Evicted".to_owned()));
        lost.chain(evicted.map(|(uid, found)| format!("{uid} was evicted, and is {found:?} in the API")))
            .collect()
    }

    /// What is allocated although there are no pods.
    pub(super) fn allocated(&self) -> Vec<String> {
        let text = |path| self.host.text(path).unwrap_or_default();
        let is_clean = [
            (DEVICE_CHECKPOINT, text(DEVICE_CHECKPOINT).contains("\"PodDeviceEntries\":null")),
            (CPU_STATE, !text(CPU_STATE).contains("entries")),
            (ALLOCATED, !text(ALLOCATED).contains("ContainerResources")),
        ];
        is_clean
            .iter()
            .filter(|(_, clean)| !clean)
            .map(|(path, _)| format!("{path}: {}", text(path)))
            .collect()
    }

    /// The CPUs that containers share with one that has them for itself.
    pub(super) fn shared_cpus(&self) -> Vec<String> {
        let all = self.fake.running_requests();
        let is_pinned = |container: &str| container.starts_with("pin");
        let own: BTreeSet<u32> = all
            .iter()
            .filter(|(_, request, _)| is_pinned(&request.name))
            .flat_map(|(_, _, resources)| numbers(&resources.cpuset_cpus))
            .collect();
        let shared = all.iter().filter(|(_, request, _)| !is_pinned(&request.name));
        shared
            .filter(|(_, _, resources)| !numbers(&resources.cpuset_cpus).is_disjoint(&own))
            .map(|(_, request, resources)| format!("{} runs on {}", request.name, resources.cpuset_cpus))
            .collect()
    }
}

/// `0-1,3`.
fn numbers(list: &str) -> BTreeSet<u32> {
    let parts = list.split(',').filter(|part| !part.is_empty());
    parts
        .flat_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            from.parse::<u32>().unwrap()..=to.parse::<u32>().unwrap()
        })
        .collect()
}
