//! What is recorded next to the mark of a volume, in the pod's directory.

use std::path::Path;

use base_agent::context::Context;
use volumes_core::types::is_static_plugin;

use super::exists;

/// Of a FlexVolume: its driver agrees that it is measured.
pub(super) const MEASURED: &str = "measured";
/// The volume is of an in-tree type that has moved to a CSI driver.
pub(super) const MIGRATED: &str = "migrated";

/// Whether the volume, which was ready once, is of a type that has moved to a CSI driver.
pub(super) async fn is_migrated(ctx: &Context, pod_dir: &Path, plugin_dir: &str, name: &str) -> bool {
    let marks = pod_dir.join("plugins").join(plugin_dir).join(name);
    exists(ctx, &marks.join(MIGRATED)).await.unwrap_or(false)
}

/// Whether the volume in that directory of a pod is measured by what is on disk: of FlexVolumes, those whose drivers agree.
pub async fn is_measured(ctx: &Context, volume_dir: &Path) -> bool {
    let parts = || {
        let of_type = volume_dir.parent()?;
        let plugin_dir = of_type.file_name()?.to_str()?;
        let pod_dir = of_type.parent()?.parent()?;
        Some((pod_dir.join("plugins").join(plugin_dir).join(volume_dir.file_name()?), plugin_dir))
    };
    match parts() {
        Some((marks, plugin_dir)) if !is_static_plugin(plugin_dir) => {
            exists(ctx, &marks.join(MEASURED)).await.unwrap_or(false)
        }
        Some(_) | None => true,
    }
}
