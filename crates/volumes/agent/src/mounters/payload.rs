//! Volumes made of objects: configMap, secret, downwardAPI and projected. What files they hold is decided in
//! `volumes_core`; the files change when the objects do.

use async_trait::async_trait;
use volumes_core::engine::ReadyVolume;
use volumes_core::types::PayloadPlan;
use volumes_core::{PayloadInputs, compute_payload, nested_mount_points, required_objects_of};

use super::super::mount_context::{MountContext, MountError};
use super::Mounter;
use super::empty_dir::ensure_backing;

/// Of a directory that only serves to mount something on.
const MOUNT_POINT_MODE: u32 = 0o755;

#[async_trait]
impl Mounter for PayloadPlan {
    /// Makes the volume show the objects as they are now.
    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        let failed = |error: &dyn std::error::Error| MountError::Failed(error.to_string());
        let name = mount_context.volume;
        let refused = MountError::Refused;
        let pod = mount_context.pod;
        let volume = pod.volume(name).map_err(refused)?;
        let required = required_objects_of(volume);
        let objects = mount_context.objects.find(&required).await.map_err(|error| failed(&error))?;
        let _permit = mount_context.shared.payloads.acquire().await;
        let inputs = PayloadInputs { pod: pod.get(), objects: &objects, facts: &mount_context.facts };
        let payload = compute_payload(volume, inputs).map_err(|error| failed(&error))?;
        let nested = nested_mount_points(pod.index().nested(name), &payload);

        let (path, group) = (mount_context.volume_dir(), mount_context.group());
        ensure_backing(mount_context, &path, &format!("wrapped_{name}"), self.medium).await?;
        mount_context.ctx.mounts.write_payload(&path, &payload, group, mount_context.now).await?;
        for point in nested {
            mount_context.ctx.files.ensure_dir(&path.join(point), MOUNT_POINT_MODE).await?;
        }
        Ok(ReadyVolume::at(path))
    }
}
