//! The volumes of pods: what the volume engine does with them, and otherwise whether their pod exists in the runtime.

use base_agent::pods_view::PodEntry;
use explain_core::volume_source::kind_and_source;
use model::containers::{all_containers, spec_of};
use model::explain::TrailStep;
use model::inventory::{Inventory, PodSelection, VolumeItem, VolumeState};
use model::k8s::{Pod, Volume};
use volumes_agent::{PodVolumesReport, VolumeReports};

use super::{TIMEOUT, in_time, wall_time};
use crate::serving::explain::selected;
use crate::serving::node_api::AgentApi;

pub(super) async fn list(api: &AgentApi, of: &PodSelection) -> Inventory<VolumeItem> {
    let (reports, problems) = reports(api).await;
    let mut items = Vec::new();
    for entry in selected(&api.lookup, of) {
        let trail = api.lookup.ctx.recorder.trails.of(&entry.identity.uid).0;
        let report = reports.get(&entry.identity.uid);
        let volumes = spec_of(&entry.pod).volumes.iter().flatten();
        items.extend(volumes.map(|volume| item(api, &entry, volume, report, &trail)));
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

pub(super) fn item(
    api: &AgentApi,
    entry: &PodEntry,
    volume: &Volume,
    report: Option<&PodVolumesReport>,
    trail: &[TrailStep],
) -> VolumeItem {
    let (kind, source) = kind_and_source(volume);
    let known = report.and_then(|report| report.volumes.iter().find(|known| *known.name == *volume.name));
    let awaited = report.and_then(|report| report.awaited.get(&volume.name));
    let state = known.map_or_else(|| settled_state(api, entry), |known| known.state);
    let stuck_on = report.map(|report| report.stuck_on.clone()).unwrap_or_default();
    let error = match state {
        VolumeState::NotMounted | VolumeState::Mounted => String::new(),
        VolumeState::Unmounting => stuck_on,
        VolumeState::Mounting | VolumeState::Failed | VolumeState::Refused => {
            let refusal = known.map(|known| known.refusal.clone()).filter(|refusal| !refusal.is_empty());
            refusal.or_else(|| last_error(trail, &volume.name)).unwrap_or_default()
        }
    };
    VolumeItem {
        namespace: entry.identity.namespace.to_string(),
        pod: entry.identity.name.to_string(),
        pod_uid: entry.identity.uid.to_string(),
        name: volume.name.clone(),
        kind: kind.to_owned(),
        source,
        state,
        failures: known.map_or(0, |known| known.failures),
        error,
        next_try: known.and_then(|known| known.retry_at).map(|at| wall_time(&api.lookup.ctx, at)),
        attachment: awaited.map(|(attachment, _)| attachment.clone()).unwrap_or_default(),
        containers: containers_with(&entry.pod, &volume.name),
    }
}

/// A pod that exists in the runtime has its volumes mounted: they are mounted first and unmounted last.
fn settled_state(api: &AgentApi, entry: &PodEntry) -> VolumeState {
    let observed = api.lookup.cache.get(&entry.identity.uid);
    match observed.is_some_and(|observed| !observed.is_empty()) {
        true => VolumeState::Mounted,
        false => VolumeState::NotMounted,
    }
}

/// What the last attempt said: its event quotes the name of the volume.
fn last_error(trail: &[TrailStep], volume: &str) -> Option<String> {
    let quoted = format!("{volume:?}");
    let is_meant = |step: &&TrailStep| step.is_event && step.is_warning && step.message.contains(&quoted);
    trail.iter().rev().find(is_meant).map(|step| step.message.clone())
}

fn containers_with(pod: &Pod, volume: &str) -> Vec<String> {
    let uses = |container: &model::ContainerRef<'_>| {
        container.volume_mounts().iter().any(|mount| mount.name == volume)
            || container.volume_devices().iter().any(|device| device.name == volume)
    };
    all_containers(pod).filter(uses).map(|container| container.name().to_owned()).collect()
}
