//! Tears down the volumes of a pod as the disk and the mount table show them, whatever is remembered. So it serves a pod that
//! just ended, one that a killed kubelet left half mounted, and an orphan.

use std::path::Path;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use model::PodUid;
use ports::HostError;
use volumes_core::csi::paths::IN_POD;
use volumes_core::csi::{PLUGIN, qualified_name};
use volumes_core::flex::driver_of;
use volumes_core::types::{is_static_plugin, plugin_name};

use super::csi::pod_volumes;
use super::flex;
use super::mounters::{TEAR_DOWNS, TearDown, TerminatingPod};
use super::shared::Shared;
use crate::metrics::VolumeMetrics;

const SUB_PATHS: &str = "volume-subpaths";
/// How metrics call the tear-down of a volume with files, and of a device.
const UNMOUNT: &str = "volume_unmount";
const UNMAP: &str = "unmap_volume";
/// The marks of volumes (in `plugins`) are removed before the volumes.
const DIRECTORIES: [&str; 4] = [SUB_PATHS, "volumeDevices", "plugins", "volumes"];

/// The volumes of a pod are torn down together, so metrics count the whole time for each of them.
pub(super) async fn tear_down(ctx: &Context, shared: &Shared, uid: &PodUid) -> Result<(), String> {
    let clock = ctx.clock;
    let terminating = TerminatingPod { uid, csi: pod_volumes(ctx, uid).await };
    let volumes = volumes_of(ctx, &terminating).await;
    let began = clock.mono();
    let done = remove(ctx, shared, &terminating).await;
    let took = clock.mono().saturating_since(began);
    for OnDisk { operation, plugin_dir, plugin, is_migrated } in volumes {
        ctx.metrics.get::<VolumeMetrics>().operated(operation, &plugin, is_migrated, done.is_ok(), took);
        if !is_static_plugin(&plugin_dir) && flex::installed(ctx, &driver_of(&plugin_dir)).await.is_none() {
            ctx.metrics.get::<VolumeMetrics>().force_cleaned(done.is_ok());
        }
    }
    done
}

/// A volume that a pod has on disk.
struct OnDisk {
    /// How metrics call its tear-down.
    operation: &'static str,
    /// The directory of its type.
    plugin_dir: String,
    /// The name of its type in metrics.
    plugin: String,
    /// Its type has moved to a CSI driver.
    is_migrated: bool,
}

async fn volumes_of(ctx: &Context, terminating: &TerminatingPod<'_>) -> Vec<OnDisk> {
    let (pod_dir, mut found) = (ctx.settings.paths.pod(terminating.uid), Vec::new());
    for (dir, operation) in [("volumes", UNMOUNT), ("volumeDevices", UNMAP)] {
        let dir = pod_dir.join(dir);
        let names = ctx.files.list_names(&dir).await.unwrap_or_default();
        for plugin_dir in names.into_iter().filter(|plugin_dir| plugin_dir != IN_POD) {
            for _ in ctx.files.list_names(&dir.join(&plugin_dir)).await.unwrap_or_default() {
                let plugin = plugin_name(&plugin_dir).into_owned();
                found.push(OnDisk { operation, plugin_dir: plugin_dir.clone(), plugin, is_migrated: false });
            }
        }
    }
    let of_drivers = terminating.csi.iter().flatten().map(|volume| OnDisk {
        operation: if volume.is_device { UNMAP } else { UNMOUNT },
        plugin_dir: IN_POD.to_owned(),
        plugin: volume.driver().map_or_else(|| PLUGIN.to_owned(), qualified_name),
        is_migrated: volume.is_migrated,
    });
    found.extend(of_drivers);
    found
}

/// What one type does not take away does not hold back the volumes of the others.
async fn remove(ctx: &Context, shared: &Shared, terminating: &TerminatingPod<'_>) -> Result<(), String> {
    let uid = terminating.uid;
    let failed = |error: HostError| chain(&error);
    let dir = ctx.settings.paths.pod(uid);
    // Subpaths are bind mounts of what is unmounted next.
    ctx.mounts.unmount_tree(&dir.join(SUB_PATHS)).await.map_err(failed)?;
    let (mut held, mut failures) = (Vec::new(), Vec::new());
    for of_type in TEAR_DOWNS {
        if let Err(error) = of_type.before_unmount(ctx, shared, terminating).await {
            held.push(of_type);
            failures.push(error);
        }
    }
    unmount_all_but(ctx, &dir, &held).await.map_err(failed)?;
    for of_type in TEAR_DOWNS {
        of_type.after_unmount(ctx, shared, uid).await?;
    }
    if !failures.is_empty() {
        return Err(failures.join("; "));
    }
    for name in DIRECTORIES {
        ctx.files.remove_tree(&dir.join(name)).await.map_err(failed)?;
    }
    for of_type in TEAR_DOWNS {
        of_type.after_removal(shared, uid);
    }
    Ok(())
}

/// `held`: the directories of types whose volumes are not the kubelet's to unmount yet.
async fn unmount_all_but(ctx: &Context, dir: &Path, held: &[&dyn TearDown]) -> Result<(), HostError> {
    if held.is_empty() {
        return ctx.mounts.unmount_tree(dir).await;
    }
    let volumes = dir.join("volumes");
    for plugin in ctx.files.list_names(&volumes).await? {
        if !held.iter().any(|of_type| of_type.holds(&plugin)) {
            ctx.mounts.unmount_tree(&volumes.join(plugin)).await?;
        }
    }
    Ok(())
}
