//! Takes the CSI volumes of a pod away, as the disk shows them: each is unpublished by its driver, whatever became of the pod.

use std::path::Path;

use futures_util::future::join_all;
use kubelet_core::volumes::csi::Lifecycle;
use kubelet_core::volumes::csi::places::{DevicePlaces, IN_POD, MOUNT};
use kubelet_core::volumes::csi::staging::{StagedVolume, VolumeUser};
use kubelet_core::volumes::csi::volume_data::PublishedData;
use model::PodUid;

use super::{Csi, read_published, remove_emptied, text};
use crate::context::Context;
use crate::error_chain::chain;

/// Unpublishes all CSI volumes of the pod, side by side. Idempotent.
///
/// # Errors
/// Some could not be unpublished: what failed, of each.
pub(in crate::volumes) async fn unpublish(ctx: &Context, csi: &Csi, uid: &PodUid) -> Result<(), String> {
    let pod_dir = ctx.settings.paths.pod(uid);
    let (volumes, devices) =
        (pod_dir.join("volumes").join(IN_POD), pod_dir.join("volumeDevices").join(IN_POD));
    let volume_names = ctx.files.list_names(&volumes).await.map_err(|error| chain(&error))?;
    let device_names = ctx.files.list_names(&devices).await.map_err(|error| chain(&error))?;
    if volume_names.is_empty() && device_names.is_empty() {
        return Ok(());
    }
    csi.staged.complete().await;
    let files = join_all(volume_names.iter().map(|name| unpublish_files(ctx, csi, uid, name)));
    let devices = join_all(device_names.iter().map(|name| unpublish_device(ctx, csi, uid, name)));
    let (files, devices) = tokio::join!(files, devices);
    let failures: Vec<String> = files.into_iter().chain(devices).filter_map(Result::err).collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("; ")),
    }
}

async fn unpublish_files(ctx: &Context, csi: &Csi, uid: &PodUid, name: &str) -> Result<(), String> {
    let dir = ctx.settings.paths.pod(uid).join("volumes").join(IN_POD).join(name);
    let Some(data) = read_published(ctx, &dir).await? else {
        // The data is written first, so nothing was published.
        ctx.mounts.unmount_tree(&dir).await.map_err(|error| chain(&error))?;
        return remove_emptied(ctx, &dir, MOUNT).await.map_err(|error| chain(&error));
    };
    let volume = StagedVolume { driver: data.driver.clone(), handle: data.handle.clone(), device: None };
    let permit = csi.staged.acquire(&volume).await.map_err(|error| chain(&error))?;
    call(csi, &data, &dir.join(MOUNT), "Unmounter.TearDownAt").await?;
    remove_emptied(ctx, &dir, MOUNT).await.map_err(|error| {
        text(&format!(
            "Unmounter.TearDownAt failed to clean mount dir [{}]: {}",
            dir.display(),
            chain(&error)
        ))
    })?;
    drop(permit);
    if data.lifecycle != Some(Lifecycle::Ephemeral) {
        csi.staged.remove_user(&volume, &VolumeUser { pod: uid.clone(), name: name.to_owned() });
    }
    Ok(())
}

async fn unpublish_device(ctx: &Context, csi: &Csi, uid: &PodUid, name: &str) -> Result<(), String> {
    let places = DevicePlaces::of(&ctx.settings.paths.root, name);
    let link = ctx.settings.paths.pod(uid).join("volumeDevices").join(IN_POD).join(name);
    if let Some(data) = read_published(ctx, &places.data_dir()).await? {
        let (driver, handle) = (data.driver.clone(), data.handle.clone());
        let volume = StagedVolume { driver, handle, device: Some(name.to_owned()) };
        let _permit = csi.staged.acquire(&volume).await.map_err(|error| chain(&error))?;
        let target = places.publish_dir.join(uid.as_str());
        call(csi, &data, &target, "blockMapper.unpublishVolumeForBlock").await?;
        // The Go kubelet mounts the device here, too.
        let mapped = places.dir.join("dev").join(uid.as_str());
        ctx.mounts.unmount_tree(&mapped).await.map_err(|error| chain(&error))?;
        for path in [&mapped, &target, &link] {
            ctx.files.remove_file(path).await.map_err(|error| chain(&error))?;
        }
        csi.staged.remove_user(&volume, &VolumeUser { pod: uid.clone(), name: name.to_owned() });
    }
    ctx.files.remove_file(&link).await.map_err(|error| chain(&error))
}

async fn call(csi: &Csi, data: &PublishedData, target: &Path, step: &str) -> Result<(), String> {
    let driver = csi.drivers.get(&data.driver);
    let driver = driver.map_err(|error| text(&format!("{step} failed to get CSI client: {error}")))?;
    let unpublished = driver.calls.unpublish(&data.handle, target).await;
    unpublished.map_err(|error| text(&format!("{step} failed: {error}")))
}
