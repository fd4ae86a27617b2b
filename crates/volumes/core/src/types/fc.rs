//! `fc`: a disk of a Fibre Channel network.

use model::k8s::{FCVolumeSource, Volume};
use model::path_component_problem;

use super::{ClaimedVolume, VolumePlan, VolumeSource, VolumeType};
use crate::fc::{FcDisk, FcPlan, PLUGIN, unique_name};
use crate::mount_arguments::check_fs_type;
use crate::planned_pod::PlannedPod;

const DEFAULT_FS: &str = "ext4";

pub(super) struct Fc;

impl VolumeType for Fc {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~fc"
    }

    fn plugin_name(&self) -> &'static str {
        PLUGIN
    }

    fn plan(&self, _pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        let source = volume.fc.as_ref()?;
        let use_of = DiskUse { options: &[], read_only: source.read_only == Some(true), is_device: false };
        Some(plan(&volume.name, source, &use_of))
    }

    fn claimed_plan(&self, claimed: &ClaimedVolume<'_>) -> Option<Result<VolumePlan, String>> {
        let source = claimed.spec.fc.as_ref()?;
        let use_of = DiskUse {
            options: claimed.mount_options,
            read_only: claimed.read_only,
            is_device: claimed.is_device,
        };
        Some(plan(claimed.name, source, &use_of))
    }

    fn marks_claimed_volumes(&self) -> bool {
        true
    }
}

/// How the pod uses the disk.
struct DiskUse<'a> {
    options: &'a [String],
    read_only: bool,
    is_device: bool,
}

fn plan(name: &str, source: &FCVolumeSource, use_of: &DiskUse<'_>) -> Result<VolumePlan, String> {
    let DiskUse { options, read_only, is_device } = *use_of;
    let wwns = source.target_wwns.as_deref().unwrap_or_default();
    let wwids = source.wwids.as_deref().unwrap_or_default();
    let disk = FcDisk::of_source(wwns, source.lun, wwids)?;
    // It is in paths.
    if let Some(problem) = path_component_problem(&disk.dir_name()) {
        return Err(format!("{PLUGIN}: {:?} cannot be used: {problem}", disk.dir_name()));
    }
    let fs_type = source.fs_type.as_deref().filter(|fs_type| !fs_type.is_empty()).unwrap_or(DEFAULT_FS);
    check_fs_type(fs_type)?;
    let plan = FcPlan {
        disk,
        unique_name: unique_name(wwns, source.lun, wwids),
        fs_type: fs_type.to_owned(),
        options: options.to_vec(),
        is_device,
    };
    Ok(VolumePlan {
        volume_type: &Fc,
        name: name.to_owned(),
        read_only,
        is_relabelled: !read_only && !is_device,
        source: VolumeSource::Fc(Box::new(plan)),
    })
}
