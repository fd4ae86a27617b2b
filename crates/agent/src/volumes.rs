//! The volumes of a pod: made ready before its containers start, taken down after the last one is gone.
//!
//! The seam for what comes later: [`ensure_volumes`] and [`release_volumes`] are all that pod workers know. Each type
//! is one arm of [`ensure_volume`]. Nothing is remembered in memory: what exists is read from the pod's directory and
//! the mount table, so a restarted kubelet goes on where the last one stopped.

mod payload;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubelet_core::downward::DownwardFacts;
use kubelet_core::volume::has_payload;
use model::Amount;
use model::containers::spec_of;
use model::k8s::{EmptyDirVolumeSource, HostPathVolumeSource, Pod, Volume, VolumeMount};
use model::{PodRef, PodUid};
use ports::host::HostPathKind;
use ports::{Host, HostError};

use crate::cluster::objects::PodObjects;
use crate::settings::Paths;

/// Why a volume is not ready. The text is what the `FailedMount` event shows.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {detail}")]
    SetUp { volume: String, detail: String },
    #[error("failed to prepare subPath \"{sub_path}\" for volumeMount \"{volume}\": {detail}")]
    SubPath { volume: String, sub_path: String, detail: String },
    #[error("failed to release the volumes of pod {pod}")]
    Release {
        pod: PodUid,
        #[source]
        source: HostError,
    },
}

/// Where each volume of a pod is on this machine.
pub type VolumePaths = BTreeMap<String, PathBuf>;

/// What the volumes of one pod are made with.
#[derive(Clone, Copy, Debug)]
pub struct VolumeScene<'a> {
    pub host: &'a dyn Host,
    pub paths: &'a Paths,
    pub pod: &'a Pod,
    pub objects: &'a PodObjects,
    pub facts: DownwardFacts<'a>,
    pub now: Timestamp,
}

impl VolumeScene<'_> {
    fn pod_dir(&self) -> PathBuf {
        self.paths.pod(&PodRef::of(self.pod).uid)
    }

    fn volumes(&self) -> &[Volume] {
        spec_of(self.pod).volumes.as_deref().unwrap_or_default()
    }

    /// The group that the pod's volumes are given to.
    fn group(&self) -> Option<u32> {
        let group = spec_of(self.pod).security_context.as_ref().and_then(|context| context.fs_group);
        group.and_then(|gid| u32::try_from(gid).ok())
    }
}

/// Makes every volume of the pod ready. Idempotent.
///
/// # Errors
/// The first volume that cannot be made ready.
pub async fn ensure_volumes(scene: &VolumeScene<'_>) -> Result<VolumePaths, VolumeError> {
    let mut ready = VolumePaths::new();
    for volume in scene.volumes() {
        ready.insert(volume.name.clone(), ensure_volume(scene, volume).await?);
    }
    Ok(ready)
}

/// Brings the volumes that are made of objects up to date. Returns what is wrong with those that are not.
pub async fn refresh_payloads(scene: &VolumeScene<'_>) -> Vec<VolumeError> {
    let mut errors = Vec::new();
    for volume in scene.volumes().iter().filter(|volume| has_payload(volume)) {
        errors.extend(ensure_volume(scene, volume).await.err());
    }
    errors
}

/// Unmounts and removes the pod's volumes. Idempotent.
///
/// # Errors
/// Something is still in use, or the disk refused.
pub async fn release_volumes(host: &dyn Host, paths: &Paths, uid: &PodUid) -> Result<(), VolumeError> {
    let dir = paths.pod(uid);
    let failed = |source| VolumeError::Release { pod: uid.clone(), source };
    host.unmount_tree(&dir).await.map_err(failed)?;
    // The marks of volumes that are ready go before the volumes themselves.
    for name in ["volume-subpaths", "plugins", "volumes"] {
        host.remove_tree(&dir.join(name)).await.map_err(failed)?;
    }
    Ok(())
}

/// Removes what is left of the pod's directory; its volumes must have been released. Idempotent.
///
/// # Errors
/// Something is mounted inside, or the disk refused.
pub async fn remove_pod_dir(host: &dyn Host, paths: &Paths, uid: &PodUid) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Release { pod: uid.clone(), source };
    host.remove_tree(&paths.pod(uid)).await.map_err(failed)
}

async fn ensure_volume(scene: &VolumeScene<'_>, volume: &Volume) -> Result<PathBuf, VolumeError> {
    let made = if let Some(empty_dir) = &volume.empty_dir {
        ensure_empty_dir(scene, &volume.name, empty_dir).await
    } else if let Some(host_path) = &volume.host_path {
        ensure_host_path(scene.host, host_path).await
    } else if has_payload(volume) {
        payload::ensure_payload(scene, volume).await
    } else {
        Err("this kubelet offers emptyDir, hostPath, configMap, secret, downwardAPI and projected volumes so far"
            .to_owned())
    };
    made.map_err(|detail| VolumeError::SetUp { volume: volume.name.clone(), detail })
}

