//! What a volume of the pod's spec resolves to on this node: its type, its source and its mount options
//! (docs/behaviour/volumes.md).
//!
//! A PersistentVolumeClaim is resolved through its PersistentVolume to one of the same types. Types that this kubelet does
//! not support are rejected here, each with its own message: CSI would stand next to `Local` and `Nfs`, with an attach and
//! a stage step before it. No object and no path is read here.

use std::collections::{BTreeMap, BTreeSet};

use model::Amount;
use model::annotations::{MOUNT_OPTIONS, VOLUME_GID};
use model::containers::{all_containers, spec_of};
use model::k8s::{
    EmptyDirVolumeSource, HostPathVolumeSource, LocalVolumeSource, PersistentVolume, PersistentVolumeClaim,
    Pod, Volume,
};
use model::path_component_problem;

use super::engine::ReadyVolume;
use super::has_payload;
use super::mount_arguments::{check_export, check_fs_type, check_options, check_server};
use crate::resources::cgroup::pod::pod_limit;
use crate::serving::stats::sample::VolumeSample;

/// The name in metrics of a volume type that this kubelet does not support.
const UNKNOWN: &str = "unknown";
/// The filesystem of a device whose PersistentVolume specifies none.
const DEFAULT_FS: &str = "ext4";

/// What a volume is set up from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumePlan {
    /// A directory of the pod.
    EmptyDir(Medium),
    /// A path of the node. `kind`: the required type. `name`: of the PersistentVolume, or of the volume if it has none.
    HostPath { name: String, path: String, kind: String, read_only: bool },
    /// Files that the kubelet writes.
    Payload,
    /// A directory or block device of this node that has a PersistentVolume of that name.
    Local { volume: String, path: String, shown: Shown, read_only: bool },
    /// `name`: of the PersistentVolume, or of the volume if it has none.
    Nfs { name: String, export: String, options: Vec<String>, read_only: bool },
}

/// How containers see a local PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The device itself.
    Device,
    /// Files. A device gets a filesystem of that type if it is empty.
    Files { fs_type: String, options: Vec<String> },
}

/// What a volume with a PersistentVolumeClaim resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub plan: VolumePlan,
    /// A supplementary group for the containers that use the volume, from the PersistentVolume's annotation.
    pub gid: Option<u32>,
}

/// The medium of an `emptyDir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The disk that the pod's directory is on.
    Disk,
    /// 0: the kernel's default size.
    Memory {
        size_bytes: u64,
    },
    HugePages {
        page_bytes: u64,
        size_bytes: u64,
    },
}

/// A volume, as far as the pod's spec specifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    Plan(VolumePlan),
    /// Its PersistentVolumeClaim specifies the rest.
    Claim(ClaimUse),
}

/// How a pod uses a PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUse {
    pub name: String,
    pub read_only: bool,
    /// The claim was made for this pod, and must belong to it.
    pub is_ephemeral: bool,
}

/// What the spec specifies for the volume.
///
/// # Errors
/// This kubelet does not support the type, or the spec is contradictory. The text is complete.
pub fn meaning(pod: &Pod, volume: &Volume) -> Result<Meaning, String> {
    if let Some(source) = &volume.empty_dir {
        return Ok(Meaning::Plan(VolumePlan::EmptyDir(medium(pod, volume, source)?)));
    }
    if let Some(source) = &volume.host_path {
        return Ok(Meaning::Plan(host_path(&volume.name, source, false)));
    }
    if has_payload(volume) {
        return Ok(Meaning::Plan(VolumePlan::Payload));
    }
    if let Some(source) = &volume.nfs {
        let read_only = source.read_only == Some(true);
        let export = export(&source.server, &source.path)?;
        let (name, options) = (volume.name.clone(), mount_options(&[], read_only));
        return Ok(Meaning::Plan(VolumePlan::Nfs { name, export, options, read_only }));
    }
    if let Some(source) = &volume.persistent_volume_claim {
        let (name, read_only) = (source.claim_name.clone(), source.read_only == Some(true));
        return Ok(Meaning::Claim(ClaimUse { name, read_only, is_ephemeral: false }));
    }
    if volume.ephemeral.is_some() {
        let pod = pod.metadata.name.as_deref().unwrap_or_default();
        let name = format!("{pod}-{}", volume.name);
        return Ok(Meaning::Claim(ClaimUse { name, read_only: false, is_ephemeral: true }));
    }
    Err(refusal(volume))
}

