//! The types of volumes: one file for each decides everything in which it differs from the others.
//!
//! To add a type, write its file here (what the API specifies, what it is made from, which objects it needs, its names), its
//! mounter in the agent, and add it to [`VOLUME_TYPES`]; a new [`VolumeSource`] without a mounter does not compile.

mod config_map;
mod csi;
mod downward_api;
mod empty_dir;
mod fc;
mod flex;
mod host_path;
mod iscsi;
mod local;
mod nfs;
mod projected;
mod secret;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use model::containers::spec_of;
use model::k8s::{PersistentVolumeSpec, Pod, Volume};
use model::payload::Payload;

pub use empty_dir::{EmptyDirPlan, Medium, memory_size, size_on_node};
pub use host_path::HostPathPlan;
pub use local::{LocalDevicePlan, LocalFilesPlan};
pub use nfs::NfsPlan;

use super::csi::migration::has_moved;
use super::csi::plan::CsiPlan;
use super::csi::qualified_name;
use super::fc::FcPlan;
use super::flex::{FlexPlan, directory_name, driver_of};
use super::iscsi::IscsiPlan;
use super::objects::RequiredObjects;
use super::payload::{PayloadError, PayloadInputs, check_path};
use super::planned_pod::PlannedPod;

/// The name of any other type in metrics.
const UNKNOWN: &str = "unknown";
/// In paths, the vendor of every type that is not a FlexVolume driver.
const OWN_VENDOR: &str = "kubernetes.io~";

/// Every type that this kubelet offers. A volume is of the first type that recognises it.
pub static VOLUME_TYPES: [&dyn VolumeType; 12] = [
    &empty_dir::EmptyDir,
    &host_path::HostPath,
    &config_map::ConfigMap,
    &secret::Secret,
    &downward_api::DownwardApi,
    &projected::Projected,
    &local::Local,
    &nfs::Nfs,
    &csi::Csi,
    &iscsi::Iscsi,
    &fc::Fc,
    &flex::Flex,
];

/// The decisions about one type of volume. The agent's mounters carry them out.
pub trait VolumeType: Sync {
    /// The name of the type where it is part of a path: `kubernetes.io~nfs`.
    fn plugin_dir(&self) -> &'static str;
    /// The name of the type in metrics: `kubernetes.io/nfs`.
    fn plugin_name(&self) -> &'static str;
    /// What a volume of the pod's spec is made from; `None` if it is of another type.
    fn plan(&self, _pod: PlannedPod<'_>, _volume: &Volume) -> Option<Result<VolumePlan, String>> {
        None
    }
    /// What a claimed PersistentVolume is made from; `None` if it is of another type.
    fn claimed_plan(&self, _claimed: &ClaimedVolume<'_>) -> Option<Result<VolumePlan, String>> {
        None
    }
    /// The volume is below the pod's directory, in a directory of the type.
    fn is_in_pod_dir(&self) -> bool {
        true
    }
    /// Where containers find the volume, within its directory; empty if it is the directory.
    fn path_in_volume_dir(&self) -> &'static str {
        ""
    }
    /// Claimed volumes have a mark in the pod's directory that holds the volume's name in the pod's spec.
    fn marks_claimed_volumes(&self) -> bool {
        false
    }
    /// The volume is of this type, and shows API objects or fields of the pod.
    fn has_payload(&self, _volume: &Volume) -> bool {
        false
    }
    /// Adds the API objects that a volume of this type shows. It is refreshed when one of them changes.
    fn add_required_objects(&self, _volume: &Volume, _required: &mut RequiredObjects) {}
    /// The files of a volume that shows API objects; `None` if it is of another type.
    fn payload(&self, _volume: &Volume, _inputs: PayloadInputs<'_>) -> Option<Result<Payload, PayloadError>> {
        None
    }
}

impl std::fmt::Debug for dyn VolumeType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.plugin_name())
    }
}

