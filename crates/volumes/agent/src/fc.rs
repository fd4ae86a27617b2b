//! Disks of Fibre Channel networks, as udev and sysfs show them: looked for, and removed from the kernel. Which links lead to a disk is
//! decided in `volumes_core::fc`.

use std::path::{Path, PathBuf};

use base_agent::context::Context;
use base_agent::error_chain::chain;
use ports::HostError;
use volumes_core::fc::FcDisk;

use super::mount_context::{MountContext, MountError};
use super::scsi;

/// What the links to a disk lead to.
#[derive(Debug, Default)]
struct Found {
    /// One for each target port or identifier that has a link.
    disks: Vec<PathBuf>,
    /// The multipath device on top of them.
    mapped: Option<PathBuf>,
}

async fn find(ctx: &Context, disk: &FcDisk) -> Result<Found, HostError> {
    let dir = disk.links_dir();
    let names = ctx.files.list_names(dir).await?;
    let mut disks = Vec::new();
    for links in disk.links(&names) {
        for link in links {
            // A link may outlive its device.
            if let Ok(device) = ctx.files.resolve(&dir.join(link)).await {
                disks.push(device);
                break;
            }
        }
    }
    let mapped = scsi::multipath_device(ctx, &disks).await;
    Ok(Found { disks, mapped })
}

/// Looks for the disk, if need be again after all SCSI hosts have looked for disks. Without a multipath device it is the disk of the last
/// port or identifier, as for the Go kubelet.
pub(crate) async fn attach(mount_context: &MountContext<'_>, disk: &FcDisk) -> Result<PathBuf, MountError> {
    let ctx = mount_context.ctx;
    let mut found = find(ctx, disk).await?;
    if found.mapped.is_none() {
        let rescan = async {
            scsi::rescan_hosts(ctx).await;
            Ok(())
        };
        mount_context.unless_leaving(rescan).await?;
        found = find(ctx, disk).await?;
    }
    let device = found.mapped.or(found.disks.pop());
    let device = device.ok_or_else(|| MountError::Attach("no fc disk found".to_owned()))?;
    match ctx.files.resolve(&device).await {
        Ok(_) => Ok(device),
        Err(_) => Err(MountError::Attach(format!("device {} does not exist", device.display()))),
    }
}

/// Removes the disk with that directory from the kernel, which nothing has mounted. Idempotent.
pub(crate) async fn detach(ctx: &Context, dir: &Path) -> Result<(), String> {
    let found = find(ctx, &FcDisk::of_dir(dir)?).await.map_err(|error| chain(&error))?;
    let mut disks = found.disks;
    if let Some(mapped) = &found.mapped {
        // The kernel forgets its disks with it.
        disks.extend(scsi::disks_below(ctx, mapped).await);
        scsi::remove_multipath_device(ctx, mapped).await?;
        disks.retain(|disk| disk != mapped);
    }
    disks.sort();
    disks.dedup();
    for disk in &disks {
        scsi::flush_and_delete(ctx, disk).await;
    }
    Ok(())
}
