//! What a volume of the pod's spec means on this node: which type makes it, from what, and where it appears
//! (docs/behaviour/volumes.md).
//!
//! A claim leads through its PersistentVolume to one of the [types](super::types). Volumes of other types are refused here,
//! each with its own message. Never: reading an API object or a path.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use model::annotations::{MOUNT_OPTIONS, VOLUME_GID};
use model::containers::spec_of;
use model::k8s::{PersistentVolume, PersistentVolumeClaim, Pod, Volume, VolumeNodeAffinity};
use model::path_component_problem;
use model::stats::VolumeSample;

use super::csi::migration::translate_persistent_volume;
use super::engine::ReadyVolume;
use super::index::VolumeIndex;
use super::mount_arguments::check_options;
use super::node_affinity::affinity_of;
use super::planned_pod::{PlannedPod, PodLimits};
use super::types::{ClaimedVolume, VOLUME_TYPES, VolumePlan};

/// Why a volume of another type cannot be mounted.
const NO_PLUGIN: &str = "no volume plugin matched";

/// What a volume with a claim is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub plan: VolumePlan,
    /// A group that every user of the volume belongs to, from the PersistentVolume's annotation.
    pub gid: Option<u32>,
    /// The nodes that may mount the PersistentVolume; `None`: every node.
    pub node_affinity: Option<Box<VolumeNodeAffinity>>,
}

/// A volume, as far as the pod's spec specifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecPlan {
    Volume(VolumePlan),
    /// The PersistentVolume of its claim specifies the rest.
    Claim(ClaimUse),
}

/// How a pod uses a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUse {
    pub name: String,
    pub read_only: bool,
    /// The claim was made for this pod, and must belong to it.
    pub is_ephemeral: bool,
}

/// What the pod's spec specifies for the volume.
///
/// # Errors
/// This kubelet does not offer the type, or the pod contradicts itself. The text is complete.
pub fn spec_plan<'p>(pod: impl Into<PlannedPod<'p>>, volume: &Volume) -> Result<SpecPlan, String> {
    let pod = pod.into();
    if let Some(plan) = VOLUME_TYPES.iter().find_map(|volume_type| volume_type.plan(pod, volume)) {
        return plan.map(SpecPlan::Volume);
    }
    if let Some(source) = &volume.persistent_volume_claim {
        let (name, read_only) = (source.claim_name.clone(), source.read_only == Some(true));
        return Ok(SpecPlan::Claim(ClaimUse { name, read_only, is_ephemeral: false }));
    }
    if volume.ephemeral.is_some() {
        let pod = pod.pod.metadata.name.as_deref().unwrap_or_default();
        let name = format!("{pod}-{}", volume.name);
        return Ok(SpecPlan::Claim(ClaimUse { name, read_only: false, is_ephemeral: true }));
    }
    Err(NO_PLUGIN.to_owned())
}

