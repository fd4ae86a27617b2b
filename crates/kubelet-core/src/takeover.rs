//! What a start of this kubelet would do to the pods that already run on the node, whichever kubelet started them
//! (docs/behaviour/change-over.md).
//!
//! Owns the decision for `kubelet takeover --check`, on what was found, and its report. The same functions decide here and in a running
//! kubelet ([`crate::pods::actions`], the formats of the state files); nothing is read or changed.

mod assigned;
mod files;
mod text;

#[cfg(test)]
mod tests;

use config::Features;
use model::annotations::CONFIG_SOURCE;
use model::cgroup::CgroupState;
use model::containers::all_containers;
use model::k8s::Pod;
use model::{CgroupDriver, ContainerState, Now, PodObservation, PodRef, PodSource};
use resources_core::devices::checkpoint::parse_checkpoint;
use serde::Serialize;
use volumes_core::types::is_known_plugin;

use crate::pods::actions::{PodInputs, compute_pod_actions};
use crate::pods::memory::PodMemory;
use crate::pods::plan::{KillContainer, KillReason, PodStep, SandboxReason};
use base_core::backoff::{BackoffTable, MAX_DELAY};

/// Where the Go kubelet has the devices of pods, whatever its root directory is.
pub const GO_DEVICES: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

pub use assigned::{Assigned, AssignedReport, MemoryReport};
pub use files::{DEVICES, FileReport, FileUse, RootEntry, StateSettings, compute_file};

/// What was found on the node, and what this kubelet is configured to run.
#[derive(Clone, Debug)]
pub struct TakeoverInputs<'a> {
    pub pods: &'a [FoundPod],
    /// The pods of all manifests that can be read.
    pub static_pods: &'a [Pod],
    /// Why manifests cannot be read.
    pub manifest_errors: &'a [String],
    /// `staticPodPath` itself cannot be read: which pods its manifests describe is not known.
    pub has_unreadable_path: bool,
    /// This kubelet has an API server.
    pub has_api: bool,
    /// `staticPodURL` is set; its manifests are not read.
    pub has_url: bool,
    pub files: Vec<FileReport>,
    pub assigned: Assigned,
    /// The device checkpoint at [`GO_DEVICES`], if the root directory is another one.
    pub devices_elsewhere: Option<&'a str>,
    pub cgroups: CgroupFacts,
    pub features: Features,
    pub now: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupFacts {
    /// `cgroupDriver`.
    pub configured: CgroupDriver,
    /// What the runtime reports; `None` if it is too old for that.
    pub of_runtime: Option<CgroupDriver>,
}

/// A pod of the runtime, or of the root directory.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundPod {
    pub observed: PodObservation,
    /// Where the kubelet that created its sandbox had it from, if that is known.
    pub source: Option<PodSource>,
    pub dir: Option<FoundDirectory>,
    pub cgroup: FoundCgroup,
}

/// The pod's directory below the root directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundDirectory {
    /// It has the files that only this kubelet writes.
    pub is_own: bool,
    pub volumes: Vec<FoundVolume>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVolume {
    /// The directory of its type, like `kubernetes.io~empty-dir`.
    pub plugin_dir: String,
    pub name: String,
    pub is_mounted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundCgroup {
    /// The parent that the pod's sandbox was created with; empty if the runtime does not report it.
    pub actual: String,
    pub location: CgroupLocation,
}

/// Where a pod's cgroup is, compared with where this kubelet looks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupLocation {
    /// It exists there, or this kubelet uses none.
    #[default]
    Here,
    /// The sandbox was created there, and the cgroup was removed.
    Removed,
    /// The sandbox was created in another one, or the runtime does not report where.
    Elsewhere,
}

/// What a runtime reports in the verbose status of a sandbox: the source of its pod, and the parent of its cgroup (containerd: the request;
/// CRI-O: the settings of the OCI runtime).
#[must_use]
pub fn source_in(info: &str) -> (Option<PodSource>, String) {
    let info: serde_json::Value = serde_json::from_str(info).unwrap_or_default();
    let annotations = ["/config/annotations", "/runtimeSpec/annotations"].map(|path| info.pointer(path));
    let source = annotations.into_iter().flatten().find_map(|all| all.get(CONFIG_SOURCE)?.as_str());
    let source = [PodSource::File, PodSource::Http, PodSource::Api]
        .into_iter()
        .find(|known| source == Some(known.as_str()));
    let text = |path: &str| info.pointer(path).and_then(serde_json::Value::as_str);
    let of_crio = || text("/runtimeSpec/linux/cgroupsPath").map(parent_in_cgroups_path);
    let cgroup = text("/config/linux/cgroup_parent").or_else(of_crio);
    (source, cgroup.unwrap_or_default().to_owned())
}