/// The PersistentVolumeClaims that the pod's volumes need.
#[must_use]
pub fn required_claims(pod: &Pod) -> Vec<String> {
    let volumes = spec_of(pod).volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| match meaning(pod, volume) {
        Ok(Meaning::Claim(claim)) => Some(claim.name),
        Ok(Meaning::Plan(_)) | Err(_) => None,
    });
    claims.collect()
}

fn refusal(volume: &Volume) -> String {
    if let Some(csi) = &volume.csi {
        return unknown_driver(&csi.driver);
    }
    let not_offered = if volume.iscsi.is_some() {
        "iSCSI"
    } else if volume.fc.is_some() {
        "Fibre Channel"
    } else {
        return "no volume plugin matched".to_owned();
    };
    format!("{not_offered} volumes are not offered by this kubelet yet")
}

/// The error of an unregistered driver: this kubelet has no registration of CSI drivers yet.
fn unknown_driver(driver: &str) -> String {
    format!("kubernetes.io/csi: driver name {driver} not found in the list of registered CSI drivers")
}

fn medium(pod: &Pod, volume: &Volume, source: &EmptyDirVolumeSource) -> Result<Medium, String> {
    let name = source.medium.as_deref().unwrap_or_default();
    match name.strip_prefix("HugePages") {
        Some(size) => huge_pages(pod, volume, size.strip_prefix('-')),
        None if name.is_empty() => Ok(Medium::Disk),
        None if name == "Memory" => Ok(Medium::Memory { size_bytes: memory_size(pod, source) }),
        None => Err(format!("unknown storage medium {name:?}")),
    }
}

/// The smaller of the volume's own limit and the memory limit of the pod's cgroup; 0 where neither is set.
#[must_use]
pub fn memory_size(pod: &Pod, source: &EmptyDirVolumeSource) -> u64 {
    let own = source.size_limit.as_ref().and_then(|q| Amount::of(q).ok()).map(Amount::units);
    let of_pod = pod_limit(pod, "memory").map(Amount::units);
    let size = [own, of_pod].into_iter().flatten().filter(|size| *size > 0).min();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
}

/// Pages of the size that the medium specifies, or else of the only size that the pod's containers request.
fn huge_pages(pod: &Pod, volume: &Volume, named: Option<&str>) -> Result<Medium, String> {
    let asked = requested_pages(pod);
    let page_bytes = match named {
        Some(size) => {
            let bytes = Amount::parse(size).ok().and_then(|amount| u64::try_from(amount.units()).ok());
            bytes.ok_or_else(|| format!("volume {:?} names no size of huge pages", volume.name))?
        }
        None => match asked.as_slice() {
            [(page_bytes, _)] => *page_bytes,
            [] => return Err("no huge pages are asked for by any container of the pod".to_owned()),
            [_, _, ..] => {
                return Err(
                    "medium \"HugePages\" can only be used if the pod asks for one size of pages".to_owned()
                );
            }
        },
    };
    let size_bytes = asked.iter().find(|(bytes, _)| *bytes == page_bytes).map(|(_, size)| *size);
    match size_bytes {
        Some(size_bytes) => Ok(Medium::HugePages { page_bytes, size_bytes }),
        None => Err(format!("no container of the pod asks for huge pages of {page_bytes} bytes")),
    }
}

