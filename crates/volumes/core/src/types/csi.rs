//! `csi`: a volume of a CSI driver, which the driver itself makes available to pods.

use model::k8s::{CSIPersistentVolumeSource, CSIVolumeSource, Pod, SecretReference, Volume};
use model::path_component_problem;

use super::{ClaimedVolume, VolumePlan, VolumeSource, VolumeType};
use crate::csi::migration::{TranslatedVolume, translate_inline};
use crate::csi::paths::{IN_POD, MOUNT, inline_handle};
use crate::csi::plan::{CsiPlan, SecretName};
use crate::csi::{Lifecycle, PLUGIN};
use crate::planned_pod::PlannedPod;

pub(super) struct Csi;

impl VolumeType for Csi {
    fn plugin_dir(&self) -> &'static str {
        IN_POD
    }

    fn plugin_name(&self) -> &'static str {
        PLUGIN
    }

    fn plan(&self, pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        let namespace = pod.pod.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(translated) = translate_inline(volume, namespace) {
            return translated.map_or_else(|error| Some(Err(error)), |volume| translated_plan(&volume));
        }
        let source = volume.csi.as_ref()?;
        Some(check_driver(&source.driver).map(|()| inline_plan(pod.pod, &volume.name, source)))
    }

    fn claimed_plan(&self, claimed: &ClaimedVolume<'_>) -> Option<Result<VolumePlan, String>> {
        let source = claimed.spec.csi.as_ref()?;
        Some(check(claimed.name, source).map(|()| persistent_plan(claimed, source)))
    }

    fn marks_claimed_volumes(&self) -> bool {
        true
    }

    fn path_in_volume_dir(&self) -> &'static str {
        MOUNT
    }
}

/// The driver's name is part of paths.
fn check_driver(driver: &str) -> Result<(), String> {
    match path_component_problem(driver) {
        Some(problem) => Err(format!("{PLUGIN}: driver name {driver:?} cannot be used: {problem}")),
        None => Ok(()),
    }
}

/// Nor may the volume's name lead elsewhere.
fn check(name: &str, source: &CSIPersistentVolumeSource) -> Result<(), String> {
    check_driver(&source.driver)?;
    if let Some(problem) = path_component_problem(&directory_name(name)) {
        return Err(format!("{PLUGIN}: volume name {name:?} cannot be used: {problem}"));
    }
    match source.volume_handle.is_empty() {
        true => Err(format!("{PLUGIN}: the volume handle is empty")),
        false => Ok(()),
    }
}

fn inline_plan(pod: &Pod, name: &str, source: &CSIVolumeSource) -> VolumePlan {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let secret = source.node_publish_secret_ref.as_ref();
    let plan = CsiPlan {
        spec_name: name.to_owned(),
        driver: source.driver.clone(),
        handle: inline_handle(pod.metadata.uid.as_deref().unwrap_or_default(), name),
        lifecycle: Lifecycle::Ephemeral,
        is_device: false,
        fs_type: source.fs_type.clone().unwrap_or_default(),
        attributes: source.volume_attributes.clone().unwrap_or_default(),
        access_modes: Vec::new(),
        mount_options: Vec::new(),
        stage_secret: None,
        publish_secret: secret.map(|secret| SecretName { namespace, name: secret.name.clone() }),
        expand_secret: None,
        is_migrated: false,
    };
    volume_plan(source.read_only == Some(true), plan)
}

/// A volume of the pod's spec whose type has moved to a driver. As in the Go kubelet, what it says about reading only is for the
/// controller that attaches it.
fn translated_plan(volume: &TranslatedVolume) -> Option<Result<VolumePlan, String>> {
    Csi.claimed_plan(&ClaimedVolume {
        name: &volume.name,
        spec: &volume.spec,
        is_device: false,
        mount_options: &[],
        read_only: false,
        is_migrated: true,
    })
}

fn persistent_plan(claimed: &ClaimedVolume<'_>, source: &CSIPersistentVolumeSource) -> VolumePlan {
    let plan = CsiPlan {
        spec_name: claimed.name.to_owned(),
        driver: source.driver.clone(),
        handle: source.volume_handle.clone(),
        lifecycle: Lifecycle::Persistent,
        is_device: claimed.is_device,
        fs_type: source.fs_type.clone().unwrap_or_default(),
        attributes: source.volume_attributes.clone().unwrap_or_default(),
        access_modes: claimed.spec.access_modes.clone().unwrap_or_default(),
        mount_options: claimed.mount_options.to_vec(),
        stage_secret: secret_name(source.node_stage_secret_ref.as_ref()),
        publish_secret: secret_name(source.node_publish_secret_ref.as_ref()),
        expand_secret: secret_name(source.node_expand_secret_ref.as_ref()),
        is_migrated: claimed.is_migrated,
    };
    volume_plan(claimed.read_only, plan)
}

fn secret_name(reference: Option<&SecretReference>) -> Option<SecretName> {
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let reference = reference?;
    Some(SecretName { namespace: text(reference.namespace.as_ref()), name: text(reference.name.as_ref()) })
}

/// As in the Go kubelet: the name of a translated volume may contain slashes.
fn directory_name(name: &str) -> String {
    name.replace('/', "~")
}

fn volume_plan(read_only: bool, plan: CsiPlan) -> VolumePlan {
    VolumePlan {
        volume_type: &Csi,
        name: directory_name(&plan.spec_name),
        read_only,
        is_relabelled: !plan.is_device && !read_only,
        source: VolumeSource::Csi(Box::new(plan)),
    }
}
