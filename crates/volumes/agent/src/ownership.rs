//! The group of a volume's files: `fsGroup`.

use crate::metrics::VolumeMetrics;
use std::path::Path;
use std::time::Duration;

use model::containers::spec_of;
use model::k8s::Pod;
use ports::host::GroupPolicy;

use super::mount_context::{MountContext, MountError};

/// A slow change of ownership is reported after this time, and again after each further minute.
const SLOW_AFTER: Duration = Duration::from_secs(30);
const STILL_SLOW_AFTER: Duration = Duration::from_secs(60);

/// Gives the files of the volume to the group, and counts how long that took.
pub(super) async fn change_group(
    mount_context: &MountContext<'_>,
    path: &Path,
    gid: u32,
) -> Result<(), MountError> {
    let began = mount_context.ctx.clock.mono();
    let changed = change_or_report(mount_context, path, gid).await;
    let took = mount_context.ctx.clock.mono().saturating_since(began);
    // The Go kubelet counts this operation with migrated="false" for every volume.
    let plugin = mount_context.plan.qualified_plugin_name();
    mount_context.ctx.metrics.get::<VolumeMetrics>().operated(
        "volume_apply_access_control",
        &plugin,
        false,
        changed.is_ok(),
        took,
    );
    changed
}

fn policy_of(pod: &Pod) -> GroupPolicy {
    let context = spec_of(pod).security_context.as_ref();
    match context.and_then(|context| context.fs_group_change_policy.as_deref()) {
        Some("OnRootMismatch") => GroupPolicy::OnRootMismatch,
        Some(_) | None => GroupPolicy::Always,
    }
}

/// May take hours on a large tree; the deletion of the pod ends it.
async fn change_or_report(mount_context: &MountContext<'_>, path: &Path, gid: u32) -> Result<(), MountError> {
    let policy = policy_of(mount_context.pod.get());
    let clock = mount_context.ctx.clock;
    let work = mount_context.unless_leaving(mount_context.ctx.mounts.set_tree_group(path, gid, policy));
    tokio::pin!(work);
    let mut slow_at = clock.mono() + SLOW_AFTER;
    loop {
        tokio::select! {
            done = &mut work => return Ok(done?),
            () = clock.sleep_until(slow_at) => {
                slow_at = clock.mono() + STILL_SLOW_AFTER;
                let message = format!(
                    "Setting volume ownership for {} is taking longer than expected, consider using OnRootMismatch - \
                     https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods",
                    path.display()
                );
                mount_context.ctx.recorder.warning(mount_context.identity(), None, "VolumePermissionChangeInProgress", message);
            }
        }
    }
}