/// Bytes of huge pages that the pod's containers request, by page size.
fn requested_pages(pod: &Pod) -> Vec<(u64, u64)> {
    let mut asked: Vec<(u64, u64)> = Vec::new();
    for container in all_containers(pod) {
        let requests = container.resources().and_then(|resources| resources.requests.as_ref());
        let limits = container.resources().and_then(|resources| resources.limits.as_ref());
        // The limit is the request if none is set.
        let both = requests.or(limits).into_iter().flatten();
        for (name, quantity) in both {
            let size = name.strip_prefix("hugepages-").and_then(|size| Amount::parse(size).ok());
            let Some(page) = size.and_then(|size| u64::try_from(size.units()).ok()) else { continue };
            let amount = Amount::of(quantity).ok().and_then(|amount| u64::try_from(amount.units()).ok());
            match asked.iter_mut().find(|(known, _)| *known == page) {
                Some((_, sum)) => *sum = sum.saturating_add(amount.unwrap_or(0)),
                None => asked.push((page, amount.unwrap_or(0))),
            }
        }
    }
    asked
}

fn host_path(name: &str, source: &HostPathVolumeSource, read_only: bool) -> VolumePlan {
    let (path, kind) = (source.path.clone(), source.type_.clone().unwrap_or_default());
    VolumePlan::HostPath { name: name.to_owned(), path, kind, read_only }
}

/// The source of an NFS mount, as `mount` expects it: `[fd00::7]:/export`.
fn export(server: &str, path: &str) -> Result<String, String> {
    check_server(server)?;
    check_export(path)?;
    if server.contains(':') && !server.starts_with('[') {
        return Ok(format!("[{server}]:{path}"));
    }
    Ok(format!("{server}:{path}"))
}

fn mount_options(of_volume: &[String], read_only: bool) -> Vec<String> {
    let mut options: Vec<String> = read_only.then(|| "ro".to_owned()).into_iter().collect();
    for option in of_volume {
        if !options.contains(option) {
            options.push(option.clone());
        }
    }
    options
}

/// The PersistentVolume that the claim is bound to.
///
/// # Errors
/// The pod cannot use the claim, or not yet.
pub fn bound_volume<'a>(
    pod: &Pod,
    wanted: &ClaimUse,
    claim: &'a PersistentVolumeClaim,
) -> Result<&'a str, String> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    if wanted.is_ephemeral && !owners.iter().any(|owner| owner.uid == uid && owner.controller == Some(true)) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        return Err(format!(
            "PVC {namespace}/{} was not created for pod {namespace}/{name} (pod is not owner)",
            wanted.name
        ));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("PVC is being deleted".to_owned());
    }
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    if !is_bound || name.is_empty() {
        return Err("PVC is not bound".to_owned());
    }
    match path_component_problem(name) {
        Some(problem) => Err(format!("PVC has an invalid volume name {name:?}: {problem}")),
        None => Ok(name),
    }
}

