//! `local` PersistentVolumes: a directory or block device of this node.

use super::{ClaimedVolume, VolumePlan, VolumeSource, VolumeType};
use crate::mount_arguments::check_fs_type;

/// The filesystem of a device whose PersistentVolume names none.
const DEFAULT_FS: &str = "ext4";

pub(super) struct Local;

impl VolumeType for Local {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~local-volume"
    }

    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/local-volume"
    }

    fn claimed_plan(&self, claimed: &ClaimedVolume<'_>) -> Option<Result<VolumePlan, String>> {
        let source = claimed.spec.local.as_ref()?;
        let fs_type = source.fs_type.as_deref().filter(|fs_type| !fs_type.is_empty()).unwrap_or(DEFAULT_FS);
        Some(check_fs_type(fs_type).map(|()| plan(claimed, &source.path, fs_type)))
    }

    fn marks_claimed_volumes(&self) -> bool {
        true
    }
}

/// Containers see files: those of the directory, or of the filesystem on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFilesPlan {
    pub path: String,
    /// The filesystem that is made on a device where nothing else was found.
    pub fs_type: String,
    pub options: Vec<String>,
}

/// Containers see the device itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDevicePlan {
    pub path: String,
}

fn plan(claimed: &ClaimedVolume<'_>, path: &str, fs_type: &str) -> VolumePlan {
    // `fsck` takes only what begins with a slash for a device.
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let (fs_type, options) = (fs_type.to_owned(), claimed.mount_options.to_vec());
    VolumePlan {
        volume_type: &Local,
        name: claimed.name.to_owned(),
        read_only: claimed.read_only,
        is_relabelled: !claimed.is_device && !claimed.read_only,
        source: match claimed.is_device {
            true => VolumeSource::LocalDevice(LocalDevicePlan { path }),
            false => VolumeSource::LocalFiles(LocalFilesPlan { path, fs_type, options }),
        },
    }
}
