//! `nfs`: an export of an NFS server.

use model::k8s::Volume;

use super::{ClaimedVolume, VolumePlan, VolumeSource, VolumeType, mount_options};
use crate::mount_arguments::{check_export, check_server};
use crate::planned_pod::PlannedPod;

pub(super) struct Nfs;

impl VolumeType for Nfs {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~nfs"
    }

    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/nfs"
    }

    fn plan(&self, _pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        let source = volume.nfs.as_ref()?;
        let read_only = source.read_only == Some(true);
        Some(plan(&volume.name, &source.server, &source.path, &[], read_only))
    }

    fn claimed_plan(&self, claimed: &ClaimedVolume<'_>) -> Option<Result<VolumePlan, String>> {
        let source = claimed.spec.nfs.as_ref().filter(|_| !claimed.is_device)?;
        let read_only = claimed.read_only || source.read_only == Some(true);
        Some(plan(claimed.name, &source.server, &source.path, claimed.mount_options, read_only))
    }

    fn marks_claimed_volumes(&self) -> bool {
        true
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsPlan {
    /// What is mounted, as `mount` takes it: `[fd00::7]:/export`.
    pub export: String,
    pub options: Vec<String>,
}

fn plan(
    name: &str,
    server: &str,
    path: &str,
    options: &[String],
    read_only: bool,
) -> Result<VolumePlan, String> {
    let plan = NfsPlan { export: export(server, path)?, options: mount_options(options, read_only) };
    Ok(VolumePlan {
        volume_type: &Nfs,
        name: name.to_owned(),
        read_only,
        is_relabelled: false,
        source: VolumeSource::Nfs(plan),
    })
}

fn export(server: &str, path: &str) -> Result<String, String> {
    check_server(server)?;
    check_export(path)?;
    if server.contains(':') && !server.starts_with('[') {
        return Ok(format!("[{server}]:{path}"));
    }
    Ok(format!("{server}:{path}"))
}