/// What a volume with a PersistentVolumeClaim is set up from.
///
/// # Errors
/// The PersistentVolume belongs to another claim, does not match the pod, or has a type that this kubelet does not support.
pub fn claimed_plan(
    pod: &Pod,
    (volume, wanted): (&Volume, &ClaimUse),
    claim: &PersistentVolumeClaim,
    bound: &PersistentVolume,
) -> Result<Claimed, String> {
    check_bound(claim, bound)?;
    let name = bound.metadata.name.clone().unwrap_or_default();
    if let Some(problem) = path_component_problem(&name) {
        return Err(format!("PV has an invalid name {name:?}: {problem}"));
    }
    let spec = bound.spec.clone().unwrap_or_default();
    let is_device = spec.volume_mode.as_deref() == Some("Block");
    check_use(pod, &volume.name, is_device)?;
    let options = options_of(bound);
    check_options(&options)?;
    let plan = if let Some(LocalVolumeSource { path, fs_type }) = spec.local {
        let fs_type = fs_type.filter(|fs_type| !fs_type.is_empty()).unwrap_or_else(|| DEFAULT_FS.to_owned());
        check_fs_type(&fs_type)?;
        let shown = if is_device { Shown::Device } else { Shown::Files { fs_type, options } };
        // `fsck` treats only arguments that begin with a slash as devices.
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        VolumePlan::Local { volume: name, path, shown, read_only: wanted.read_only }
    } else if let Some(nfs) = spec.nfs.filter(|_| !is_device) {
        let read_only = wanted.read_only || nfs.read_only == Some(true);
        let options = mount_options(&options, read_only);
        VolumePlan::Nfs { name, export: export(&nfs.server, &nfs.path)?, options, read_only }
    } else if let Some(source) = spec.host_path.filter(|_| !is_device) {
        if !options.is_empty() {
            return Err("Mount options are not supported for this volume type".to_owned());
        }
        host_path(&name, &source, wanted.read_only)
    } else {
        return Err(match (spec.csi, spec.iscsi, spec.fc) {
            (Some(csi), ..) => unknown_driver(&csi.driver),
            (_, Some(_), _) => "iSCSI volumes are not offered by this kubelet yet".to_owned(),
            (.., Some(_)) => "Fibre Channel volumes are not offered by this kubelet yet".to_owned(),
            (None, None, None) => "no volume plugin matched".to_owned(),
        });
    };
    Ok(Claimed { plan, gid: gid_of(bound) })
}

/// The claimRef of the PersistentVolume must point to this claim.
fn check_bound(claim: &PersistentVolumeClaim, bound: &PersistentVolume) -> Result<(), String> {
    let name = bound.metadata.name.as_deref().unwrap_or_default();
    let claim_uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let reference = bound.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    match reference.map(|reference| reference.uid.as_deref().unwrap_or_default()) {
        None => Err(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        )),
        Some(uid) if uid != claim_uid => Err(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {uid} does not point to claim.UID {claim_uid}"
        )),
        Some(_) => Ok(()),
    }
}

/// The annotation is older than the field, and takes precedence.
fn options_of(bound: &PersistentVolume) -> Vec<String> {
    let annotation = bound.metadata.annotations.as_ref().and_then(|all| all.get(MOUNT_OPTIONS));
    match annotation {
        Some(text) => text.split(',').filter(|option| !option.is_empty()).map(str::to_owned).collect(),
        None => bound.spec.as_ref().and_then(|spec| spec.mount_options.clone()).unwrap_or_default(),
    }
}

/// A group that is not a number is ignored.
fn gid_of(bound: &PersistentVolume) -> Option<u32> {
    let annotation = bound.metadata.annotations.as_ref()?.get(VOLUME_GID)?;
    annotation.parse().ok()
}

/// The groups of these volumes that are not among the pod's supplemental groups.
#[must_use]
pub fn extra_groups<'a>(pod: &Pod, volumes: impl Iterator<Item = &'a ReadyVolume>) -> Vec<i64> {
    let context = spec_of(pod).security_context.as_ref();
    let known = context.and_then(|context| context.supplemental_groups.as_deref()).unwrap_or_default();
    let groups: BTreeSet<i64> = volumes.filter_map(|volume| volume.gid).map(i64::from).collect();
    groups.into_iter().filter(|gid| !known.contains(gid)).collect()
}

/// A block device is for `volumeDevices`, other volumes are for `volumeMounts`.
fn check_use(pod: &Pod, volume: &str, is_device: bool) -> Result<(), String> {
    let is_mounted = all_containers(pod).any(|c| c.volume_mounts().iter().any(|mount| mount.name == volume));
    let is_mapped =
        all_containers(pod).any(|c| c.volume_devices().iter().any(|device| device.name == volume));
    match is_device {
        true if is_mounted => {
            Err(format!("volume {volume} has volumeMode Block, but is specified in volumeMounts"))
        }
        false if is_mapped => {
            Err(format!("volume {volume} has volumeMode Filesystem, but is specified in volumeDevices"))
        }
        true | false => Ok(()),
    }
}

