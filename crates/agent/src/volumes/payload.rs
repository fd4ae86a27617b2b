//! Volumes made of objects: configMap, secret, downwardAPI and projected. What files they hold is decided in
//! `kubelet_core::volume`; the files change when the objects do.

use std::path::PathBuf;

use kubelet_core::volume::{PayloadInputs, RequiredObjects, compute_payload, nested_mount_points};
use model::k8s::{EmptyDirVolumeSource, Volume};

use super::{Medium, VolumeScene, chain, ensure_backing, memory_volume_size};

/// Of a directory that only serves to mount something on.
const MOUNT_POINT_MODE: u32 = 0o755;

/// Makes the volume show the objects as they are now.
pub(super) async fn ensure_payload(scene: &VolumeScene<'_>, volume: &Volume) -> Result<PathBuf, String> {
    let required = RequiredObjects::of(volume);
    let objects = scene.objects.find(&required).await.map_err(|error| error.to_string())?;
    let inputs = PayloadInputs { pod: scene.pod, objects: &objects, facts: &scene.facts };
    let payload = compute_payload(volume, inputs).map_err(|error| error.to_string())?;

    let path = scene.pod_dir().join("volumes").join(plugin_dir(volume)).join(&volume.name);
    let mark_name = format!("wrapped_{}", volume.name);
    ensure_backing(scene, &path, &mark_name, medium(scene, volume)).await.map_err(|error| chain(&error))?;
    let written = scene.host.write_payload(&path, &payload, scene.group(), scene.now).await;
    written.map_err(|error| chain(&error))?;
    for point in nested_mount_points(scene.pod, &volume.name, &payload) {
        let made = scene.host.ensure_dir(&path.join(point), MOUNT_POINT_MODE).await;
        made.map_err(|error| chain(&error))?;
    }
    Ok(path)
}

/// What may be secret stays off the disk.
fn medium(scene: &VolumeScene<'_>, volume: &Volume) -> Medium {
    if volume.config_map.is_some() {
        return Medium::Disk;
    }
    Medium::Memory { size_bytes: memory_volume_size(scene.pod, &EmptyDirVolumeSource::default()) }
}

fn plugin_dir(volume: &Volume) -> &'static str {
    if volume.config_map.is_some() {
        "kubernetes.io~configmap"
    } else if volume.secret.is_some() {
        "kubernetes.io~secret"
    } else if volume.downward_api.is_some() {
        "kubernetes.io~downward-api"
    } else {
        "kubernetes.io~projected"
    }
}
