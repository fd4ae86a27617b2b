//! Volumes made of objects: configMap, secret, downwardAPI and projected. What files they hold is decided in
//! `kubelet_core::volume`; the files change when the objects do.

use kubelet_core::volume::engine::ReadyVolume;
use kubelet_core::volume::plan::{Medium, VolumePlan, memory_size, plugin_dir};
use kubelet_core::volume::{PayloadInputs, RequiredObjects, compute_payload, nested_mount_points};
use model::k8s::EmptyDirVolumeSource;

use super::empty_dir::ensure_backing;
use super::make::{MakeError, Scene};

/// Of a directory that only serves to mount something on.
const MOUNT_POINT_MODE: u32 = 0o755;

/// Makes the volume show the objects as they are now.
pub(super) async fn make(scene: &Scene<'_>) -> Result<ReadyVolume, MakeError> {
    let failed = |error: &dyn std::error::Error| MakeError::Failed(error.to_string());
    let volume = scene.volume;
    let required = RequiredObjects::of(volume);
    let objects = scene.objects.find(&required).await.map_err(|error| failed(&error))?;
    let _permit = scene.shared.payloads.acquire().await;
    let inputs = PayloadInputs { pod: scene.pod, objects: &objects, facts: &scene.facts };
    let payload = compute_payload(volume, inputs).map_err(|error| failed(&error))?;

    let directory = plugin_dir(volume, &VolumePlan::Payload);
    let path = scene.pod_dir().join("volumes").join(directory).join(&volume.name);
    ensure_backing(scene, &path, &format!("wrapped_{}", volume.name), medium(scene)).await?;
    scene.host().write_payload(&path, &payload, scene.group(), scene.now).await?;
    for point in nested_mount_points(scene.pod, &volume.name, &payload) {
        scene.host().ensure_dir(&path.join(point), MOUNT_POINT_MODE).await?;
    }
    Ok(ReadyVolume { read_only: true, ..ReadyVolume::at(path) })
}

/// What may be secret stays off the disk.
fn medium(scene: &Scene<'_>) -> Medium {
    if scene.volume.config_map.is_some() {
        return Medium::Disk;
    }
    Medium::Memory { size_bytes: memory_size(scene.pod, &EmptyDirVolumeSource::default()) }
}