/// The claims that the pod's volumes need.
#[must_use]
pub fn required_claims(pod: &Pod) -> Vec<String> {
    let limits = PodLimits::of(pod);
    let volumes = spec_of(pod).volumes.iter().flatten();
    let claims =
        volumes.filter_map(|volume| match spec_plan(PlannedPod::with_limits(pod, &limits), volume) {
            Ok(SpecPlan::Claim(claim)) => Some(claim.name),
            Ok(SpecPlan::Volume(_)) | Err(_) => None,
        });
    claims.collect()
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

/// What a volume with a claim is made from.
///
/// # Errors
/// The PersistentVolume belongs to another claim, contradicts the pod, or is of a type that this kubelet does not offer.
pub fn claimed_plan(
    index: &VolumeIndex,
    volume: &Volume,
    wanted: &ClaimUse,
    claim: &PersistentVolumeClaim,
    bound: &PersistentVolume,
) -> Result<Claimed, String> {
    check_bound(claim, bound)?;
    let name = bound.metadata.name.clone().unwrap_or_default();
    if let Some(problem) = path_component_problem(&name) {
        return Err(format!("PV has an invalid name {name:?}: {problem}"));
    }
    let translated = translate_persistent_volume(bound).transpose()?;
    let is_migrated = translated.is_some();
    let spec = translated.or_else(|| bound.spec.clone()).unwrap_or_default();
    let is_device = spec.volume_mode.as_deref() == Some("Block");
    check_use(index, &volume.name, is_device)?;
    let options = options_of(bound);
    check_options(&options)?;
    let claimed = ClaimedVolume {
        name: &name,
        spec: &spec,
        is_device,
        mount_options: &options,
        read_only: wanted.read_only,
        is_migrated,
    };
    let plan = VOLUME_TYPES.iter().find_map(|volume_type| volume_type.claimed_plan(&claimed));
    let plan = plan.unwrap_or_else(|| Err(NO_PLUGIN.to_owned()))?;
    Ok(Claimed { plan, gid: gid_of(bound), node_affinity: affinity_of(&spec) })
}

/// The PersistentVolume must say that it is this very claim's.
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

/// The annotation is older than the field, and overrides it.
fn options_of(bound: &PersistentVolume) -> Vec<String> {
    let annotation = bound.metadata.annotations.as_ref().and_then(|all| all.get(MOUNT_OPTIONS));
    match annotation {
        Some(text) => text.split(',').filter(|option| !option.is_empty()).map(str::to_owned).collect(),
        None => bound.spec.as_ref().and_then(|spec| spec.mount_options.clone()).unwrap_or_default(),
    }
}

/// The group of the annotation; ignored if it is not a number.
fn gid_of(bound: &PersistentVolume) -> Option<u32> {
    let annotation = bound.metadata.annotations.as_ref()?.get(VOLUME_GID)?;
    annotation.parse().ok()
}

/// The groups of these volumes that the pod does not have already.
#[must_use]
pub fn extra_groups<'a>(pod: &Pod, volumes: impl Iterator<Item = &'a ReadyVolume>) -> Vec<i64> {
    let context = spec_of(pod).security_context.as_ref();
    let known = context.and_then(|context| context.supplemental_groups.as_deref()).unwrap_or_default();
    let known = BTreeSet::from_iter(known);
    let groups: BTreeSet<i64> = volumes.filter_map(|volume| volume.gid).map(i64::from).collect();
    groups.into_iter().filter(|gid| !known.contains(gid)).collect()
}

/// A device is for `volumeDevices`, everything else for `volumeMounts`.
fn check_use(index: &VolumeIndex, volume: &str, is_device: bool) -> Result<(), String> {
    match is_device {
        true if index.is_mounted(volume) => {
            Err(format!("volume {volume} has volumeMode Block, but is specified in volumeMounts"))
        }
        false if index.is_mapped(volume) => {
            Err(format!("volume {volume} has volumeMode Filesystem, but is specified in volumeDevices"))
        }
        true | false => Ok(()),
    }
}

/// How many volumes of each type, of CSI volumes with the driver, these pods have; the flag of a pod: its volumes are mounted. The type of a claimed volume is in
/// an API object that is not kept, so those that were measured on disk count.
#[must_use]
pub fn count_volumes<'a>(
    pods: impl Iterator<Item = (impl Deref<Target = Pod>, bool)>,
    measured: impl Iterator<Item = &'a VolumeSample>,
) -> BTreeMap<String, VolumeCount> {
    let mut counts: BTreeMap<String, VolumeCount> = BTreeMap::new();
    for (pod, is_mounted) in pods {
        let limits = PodLimits::of(&pod);
        for volume in spec_of(&pod).volumes.iter().flatten() {
            let planned = spec_plan(PlannedPod::with_limits(&pod, &limits), volume);
            let Ok(SpecPlan::Volume(plan)) = planned else { continue };
            let count = counts.entry(plan.qualified_plugin_name()).or_default();
            count.desired += 1;
            count.actual += u64::from(is_mounted);
        }
    }
    for volume in measured.filter(|volume| volume.claim.is_some()) {
        let count = counts.entry(volume.plugin.to_string()).or_default();
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

#[cfg(test)]
mod tests;