impl VolumePlan {
    /// Whether the runtime may give the volume's files the pod's SELinux label. Files that are shared, on the node or on a
    /// server, keep their labels.
    #[must_use]
    pub const fn is_relabelled(&self) -> bool {
        match self {
            Self::EmptyDir(_) | Self::Payload => true,
            Self::Local { shown: Shown::Files { .. }, read_only, .. } => !*read_only,
            Self::Local { shown: Shown::Device, .. } | Self::HostPath { .. } | Self::Nfs { .. } => false,
        }
    }
}

/// The plugin name in paths: `kubernetes.io~nfs`.
#[must_use]
pub fn plugin_dir(volume: &Volume, plan: &VolumePlan) -> &'static str {
    match plan {
        VolumePlan::EmptyDir(_) => "kubernetes.io~empty-dir",
        VolumePlan::HostPath { .. } => "kubernetes.io~host-path",
        VolumePlan::Local { .. } => "kubernetes.io~local-volume",
        VolumePlan::Nfs { .. } => "kubernetes.io~nfs",
        VolumePlan::Payload if volume.config_map.is_some() => "kubernetes.io~configmap",
        VolumePlan::Payload if volume.secret.is_some() => "kubernetes.io~secret",
        VolumePlan::Payload if volume.downward_api.is_some() => "kubernetes.io~downward-api",
        VolumePlan::Payload => "kubernetes.io~projected",
    }
}

/// How many volumes of each type these pods have, desired and actual; the flag of a pod is whether its volumes are mounted.
/// The type of a volume with a claim is in an object that the kubelet does not cache, so those measured on disk count.
#[must_use]
pub fn count_volumes<'a>(
    pods: impl Iterator<Item = (&'a Pod, bool)>,
    measured: impl Iterator<Item = &'a VolumeSample>,
) -> BTreeMap<&'static str, VolumeCount> {
    let mut counts: BTreeMap<&'static str, VolumeCount> = BTreeMap::new();
    for (pod, is_mounted) in pods {
        for volume in spec_of(pod).volumes.iter().flatten() {
            let Ok(Meaning::Plan(plan)) = meaning(pod, volume) else { continue };
            let count = counts.entry(plugin_name(plugin_dir(volume, &plan))).or_default();
            count.desired += 1;
            count.actual += u64::from(is_mounted);
        }
    }
    for volume in measured.filter(|volume| volume.claim.is_some()) {
        let count = counts.entry(volume.plugin).or_default();
        count.desired += 1;
        count.actual += 1;
    }
    counts
}

/// Volumes of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeCount {
    pub desired: u64,
    pub actual: u64,
}

/// A directory of that name contains volumes of a supported type.
#[must_use]
pub fn is_known_plugin(plugin_dir: &str) -> bool {
    plugin_name(plugin_dir) != UNKNOWN
}

/// The plugin name in metrics: `kubernetes.io/nfs`.
#[must_use]
pub fn plugin_name(plugin_dir: &str) -> &'static str {
    match plugin_dir {
        "kubernetes.io~empty-dir" => "kubernetes.io/empty-dir",
        "kubernetes.io~host-path" => "kubernetes.io/host-path",
        "kubernetes.io~local-volume" => "kubernetes.io/local-volume",
        "kubernetes.io~nfs" => "kubernetes.io/nfs",
        "kubernetes.io~configmap" => "kubernetes.io/configmap",
        "kubernetes.io~secret" => "kubernetes.io/secret",
        "kubernetes.io~downward-api" => "kubernetes.io/downward-api",
        "kubernetes.io~projected" => "kubernetes.io/projected",
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests;