/// `a.slice:crio:<id>` is in `a.slice`, and `/a/b/crio-<id>` in `/a/b`.
fn parent_in_cgroups_path(path: &str) -> &str {
    let parent = path.split_once(':').or_else(|| path.rsplit_once('/'));
    parent.map_or("", |(parent, _)| parent)
}

/// What happens to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fate {
    /// Everything that runs keeps running.
    Kept,
    /// Some of its containers are stopped, and started again.
    Restarted,
    /// It is stopped, and another pod of its name is started.
    Replaced,
    /// It is stopped.
    Stopped,
    /// Nothing of it runs, and the rest of it is removed.
    Removed,
    /// It does not run yet.
    Started,
}

impl Fate {
    const fn is_harmless(self) -> bool {
        match self {
            Self::Kept | Self::Started => true,
            Self::Restarted | Self::Replaced | Self::Stopped | Self::Removed => false,
        }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TakeoverReport {
    /// Nothing is restarted, stopped, removed or refused.
    pub is_harmless: bool,
    pub written_by: WrittenBy,
    /// What concerns the whole node.
    pub notes: Vec<String>,
    pub pods: Vec<PodReport>,
    pub files: Vec<FileReport>,
}

/// Which kubelets made the directories of pods, and how many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenBy {
    pub kubelet_rs: usize,
    pub other: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// `file`, `http` or `api`; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    pub fate: Fate,
    pub why: Vec<String>,
    /// The devices, CPUs and memory of the pod itself, next to those of its containers.
    #[serde(flatten)]
    pub assigned: AssignedReport,
    pub containers: Vec<ContainerReport>,
    pub volumes: Vec<VolumeReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    pub name: String,
    pub state: &'static str,
    pub restart_count: u32,
    #[serde(flatten)]
    pub assigned: AssignedReport,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeReport {
    pub plugin: String,
    pub name: String,
    pub is_mounted: bool,
    /// This kubelet has the type.
    pub is_known: bool,
}

/// Decides what a start of this kubelet would do.
#[must_use]
pub fn compute_takeover(inputs: &TakeoverInputs<'_>) -> TakeoverReport {
    let mut pods: Vec<PodReport> = inputs.pods.iter().map(|found| report_of(inputs, found)).collect();
    let is_found = |pod: &&Pod| inputs.pods.iter().any(|found| found.observed.pod.uid == PodRef::of(pod).uid);
    pods.extend(inputs.static_pods.iter().filter(|pod| !is_found(pod)).map(started));
    pods.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    let is_refused = inputs.files.iter().any(|file| file.usage == FileUse::Refused);
    let dirs = || inputs.pods.iter().filter_map(|found| found.dir.as_ref());
    let has_lost_cgroups = inputs.pods.iter().any(is_elsewhere);
    TakeoverReport {
        is_harmless: !is_refused && !has_lost_cgroups && pods.iter().all(|pod| pod.fate.is_harmless()),
        written_by: WrittenBy {
            kubelet_rs: dirs().filter(|dir| dir.is_own).count(),
            other: dirs().filter(|dir| !dir.is_own).count(),
        },
        notes: notes(inputs),
        pods,
        files: inputs.files.clone(),
    }
}

fn notes(inputs: &TakeoverInputs<'_>) -> Vec<String> {
    let mut notes: Vec<String> =
        inputs.manifest_errors.iter().map(|error| format!("manifest cannot be read: {error}")).collect();
    if let Some(driver) = inputs.cgroups.of_runtime.filter(|driver| *driver != inputs.cgroups.configured) {
        notes.push(format!(
            "cgroupDriver is {}, the runtime uses {driver}: that of the runtime is used",
            inputs.cgroups.configured
        ));
    }
    if inputs.pods.iter().any(is_elsewhere) {
        notes.push(
            "running pods have cgroups where this kubelet does not look for them: they go on, and the node is not ready until cgroupRoot, \
             cgroupDriver and cgroupsPerQOS are as before, or until these pods were deleted"
                .to_owned(),
        );
    }
    if inputs.has_url {
        notes.push(
            "the pods of staticPodURL were not requested: they are kept if they are unchanged".to_owned(),
        );
    }
    if inputs.devices_elsewhere.is_some_and(|text| has_devices_of(text, inputs.pods)) {
        notes.push(format!(
            "pods of this node have devices in {GO_DEVICES}, which this kubelet does not read, because its root directory is \
             another one: mount that directory to device-plugins in the root directory first"
        ));
    }
    notes
}

/// It runs in a cgroup where this kubelet does not look for it.
fn is_elsewhere(found: &FoundPod) -> bool {
    found.cgroup.location == CgroupLocation::Elsewhere && !found.observed.is_stopped()
}

fn has_devices_of(checkpoint: &str, pods: &[FoundPod]) -> bool {
    let Ok(remembered) = parse_checkpoint(checkpoint, |_| None) else { return false };
    pods.iter().any(|found| remembered.pods.contains_key(&found.observed.pod.uid))
}

fn report_of(inputs: &TakeoverInputs<'_>, found: &FoundPod) -> PodReport {
    let pod = &found.observed.pod;
    let desired = inputs.static_pods.iter().find(|desired| PodRef::of(desired).uid == pod.uid);
    let source = desired.map_or_else(|| source_of(found), |_| Some(found.source.unwrap_or(PodSource::File)));
    let (fate, why) = match desired {
        Some(desired) => fate_of_static(inputs, found, desired),
        None => fate_of_other(inputs, found, source),
    };
    let containers = found.observed.containers.iter().filter(|container| is_newest(found, container));
    let volumes = found.dir.iter().flat_map(|dir| &dir.volumes);
    let mut containers: Vec<ContainerReport> = containers
        .map(|container| container_report(container, inputs.assigned.to_container(&pod.uid, &container.name)))
        .collect();
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    PodReport {
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        uid: pod.uid.to_string(),
        source: source.map(PodSource::as_str),
        fate,
        why,
        assigned: inputs.assigned.to_pod(&pod.uid),
        containers,
        volumes: volumes.map(volume_report).collect(),
    }
}

fn is_newest(found: &FoundPod, container: &model::ContainerObservation) -> bool {
    found.observed.newest(&container.name).is_some_and(|newest| newest.id == container.id)
}

fn container_report(container: &model::ContainerObservation, assigned: AssignedReport) -> ContainerReport {
    let state = match container.state {
        ContainerState::Created => "created",
        ContainerState::Running => "running",
        ContainerState::Exited => "exited",
        ContainerState::Unknown => "unknown",
    };
    let restart_count = container.record.restart_count;
    ContainerReport { name: container.name.to_string(), state, restart_count, assigned }
}

fn volume_report(volume: &FoundVolume) -> VolumeReport {
    VolumeReport {
        plugin: volume.plugin_dir.replacen('~', "/", 1),
        name: volume.name.clone(),
        is_mounted: volume.is_mounted,
        is_known: is_known_plugin(&volume.plugin_dir),
    }
}

/// Without a record: kubelets give static pods UIDs of 32 digits, and the API server gives UUIDs.
fn source_of(found: &FoundPod) -> Option<PodSource> {
    let uid = found.observed.pod.uid.as_str();
    let is_hash = uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let guessed = match (is_hash, uid.len()) {
        (true, _) => Some(PodSource::File),
        (false, 36) => Some(PodSource::Api),
        (false, _) => None,
    };
    found.source.or(guessed)
}

fn started(pod: &Pod) -> PodReport {
    let identity = PodRef::of(pod);
    PodReport {
        namespace: identity.namespace.to_string(),
        name: identity.name.to_string(),
        uid: identity.uid.to_string(),
        source: Some(PodSource::File.as_str()),
        fate: Fate::Started,
        why: vec!["it does not run".to_owned()],
        assigned: AssignedReport::default(),
        containers: Vec::new(),
        volumes: Vec::new(),
    }
}

/// What the next step of the pod's worker would stop.
fn fate_of_static(inputs: &TakeoverInputs<'_>, found: &FoundPod, desired: &Pod) -> (Fate, Vec<String>) {
    if found.observed.is_stopped() {
        let has_run = all_containers(desired).any(|c| found.observed.newest(c.name()).is_some());
        let why = if has_run { "nothing of it runs now" } else { "it has not run yet" };
        return (Fate::Started, vec![why.to_owned()]);
    }
    let memory = PodMemory::new(BackoffTable::crash_loop(MAX_DELAY, inputs.features));
    let cgroup = match found.cgroup.location {
        CgroupLocation::Removed => CgroupState::Missing,
        CgroupLocation::Here | CgroupLocation::Elsewhere => CgroupState::UpToDate,
    };
    let plan = compute_pod_actions(&PodInputs {
        pod: desired,
        observed: &found.observed,
        memory: &memory,
        cgroup,
        features: inputs.features,
        now: inputs.now,
    });
    let why = match plan.step {
        PodStep::Settled | PodStep::RepairCgroup => Vec::new(),
        PodStep::CreateSandbox { why, .. } => vec![sandbox_text(why)],
        PodStep::Converge { kill, .. } | PodStep::Teardown { kill, .. } => {
            kill.iter().map(kill_text).collect()
        }
    };
    if why.is_empty() { (Fate::Kept, kept(found)) } else { (Fate::Restarted, why) }
}

/// A crash-looping container goes on with its restarts, which is nothing that the start of a kubelet does.
fn kept(found: &FoundPod) -> Vec<String> {
    match found.observed.running().count() {
        0 => vec!["no container runs now; it is continued as before".to_owned()],
        _ if is_elsewhere(found) => vec![elsewhere_text(found)],
        _ => Vec::new(),
    }
}

fn fate_of_other(
    inputs: &TakeoverInputs<'_>,
    found: &FoundPod,
    source: Option<PodSource>,
) -> (Fate, Vec<String>) {
    let is_stopped = found.observed.is_stopped();
    let is_listed = match source {
        Some(PodSource::Api) => inputs.has_api,
        Some(PodSource::Http) => inputs.has_url,
        Some(PodSource::File) => inputs.has_unreadable_path,
        None => false,
    };
    if is_listed {
        let condition = match source {
            Some(PodSource::Api) => "as long as the API server has it",
            Some(PodSource::File) => "as long as staticPodPath cannot be read",
            Some(PodSource::Http) | None => "as long as staticPodURL has it",
        };
        let is_kept = is_stopped || found.cgroup.location != CgroupLocation::Removed;
        if !is_kept {
            return (Fate::Restarted, vec![sandbox_text(SandboxReason::CgroupGone)]);
        }
        let elsewhere = is_elsewhere(found).then(|| elsewhere_text(found));
        return (Fate::Kept, [condition.to_owned()].into_iter().chain(elsewhere).collect());
    }
    let same_name = |pod: &&Pod| PodRef::of(pod).has_full_name_of(&found.observed.pod);
    match (inputs.static_pods.iter().find(same_name), is_stopped) {
        (Some(other), false) => {
            let uid = PodRef::of(other).uid;
            (
                Fate::Replaced,
                vec![format!(
                    "the UID of its manifest is {uid}: manifest, file name or node name differ from those that it was started with"
                )],
            )
        }
        (_, true) => (Fate::Removed, vec![without_source(source)]),
        (None, false) => (Fate::Stopped, vec![without_source(source)]),
    }
}

fn without_source(source: Option<PodSource>) -> String {
    match source {
        Some(PodSource::Api) => "it is of an API server, and this kubelet has no kubeconfig",
        Some(PodSource::Http) => "it is of a URL, and staticPodURL is not set",
        Some(PodSource::File) => "no manifest describes it",
        None => "no source has it",
    }
    .to_owned()
}

fn elsewhere_text(found: &FoundPod) -> String {
    match found.cgroup.actual.as_str() {
        "" => "its cgroup is not where this kubelet looks for it".to_owned(),
        actual => format!("its cgroup is {actual}, which is not where this kubelet looks for it"),
    }
}

fn sandbox_text(why: SandboxReason) -> String {
    match why {
        SandboxReason::NoSandbox => "it has no sandbox",
        SandboxReason::MoreThanOneReady => "it has more than one ready sandbox",
        SandboxReason::NewestNotReady => "its newest sandbox is not ready",
        SandboxReason::NetworkNamespaceChanged => "its manifest has another hostNetwork",
        SandboxReason::NoPodIp => "its sandbox has no address",
        SandboxReason::CgroupGone => "its cgroup was removed",
    }
    .to_owned()
}

fn kill_text(kill: &KillContainer) -> String {
    let why = match kill.why {
        KillReason::SpecChanged => "has another image in its manifest",
        KillReason::ResizeRequiresRestart => "has other resources, and a policy that requires a restart",
        KillReason::LivenessFailed => "failed its liveness probe",
        KillReason::StartupFailed => "failed its startup probe",
        KillReason::NotInSpec => "is not in the manifest",
        KillReason::UnknownState => "has a state that the runtime does not know",
        KillReason::Superseded => "has a newer instance",
        KillReason::PodFinished => "belongs to a pod that has ended",
        KillReason::PodTerminating => "belongs to a pod that is ending",
        KillReason::SandboxReplaced => "belongs to an older sandbox",
        KillReason::RestartAllContainers => "is restarted with all others",
        KillReason::PostStartHookFailed => "failed its postStart hook",
    };
    format!("container {} {why}", kill.name)
}