impl PartialEq for dyn VolumeType {
    fn eq(&self, other: &Self) -> bool {
        self.plugin_name() == other.plugin_name()
    }
}

impl Eq for dyn VolumeType {}

/// What a volume is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    pub volume_type: &'static dyn VolumeType,
    /// The name of the PersistentVolume, or of the volume if it has none.
    pub name: String,
    pub read_only: bool,
    /// The volume belongs to the pod alone, so the runtime may give its files the pod's SELinux label. What others use too,
    /// on the node or on a server, keeps its labels.
    pub is_relabelled: bool,
    pub source: VolumeSource,
}

impl VolumePlan {
    /// The volume's type has moved to a CSI driver.
    #[must_use]
    pub const fn is_migrated(&self) -> bool {
        matches!(&self.source, VolumeSource::Csi(plan) if plan.is_migrated)
    }

    /// The name of the type where it is part of a path; a FlexVolume driver is a type of its own.
    #[must_use]
    pub fn plugin_dir(&self) -> Cow<'static, str> {
        match self.flex_driver() {
            Some(driver) => directory_name(driver).into(),
            None => self.volume_type.plugin_dir().into(),
        }
    }

    /// The name of the type in metrics, with the name of the driver for a CSI volume: `kubernetes.io/csi:disk.example.com`.
    #[must_use]
    pub fn qualified_plugin_name(&self) -> String {
        match &self.source {
            VolumeSource::Csi(plan) => qualified_name(&plan.driver),
            VolumeSource::Flex(plan) => plan.driver.clone(),
            VolumeSource::EmptyDir(_)
            | VolumeSource::HostPath(_)
            | VolumeSource::Payload(_)
            | VolumeSource::LocalFiles(_)
            | VolumeSource::LocalDevice(_)
            | VolumeSource::Nfs(_)
            | VolumeSource::Iscsi(_)
            | VolumeSource::Fc(_) => self.volume_type.plugin_name().to_owned(),
        }
    }

    fn flex_driver(&self) -> Option<&str> {
        match &self.source {
            VolumeSource::Flex(plan) => Some(&plan.driver),
            VolumeSource::Csi(_)
            | VolumeSource::EmptyDir(_)
            | VolumeSource::HostPath(_)
            | VolumeSource::Payload(_)
            | VolumeSource::LocalFiles(_)
            | VolumeSource::LocalDevice(_)
            | VolumeSource::Nfs(_)
            | VolumeSource::Iscsi(_)
            | VolumeSource::Fc(_) => None,
        }
    }
}

/// What a mounter of the agent needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    EmptyDir(EmptyDirPlan),
    HostPath(HostPathPlan),
    Payload(PayloadPlan),
    LocalFiles(LocalFilesPlan),
    LocalDevice(LocalDevicePlan),
    Nfs(NfsPlan),
    Csi(Box<CsiPlan>),
    Flex(Box<FlexPlan>),
    Iscsi(Box<IscsiPlan>),
    Fc(Box<FcPlan>),
}

/// Files that show API objects or fields of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadPlan {
    pub medium: Medium,
}

/// A PersistentVolume, as a pod uses it through a claim.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedVolume<'a> {
    /// The name of the PersistentVolume.
    pub name: &'a str,
    pub spec: &'a PersistentVolumeSpec,
    /// `volumeMode: Block`: containers see the device itself.
    pub is_device: bool,
    pub mount_options: &'a [String],
    pub read_only: bool,
    /// The spec is a translation: the volume's type has moved to a CSI driver.
    pub is_migrated: bool,
}

/// The volume shows API objects or fields of the pod, and is refreshed when they change.
#[must_use]
pub fn has_payload(volume: &Volume) -> bool {
    VOLUME_TYPES.iter().any(|volume_type| volume_type.has_payload(volume))
}

/// The volume may be of a CSI driver, which is called again with each sync of the pod if it asks for that, or when the volume has
/// grown.
#[must_use]
pub fn may_have_driver(volume: &Volume) -> bool {
    volume.csi.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || has_moved(volume)
}

