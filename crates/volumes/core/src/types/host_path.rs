//! `hostPath`: a path of the node, used where it is.

use model::k8s::{HostPathVolumeSource, Volume};

use super::{ClaimedVolume, VolumePlan, VolumeSource, VolumeType};
use crate::planned_pod::PlannedPod;

pub(super) struct HostPath;

impl VolumeType for HostPath {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~host-path"
    }

    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/host-path"
    }

    fn plan(&self, _pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        Some(Ok(plan(&volume.name, volume.host_path.as_ref()?, false)))
    }

    fn claimed_plan(&self, claimed: &ClaimedVolume<'_>) -> Option<Result<VolumePlan, String>> {
        let source = claimed.spec.host_path.as_ref().filter(|_| !claimed.is_device)?;
        if !claimed.mount_options.is_empty() {
            return Some(Err("Mount options are not supported for this volume type".to_owned()));
        }
        Some(Ok(plan(claimed.name, source, claimed.read_only)))
    }

    fn is_in_pod_dir(&self) -> bool {
        false
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPathPlan {
    pub path: String,
    /// What the path must be: `hostPath.type`.
    pub kind: String,
}

fn plan(name: &str, source: &HostPathVolumeSource, read_only: bool) -> VolumePlan {
    let (path, kind) = (source.path.clone(), source.type_.clone().unwrap_or_default());
    VolumePlan {
        volume_type: &HostPath,
        name: name.to_owned(),
        read_only,
        is_relabelled: false,
        source: VolumeSource::HostPath(HostPathPlan { path, kind }),
    }
}
