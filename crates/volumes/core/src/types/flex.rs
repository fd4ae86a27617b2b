//! `flexVolume`: a volume that a program of the node mounts, its FlexVolume driver.

use model::k8s::Volume;

use super::{ClaimedVolume, VolumePlan, VolumeSource, VolumeType};
use crate::csi::plan::SecretName;
use crate::flex::{FlexPlan, PLUGIN, check_driver};
use crate::mount_arguments::check_fs_type;
use crate::planned_pod::PlannedPod;

pub(super) struct Flex;

impl VolumeType for Flex {
    /// Not a directory of any volume: each driver has its own, [`VolumePlan::plugin_dir`].
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~flexvolume"
    }

    fn plugin_name(&self) -> &'static str {
        PLUGIN
    }

    fn plan(&self, pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        let source = volume.flex_volume.as_ref()?;
        let namespace = pod.pod.metadata.namespace.clone().unwrap_or_default();
        let secret = source.secret_ref.as_ref();
        let plan = FlexPlan {
            driver: source.driver.clone(),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            secret: secret.map(|secret| SecretName { namespace, name: secret.name.clone() }),
            options: source.options.clone().unwrap_or_default(),
        };
        Some(checked(&volume.name, source.read_only == Some(true), plan))
    }

    fn claimed_plan(&self, claimed: &ClaimedVolume<'_>) -> Option<Result<VolumePlan, String>> {
        let source = claimed.spec.flex_volume.as_ref().filter(|_| !claimed.is_device)?;
        if !claimed.mount_options.is_empty() {
            return Some(Err("Mount options are not supported for this volume type".to_owned()));
        }
        let own = claimed.spec.claim_ref.as_ref().and_then(|claim| claim.namespace.clone());
        let secret = source.secret_ref.as_ref().map(|secret| SecretName {
            // The pod is in the namespace of its claim.
            namespace: secret.namespace.clone().filter(|name| !name.is_empty()).or(own).unwrap_or_default(),
            name: secret.name.clone().unwrap_or_default(),
        });
        let plan = FlexPlan {
            driver: source.driver.clone(),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            secret: secret.filter(|secret| !secret.name.is_empty()),
            options: source.options.clone().unwrap_or_default(),
        };
        Some(checked(claimed.name, claimed.read_only, plan))
    }

    fn marks_claimed_volumes(&self) -> bool {
        true
    }
}

fn checked(name: &str, read_only: bool, plan: FlexPlan) -> Result<VolumePlan, String> {
    check_driver(&plan.driver)?;
    if !plan.fs_type.is_empty() {
        check_fs_type(&plan.fs_type)?;
    }
    let plan = VolumePlan {
        volume_type: &Flex,
        name: name.to_owned(),
        read_only,
        // If the driver agrees.
        is_relabelled: !read_only,
        source: VolumeSource::Flex(Box::new(plan)),
    };
    match super::by_plugin_dir(&plan.plugin_dir()) {
        Some(other) => Err(format!("{PLUGIN}: driver name {:?} cannot be used", other.plugin_name())),
        None => Ok(plan),
    }
}
