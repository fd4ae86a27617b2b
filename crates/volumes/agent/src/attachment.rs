//! Volumes that the attach/detach controller attaches to this node before they are mounted.

use super::mount_context::{MountContext, MountError};
use super::shared::Shared;

const NO_API: &str = "cannot get kube client";

/// From here on the controller does not detach the volume.
pub(super) fn record_in_use(mount_context: &MountContext<'_>, unique_name: &str) -> Result<(), MountError> {
    let objects = mount_context.shared.csi.objects();
    let objects = objects.map_err(|_| MountError::Attach(NO_API.to_owned()))?;
    objects.api.in_use.add(unique_name).map_err(MountError::Attach)
}

/// Waits for the device to which the controller attached the volume; empty if it has none.
pub(crate) async fn attached(
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
    Ok(api.attachments.attached_device(unique_name, mount_context.terminating).await?)
}

/// As [`attached`], for disks that the node finds by itself: without the controller nothing has to be done to attach one.
pub(super) async fn disk_attached(
    mount_context: &MountContext<'_>,
    unique_name: &str,
) -> Result<(), MountError> {
    match mount_context.ctx.config().enable_controller_attach_detach {
        true => attached(mount_context, unique_name).await.map(drop),
        false => Ok(()),
    }
}

/// The volume is unmounted from its node-wide place and may be detached.
pub(crate) fn release(shared: &Shared, unique_name: &str) {
    if let Ok(objects) = shared.csi.objects() {
        objects.api.in_use.remove(unique_name);
    }
}

/// As [`release`], for the volumes whose names fit.
pub(super) fn release_all(shared: &Shared, fits: impl Fn(&str) -> bool) {
    let Ok(objects) = shared.csi.objects() else { return };
    for name in objects.api.in_use.wanted().names.iter().filter(|name| fits(name)) {
        objects.api.in_use.remove(name);
    }
}
