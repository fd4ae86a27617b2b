//! Takes the CSI volumes of a pod away, as the disk shows them: each is unpublished by its driver, whatever became of the pod.

use std::path::Path;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use futures_util::future::join_all;
use model::PodUid;
use volumes_core::csi::Lifecycle;
use volumes_core::csi::paths::{DevicePaths, IN_POD, MOUNT};
use volumes_core::csi::staging::{StagedVolume, VolumeUser};
use volumes_core::csi::volume_data::PublishedData;

use super::super::marks::is_migrated;
use super::super::remove_empty;
use super::{Csi, read_published, text};

/// A CSI volume of a pod, as the disk shows it.
#[derive(Debug)]
pub(crate) struct PodVolume {
    name: String,
    pub(crate) is_device: bool,
    /// `None`: nothing was published.
    data: Result<Option<PublishedData>, String>,
    /// Of an in-tree type that has moved to the driver.
    pub(crate) is_migrated: bool,
}

impl PodVolume {
    /// If it can be read.
    pub(crate) fn driver(&self) -> Option<&str> {
        Some(&self.data.as_ref().ok()?.as_ref()?.driver)
    }
}

/// All CSI volumes of the pod.
///
/// # Errors
/// The directories cannot be listed.
pub(crate) async fn pod_volumes(ctx: &Context, uid: &PodUid) -> Result<Vec<PodVolume>, String> {
    let (pod_dir, mut found) = (ctx.settings.paths.pod(uid), Vec::new());
    for (parent, is_device) in [("volumes", false), ("volumeDevices", true)] {
        let dir = pod_dir.join(parent).join(IN_POD);
        for name in ctx.files.list_names(&dir).await.map_err(|error| chain(&error))? {
            let data_dir = match is_device {
                true => DevicePaths::of(&ctx.settings.paths.root, &name).data_dir(),
                false => dir.join(&name),
            };
            let data = read_published(ctx, &data_dir).await;
            let is_migrated = is_migrated(ctx, &pod_dir, IN_POD, &name).await;
            found.push(PodVolume { name, is_device, data, is_migrated });
        }
    }
    Ok(found)
}

/// Unpublishes the CSI volumes of the pod, side by side. Idempotent.
///
/// # Errors
/// Some could not be unpublished: what failed, of each.
pub(crate) async fn unpublish(
    ctx: &Context,
    csi: &Csi,
    uid: &PodUid,
    volumes: &[PodVolume],
) -> Result<(), String> {
    if volumes.is_empty() {
        return Ok(());
    }
    csi.staged.complete().await;
    let unpublished = volumes.iter().map(|volume| async move {
        let data = volume.data.as_ref().map_err(Clone::clone)?.as_ref();
        match volume.is_device {
            true => unpublish_device(ctx, csi, uid, &volume.name, data).await,
            false => unpublish_files(ctx, csi, uid, &volume.name, data).await,
        }
    });
    let failures: Vec<String> = join_all(unpublished).await.into_iter().filter_map(Result::err).collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("; ")),
    }
}

async fn unpublish_files(
    ctx: &Context,
    csi: &Csi,
    uid: &PodUid,
    name: &str,
    data: Option<&PublishedData>,
) -> Result<(), String> {
    let dir = ctx.settings.paths.pod(uid).join("volumes").join(IN_POD).join(name);
    let Some(data) = data else {
        // The data is written first, so nothing was published.
        ctx.mounts.unmount_tree(&dir).await.map_err(|error| chain(&error))?;
        return remove_empty(ctx, &dir, Some(MOUNT)).await.map_err(|error| chain(&error));
    };
    let volume = StagedVolume { driver: data.driver.clone(), handle: data.handle.clone(), device: None };
    let permit = csi.staged.acquire(&volume).await.map_err(|error| chain(&error))?;
    call(csi, data, &dir.join(MOUNT), "Unmounter.TearDownAt").await?;
    remove_empty(ctx, &dir, Some(MOUNT)).await.map_err(|error| {
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

async fn unpublish_device(
    ctx: &Context,
    csi: &Csi,
    uid: &PodUid,
    name: &str,
    data: Option<&PublishedData>,
) -> Result<(), String> {
    let device_paths = DevicePaths::of(&ctx.settings.paths.root, name);
    let link = ctx.settings.paths.pod(uid).join("volumeDevices").join(IN_POD).join(name);
    if let Some(data) = data {
        let (driver, handle) = (data.driver.clone(), data.handle.clone());
        let volume = StagedVolume { driver, handle, device: Some(name.to_owned()) };
        let _permit = csi.staged.acquire(&volume).await.map_err(|error| chain(&error))?;
        let target = device_paths.publish_dir.join(uid.as_str());
        call(csi, data, &target, "blockMapper.unpublishVolumeForBlock").await?;
        // The Go kubelet mounts the device here, too.
        let mapped = device_paths.dir.join("dev").join(uid.as_str());
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
