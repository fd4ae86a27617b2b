//! Volumes made of objects: configMap, secret, downwardAPI and projected. What files they hold is decided in
//! `kubelet_core::volumes`; the files change when the objects do.

use kubelet_core::volumes::engine::ReadyVolume;
use kubelet_core::volumes::plan::{Medium, VolumePlan, memory_size, plugin_dir};
use kubelet_core::volumes::{PayloadInputs, RequiredObjects, compute_payload, nested_mount_points};
use model::k8s::EmptyDirVolumeSource;

use super::empty_dir::ensure_backing;
use super::mount_context::{MakeError, MountContext};

/// Of a directory that only serves to mount something on.
const MOUNT_POINT_MODE: u32 = 0o755;

/// Makes the volume show the objects as they are now.
pub(super) async fn make(mount_context: &MountContext<'_>) -> Result<ReadyVolume, MakeError> {
    let failed = |error: &dyn std::error::Error| MakeError::Failed(error.to_string());
    let volume = mount_context.volume;
    let required = RequiredObjects::of(volume);
    let objects = mount_context.objects.find(&required).await.map_err(|error| failed(&error))?;
    let _permit = mount_context.shared.payloads.acquire().await;
    let inputs = PayloadInputs { pod: mount_context.pod, objects: &objects, facts: &mount_context.facts };
    let payload = compute_payload(volume, inputs).map_err(|error| failed(&error))?;

    let directory = plugin_dir(volume, &VolumePlan::Payload);
    let path = mount_context.pod_dir().join("volumes").join(directory).join(&volume.name);
    ensure_backing(mount_context, &path, &format!("wrapped_{}", volume.name), medium(mount_context)).await?;
    mount_context.ctx.mounts.write_payload(&path, &payload, mount_context.group(), mount_context.now).await?;
    for point in nested_mount_points(mount_context.pod, &volume.name, &payload) {
        mount_context.ctx.files.ensure_dir(&path.join(point), MOUNT_POINT_MODE).await?;
    }
    Ok(ReadyVolume { read_only: true, ..ReadyVolume::at(path) })
}

/// What may be secret stays off the disk.
fn medium(mount_context: &MountContext<'_>) -> Medium {
    if mount_context.volume.config_map.is_some() {
        return Medium::Disk;
    }
    Medium::Memory { size_bytes: memory_size(mount_context.pod, &EmptyDirVolumeSource::default()) }
}