/// The API objects of all volumes of the pod, optional ones too.
#[must_use]
pub fn required_objects(pod: &Pod) -> RequiredObjects {
    let mut required = RequiredObjects::default();
    for volume in spec_of(pod).volumes.iter().flatten() {
        add_required_objects(volume, &mut required);
    }
    required
}

/// The API objects of one volume, optional ones too.
#[must_use]
pub fn required_objects_of(volume: &Volume) -> RequiredObjects {
    let mut required = RequiredObjects::default();
    add_required_objects(volume, &mut required);
    required
}

fn add_required_objects(volume: &Volume, required: &mut RequiredObjects) {
    for volume_type in VOLUME_TYPES {
        volume_type.add_required_objects(volume, required);
    }
}

/// All files of the volume; none for a volume that shows no API objects.
///
/// # Errors
/// An object or key that is not optional does not exist, a field has no value yet, or a path would leave the volume.
pub fn compute_payload(volume: &Volume, inputs: PayloadInputs<'_>) -> Result<Payload, PayloadError> {
    let payload = VOLUME_TYPES.iter().find_map(|volume_type| volume_type.payload(volume, inputs));
    let payload = payload.unwrap_or_else(|| Ok(Payload::new()))?;
    payload.keys().try_for_each(|path| check_path(path))?;
    Ok(payload)
}

/// A directory of that name holds volumes of a type that this kubelet offers, as far as the name shows: any other vendor may have
/// a FlexVolume driver.
#[must_use]
pub fn is_known_plugin(plugin_dir: &str) -> bool {
    is_static_plugin(plugin_dir) || !plugin_dir.starts_with(OWN_VENDOR)
}

/// A directory of that name holds volumes of a type that needs no FlexVolume driver.
#[must_use]
pub fn is_static_plugin(plugin_dir: &str) -> bool {
    by_plugin_dir(plugin_dir).is_some()
}

/// The type's name in metrics, by its name in paths.
#[must_use]
pub fn plugin_name(plugin_dir: &str) -> Cow<'static, str> {
    match by_plugin_dir(plugin_dir) {
        Some(volume_type) => volume_type.plugin_name().into(),
        None if is_known_plugin(plugin_dir) => driver_of(plugin_dir).into(),
        None => UNKNOWN.into(),
    }
}

/// The type of the volumes in a directory of that name.
#[must_use]
pub fn type_in(plugin_dir: &str) -> &'static dyn VolumeType {
    by_plugin_dir(plugin_dir).unwrap_or(&flex::Flex)
}

/// Where a volume appears in its pod.
#[must_use]
pub fn volume_dir(pod_dir: &Path, plugin_dir: &str, name: &str) -> PathBuf {
    pod_dir.join("volumes").join(plugin_dir).join(name)
}

fn by_plugin_dir(plugin_dir: &str) -> Option<&'static dyn VolumeType> {
    VOLUME_TYPES.into_iter().find(|volume_type| volume_type.plugin_dir() == plugin_dir)
}

/// The plan of a volume that shows API objects or fields of the pod.
fn payload_plan(volume_type: &'static dyn VolumeType, volume: &Volume, medium: Medium) -> VolumePlan {
    VolumePlan {
        volume_type,
        name: volume.name.clone(),
        read_only: true,
        is_relabelled: true,
        source: VolumeSource::Payload(PayloadPlan { medium }),
    }
}

/// The mount options of the PersistentVolume, after `ro` if the pod may only read.
fn mount_options(of_volume: &[String], read_only: bool) -> Vec<String> {
    let mut options: Vec<String> = read_only.then(|| "ro".to_owned()).into_iter().collect();
    for option in of_volume {
        if !options.contains(option) {
            options.push(option.clone());
        }
    }
    options
}

#[cfg(test)]
mod tests;