async fn ensure_empty_dir(
    scene: &VolumeScene<'_>,
    name: &str,
    source: &EmptyDirVolumeSource,
) -> Result<PathBuf, String> {
    let medium = match source.medium.as_deref().unwrap_or_default() {
        "" => Medium::Disk,
        "Memory" => Medium::Memory { size_bytes: memory_volume_size(scene.pod, source) },
        other => {
            return Err(format!("emptyDir medium {other:?} is not offered yet; \"\" and \"Memory\" are"));
        }
    };
    let path = scene.pod_dir().join("volumes/kubernetes.io~empty-dir").join(name);
    ensure_backing(scene, &path, name, medium).await.map_err(|error| chain(&error))?;
    Ok(path)
}

/// What a volume of our own lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// The disk that the pod's directory is on.
    Disk,
    /// 0: the kernel's default size.
    Memory { size_bytes: u64 },
}

/// A directory for a volume is made once: what its containers do to its permissions later is theirs, also over restarts
/// of the kubelet. A mark beside the volumes says that it is ready; one in memory is gone after a reboot all the same.
async fn ensure_backing(
    scene: &VolumeScene<'_>,
    path: &Path,
    mark_name: &str,
    medium: Medium,
) -> Result<(), HostError> {
    let host = scene.host;
    let mark_dir = scene.pod_dir().join("plugins/kubernetes.io~empty-dir").join(mark_name);
    let mark = mark_dir.join("ready");
    let was_ready = host.read_file(&mark, 1, false).await.is_ok();
    if was_ready && (medium == Medium::Disk || host.is_mount_point(path).await?) {
        return Ok(());
    }
    host.ensure_dir(path, 0o777).await?;
    if let Medium::Memory { size_bytes } = medium {
        host.ensure_tmpfs(path, size_bytes).await?;
    }
    if let Some(gid) = scene.group() {
        host.give_to_group(path, gid).await?;
    }
    host.ensure_dir(&mark_dir, 0o750).await?;
    host.write_file(&mark, b"", 0o644).await
}

/// The smaller of the volume's own limit and what the pod's containers may use together; 0 where neither is set.
fn memory_volume_size(pod: &Pod, source: &EmptyDirVolumeSource) -> u64 {
    let own = source.size_limit.as_ref().and_then(|q| Amount::of(q).ok()).map(Amount::units);
    let limits: Option<Vec<i64>> = model::containers::regular_containers(pod)
        .map(|c| c.resources().and_then(|r| model::qos::limit(r, "memory")).map(Amount::units))
        .collect();
    let of_pod = limits.map(|all| all.into_iter().sum::<i64>()).filter(|sum| *sum > 0);
    let size = [own, of_pod].into_iter().flatten().filter(|size| *size > 0).min();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
}

async fn ensure_host_path(host: &dyn Host, source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    let kind = match source.type_.as_deref().unwrap_or_default() {
        "" => HostPathKind::Unset,
        "DirectoryOrCreate" => HostPathKind::DirectoryOrCreate,
        "Directory" => HostPathKind::Directory,
        "FileOrCreate" => HostPathKind::FileOrCreate,
        "File" => HostPathKind::File,
        "Socket" => HostPathKind::Socket,
        "CharDevice" => HostPathKind::CharDevice,
        "BlockDevice" => HostPathKind::BlockDevice,
        other => return Err(format!("hostPath type {other:?} is unknown")),
    };
    host.ensure_host_path(&path, kind).await.map_err(|e| chain(&e))?;
    Ok(path)
}

/// Binds the subPath of a mount to a place of its own that no later change inside the volume can redirect.
///
/// # Errors
/// The path leads outside the volume, or binding failed.
pub async fn ensure_sub_path(
    host: &dyn Host,
    pod_dir: &Path,
    container: &str,
    mount: (usize, &VolumeMount),
    volume: (&Path, &str),
) -> Result<PathBuf, VolumeError> {
    let (index, mount) = mount;
    let (volume_path, sub_path) = volume;
    let target = pod_dir.join("volume-subpaths").join(&mount.name).join(container).join(index.to_string());
    host.bind_sub_path(volume_path, sub_path, &target).await.map_err(|error| VolumeError::SubPath {
        volume: mount.name.clone(),
        sub_path: sub_path.to_owned(),
        detail: chain(&error),
    })?;
    Ok(target)
}

/// An error with all its causes on one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
