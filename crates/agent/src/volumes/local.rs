//! Directories and block devices of this node that a PersistentVolume stands for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_core::volumes::engine::ReadyVolume;
use kubelet_core::volumes::plan::plugin_name;
use model::containers::spec_of;
use ports::HostError;
use ports::host::{GroupPolicy, HostPathKind};

use super::LOCAL_PLUGIN as PLUGIN;
use super::device::{self, LocalFiles};
use super::mount_context::{MakeError, MountContext};
use crate::error_chain::chain;

/// Giving a tree to a group is said to be slow after this, and again after each further minute.
const SLOW_AFTER: Duration = Duration::from_secs(30);
const STILL_SLOW_AFTER: Duration = Duration::from_secs(60);
/// Where mounts go: root may look in.
const DIRECTORY_MODE: u32 = 0o750;

/// Binds the directory, or the filesystem on the device, into the pod's own, and gives it to the pod's group. A mark says
/// that both are done.
pub(super) async fn mount(
    mount_context: &MountContext<'_>,
    name: &str,
    files: LocalFiles<'_>,
) -> Result<ReadyVolume, MakeError> {
    let read_only = files.read_only;
    // Nobody unmounts a device between its being mounted and its being bound.
    let turn = mount_context.shared.devices.turn(name).await?;
    let is_device = is_device(mount_context, files.source).await?;
    let path = mount_context.pod_dir().join("volumes").join(PLUGIN).join(name);
    let ready = ReadyVolume { read_only, ..ReadyVolume::at(path.clone()) };
    // What containers did to its permissions since is theirs.
    if mount_context.is_marked(PLUGIN, name).await && mount_context.ctx.mounts.is_mount_point(&path).await? {
        return Ok(ready);
    }
    mount_context.ctx.files.ensure_dir(path.parent().unwrap_or(&path), DIRECTORY_MODE).await?;
    let is_bound = mount_context.ctx.mounts.is_mount_point(&path).await?;
    let access = read_only.then(|| "ro".to_owned()).into_iter();
    let (source, options) = if is_device {
        // Says that the pod uses the device, also if the kubelet is killed, or the pod leaves, before it is bound here.
        if !is_bound {
            mount_context.ctx.files.ensure_dir(&path, DIRECTORY_MODE).await?;
        }
        (device::stage(mount_context, name, files).await?, access.collect())
    } else {
        (files.source.to_owned(), access.chain(files.options.iter().cloned()).collect::<Vec<String>>())
    };
    if let Some(gid) = mount_context.group().filter(|_| !is_bound) {
        warn_if_taken_away(mount_context, name, &source, gid).await?;
    }
    mount_context.unless_leaving(mount_context.ctx.mounts.bind_volume(&source, &path, &options)).await?;
    drop(turn);
    if let Some(gid) = mount_context.group().filter(|_| !read_only) {
        let began = mount_context.ctx.clock.mono();
        let given = give_to_group(mount_context, &path, gid).await;
        let took = mount_context.ctx.clock.mono().saturating_since(began);
        let metrics = &mount_context.ctx.metrics.volumes;
        metrics.operated("volume_apply_access_control", plugin_name(PLUGIN), given.is_ok(), took);
        given?;
    }
    mount_context.mark(PLUGIN, name).await?;
    Ok(ready)
}

/// Other pods that use it may find it belonging to another group.
async fn warn_if_taken_away(
    mount_context: &MountContext<'_>,
    name: &str,
    source: &Path,
    gid: u32,
) -> Result<(), MakeError> {
    // A host that does not tell whose it is has nothing to warn of.
    let Ok(facts) = mount_context.ctx.files.metadata(source).await else { return Ok(()) };
    if facts.gid != gid && device::is_used(mount_context.ctx, name).await? {
        let message = format!(
            "The requested fsGroup is {gid}, but the volume {name} has GID {}. The volume may not be shareable.",
            facts.gid
        );
        mount_context.ctx.recorder.warning(&mount_context.identity(), None, "AlreadyMountedVolume", message);
    }
    Ok(())
}

async fn is_device(mount_context: &MountContext<'_>, source: &Path) -> Result<bool, MakeError> {
    match exists(mount_context, source, HostPathKind::Directory).await {
        Ok(()) => Ok(false),
        Err(MakeError::Invalid(why)) => {
            match exists(mount_context, source, HostPathKind::BlockDevice).await {
                Ok(()) => Ok(true),
                // It is neither.
                Err(MakeError::Invalid(_)) => Err(MakeError::Invalid(why)),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Makes a link to the device, by which containers get it.
pub(super) async fn map(
    mount_context: &MountContext<'_>,
    name: &str,
    source: &Path,
    read_only: bool,
) -> Result<ReadyVolume, MakeError> {
    exists(mount_context, source, HostPathKind::BlockDevice).await?;
    let directory = mount_context.pod_dir().join("volumeDevices").join(PLUGIN);
    mount_context.ctx.files.ensure_dir(&directory, DIRECTORY_MODE).await?;
    let path: PathBuf = directory.join(name);
    let is_new = !mount_context.ctx.files.list_names(&directory).await?.iter().any(|known| known == name);
    mount_context.ctx.files.ensure_symlink(source, &path).await?;
    if is_new {
        let message = format!(
            "MapVolume.MapPodDevice succeeded for volume {name:?} volumeMapPath {:?}",
            directory.display().to_string()
        );
        mount_context.ctx.recorder.normal(&mount_context.identity(), None, "SuccessfulMountVolume", message);
    }
    Ok(ReadyVolume { is_device: true, read_only, ..ReadyVolume::at(path) })
}

async fn exists(
    mount_context: &MountContext<'_>,
    source: &Path,
    kind: HostPathKind,
) -> Result<(), MakeError> {
    match mount_context.unless_leaving(mount_context.ctx.mounts.ensure_host_path(source, kind)).await {
        Ok(()) => Ok(()),
        Err(error @ HostError::GivenUp(_)) => Err(error.into()),
        Err(error @ (HostError::Io { .. } | HostError::Invalid(_))) => {
            Err(MakeError::Invalid(format!("path {:?} cannot be used: {}", source.display(), chain(&error))))
        }
    }
}

/// May take hours on a large tree; the pod's end ends it.
async fn give_to_group(mount_context: &MountContext<'_>, path: &Path, gid: u32) -> Result<(), MakeError> {
    let context = spec_of(mount_context.pod).security_context.as_ref();
    let policy = match context.and_then(|context| context.fs_group_change_policy.as_deref()) {
        Some("OnRootMismatch") => GroupPolicy::OnRootMismatch,
        Some(_) | None => GroupPolicy::Always,
    };
    let clock = mount_context.ctx.clock;
    let work = mount_context.unless_leaving(mount_context.ctx.mounts.give_tree_to_group(path, gid, policy));
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
                mount_context.ctx.recorder.warning(&mount_context.identity(), None, "VolumePermissionChangeInProgress", message);
            }
        }
    }
}
