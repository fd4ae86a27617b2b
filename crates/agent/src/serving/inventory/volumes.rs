//! The volumes of pods: what the volume engine does with them, and otherwise whether their pod exists in the runtime.

use std::collections::{BTreeMap, BTreeSet};

use base_agent::pods_view::PodEntry;
use explain_core::volume_source::kind_and_source;
use model::containers::{all_containers, spec_of};
use model::explain::TrailStep;
use model::inventory::{Inventory, PodSelection, VolumeItem, VolumeState};
use model::k8s::{Pod, Volume};
use volumes_agent::{PodVolumesReport, VolumeReports};
use volumes_core::engine::VolumeReport;

use super::{TIMEOUT, in_time, wall_time};
use crate::serving::explain::selected;
use crate::serving::node_api::AgentApi;

pub(super) async fn list(api: &AgentApi, of: &PodSelection) -> Inventory<VolumeItem> {
    let (reports, problems) = reports(api).await;
    let mut items = Vec::new();
    for entry in selected(&api.lookup, of) {
        let known = PodVolumes::of(api, &entry, &reports);
        items.extend(spec_of(&entry.pod).volumes.iter().flatten().map(|volume| known.item(volume)));
    }
    Inventory { items, problems }
}

/// What the volume engine works on, and why that is not known.
pub(super) async fn reports(api: &AgentApi) -> (VolumeReports, Vec<String>) {
    match in_time(&api.lookup.ctx, api.handles.volumes.report()).await {
        Some(Ok(reports)) => (reports, Vec::new()),
        Some(Err(error)) => (VolumeReports::new(), vec![error.to_string()]),
        None => {
            let problem = format!("the volume engine has not answered for {} s", TIMEOUT.as_secs());
            (VolumeReports::new(), vec![problem])
        }
    }
}

/// The volumes of one pod, with what is known of them by their names.
#[derive(Debug)]
pub(super) struct PodVolumes<'a> {
    api: &'a AgentApi,
    entry: &'a PodEntry,
    report: Option<&'a PodVolumesReport>,
    reported: BTreeMap<&'a str, &'a VolumeReport>,
    /// The containers that have a volume.
    containers: BTreeMap<&'a str, BTreeSet<&'a str>>,
    trail: Vec<TrailStep>,
}

impl<'a> PodVolumes<'a> {
    pub(super) fn of(api: &'a AgentApi, entry: &'a PodEntry, reports: &'a VolumeReports) -> Self {
        let report = reports.get(&entry.identity.uid);
        let reported = report.into_iter().flat_map(|report| &report.volumes);
        Self {
            api,
            entry,
            report,
            reported: reported.map(|volume| (&*volume.name, volume)).collect(),
            containers: containers_by_volume(&entry.pod),
            trail: api.lookup.ctx.recorder.trails.of(&entry.identity.uid).0,
        }
    }

    /// One of the pod's volumes.
    pub(super) fn item(&self, volume: &Volume) -> VolumeItem {
        let (kind, source) = kind_and_source(volume);
        let identity = &self.entry.identity;
        let known = self.reported.get(&*volume.name);
        let state = known.map_or_else(|| self.settled_state(), |known| known.state);
        let retry_at = known.and_then(|known| known.retry_at);
        let containers = self.containers.get(&*volume.name).into_iter().flatten();
        VolumeItem {
            namespace: identity.namespace.to_string(),
            pod: identity.name.to_string(),
            pod_uid: identity.uid.to_string(),
            name: volume.name.clone(),
            kind: kind.to_owned(),
            source,
            state,
            failures: known.map_or(0, |known| known.failures),
            error: self.error(&volume.name, state),
            next_try: retry_at.map(|at| wall_time(&self.api.lookup.ctx, at)),
            attachment: self
                .awaited(&volume.name)
                .map(|(attachment, _)| attachment.clone())
                .unwrap_or_default(),
            containers: containers.map(|name| (*name).to_owned()).collect(),
        }
    }

    /// The VolumeAttachment that a volume waits for, and the driver.
    pub(super) fn awaited(&self, volume: &str) -> Option<&(String, String)> {
        self.report?.awaited.get(volume)
    }

    fn error(&self, volume: &str, state: VolumeState) -> String {
        match state {
            VolumeState::NotMounted | VolumeState::Mounted => String::new(),
            VolumeState::Unmounting => self.report.map(|report| report.stuck_on.clone()).unwrap_or_default(),
            VolumeState::Mounting | VolumeState::Failed | VolumeState::Refused => {
                let refusal = self.reported.get(volume).map(|known| known.refusal.clone());
                let refusal = refusal.filter(|refusal| !refusal.is_empty());
                refusal.or_else(|| last_error(&self.trail, volume)).unwrap_or_default()
            }
        }
    }

    /// A pod that exists in the runtime has its volumes mounted: they are mounted first and unmounted last.
    fn settled_state(&self) -> VolumeState {
        let observed = self.api.lookup.cache.get(&self.entry.identity.uid);
        match observed.is_some_and(|observed| !observed.is_empty()) {
            true => VolumeState::Mounted,
            false => VolumeState::NotMounted,
        }
    }
}

/// What the last attempt said: its event quotes the name of the volume. The trail of a pod is short.
fn last_error(trail: &[TrailStep], volume: &str) -> Option<String> {
    let quoted = format!("{volume:?}");
    let is_meant = |step: &&TrailStep| step.is_event && step.is_warning && step.message.contains(&quoted);
    trail.iter().rev().find(is_meant).map(|step| step.message.clone())
}

fn containers_by_volume(pod: &Pod) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut containers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in all_containers(pod) {
        let mounts = container.volume_mounts().iter().map(|mount| &*mount.name);
        let devices = container.volume_devices().iter().map(|device| &*device.name);
        for volume in mounts.chain(devices) {
            containers.entry(volume).or_default().insert(container.name());
        }
    }
    containers
}
