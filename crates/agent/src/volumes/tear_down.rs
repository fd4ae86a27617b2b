//! Tears down the volumes of a pod as the disk and the mount table show them, whatever is remembered. So it serves a pod that
//! just ended, one that a killed kubelet left half mounted, and an orphan.

use std::path::Path;

use kubelet_core::volumes::types::{is_known_plugin, plugin_name};
use model::PodUid;
use ports::{Files, HostError};

use super::device;
use super::shared::Devices;
use crate::context::Context;
use crate::error_chain::chain;

/// The marks of volumes (in `plugins`) are removed before the volumes.
const DIRECTORIES: [&str; 4] = ["volume-subpaths", "volumeDevices", "plugins", "volumes"];

/// The volumes of a pod are torn down together, so metrics count the whole time for each of them.
pub(super) async fn tear_down(ctx: &Context, devices: &Devices, uid: &PodUid) -> Result<(), String> {
    let (paths, clock) = (&ctx.settings.paths, ctx.clock);
    let plugins = plugins_of(&*ctx.files, &paths.pod(uid)).await;
    let began = clock.mono();
    let done = remove(ctx, devices, uid).await;
    let took = clock.mono().saturating_since(began);
    for plugin in plugins {
        ctx.metrics.volumes.operated("volume_unmount", plugin_name(&plugin), done.is_ok(), took);
        if !is_known_plugin(&plugin) {
            ctx.metrics.volumes.force_cleaned(done.is_ok());
        }
    }
    done.map_err(|error| chain(&error))
}

/// The directory of the type of each volume that the pod has on disk.
async fn plugins_of(files: &dyn Files, pod_dir: &Path) -> Vec<String> {
    let (volumes, mut plugins) = (pod_dir.join("volumes"), Vec::new());
    for plugin in files.list_names(&volumes).await.unwrap_or_default() {
        let names = files.list_names(&volumes.join(&plugin)).await.unwrap_or_default();
        plugins.extend(names.iter().map(|_| plugin.clone()));
    }
    plugins
}

async fn remove(ctx: &Context, devices: &Devices, uid: &PodUid) -> Result<(), HostError> {
    let dir = ctx.settings.paths.pod(uid);
    let used = device::used_by(&*ctx.files, &dir).await;
    ctx.mounts.unmount_tree(&dir).await?;
    // Before the pod's own directories, whose names show which devices it used.
    device::release(ctx, devices, &used).await?;
    for name in DIRECTORIES {
        ctx.files.remove_tree(&dir.join(name)).await?;
    }
    Ok(())
}
