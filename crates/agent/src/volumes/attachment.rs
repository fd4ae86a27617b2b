//! Volumes that the attach/detach controller attaches to this node before they are mounted.

use super::mount_context::{MountContext, MountError};
use super::shared::Shared;

const NO_API: &str = "cannot get kube client";

/// From here on the controller does not detach the volume.
pub(super) fn note_in_use(mount_context: &MountContext<'_>, unique_name: &str) -> Result<(), MountError> {
    let objects = mount_context.shared.csi.objects();
    let objects = objects.map_err(|_| MountError::Attach(NO_API.to_owned()))?;
    objects.api.in_use.add(unique_name).map_err(MountError::Attach)
}

/// Waits for the device to which the controller attached the volume; empty if it has none.
pub(super) async fn attached(
    mount_context: &MountContext<'_>,
    unique_name: &str,
) -> Result<String, MountError> {
    let objects = mount_context.shared.csi.objects();
    let api = &objects.map_err(|_| MountError::Attach(NO_API.to_owned()))?.api;
    let reported = async {
        api.in_use.reported(unique_name).await;
        Ok(())
    };
    mount_context.unless_leaving(reported).await?;
    Ok(api.attachments.attached_device(unique_name, mount_context.leaving).await?)
}

/// The volume is unmounted from its node-wide place and may be detached.
pub(super) fn release(shared: &Shared, unique_name: &str) {
    if let Ok(objects) = shared.csi.objects() {
        objects.api.in_use.remove(unique_name);
    }
}
