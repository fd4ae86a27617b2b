//! Directories and block devices of this node that a PersistentVolume stands for.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use kubelet_core::volumes::engine::ReadyVolume;
use kubelet_core::volumes::types::{LocalDevicePlan, LocalFilesPlan};
use model::PodUid;
use ports::HostError;
use ports::host::HostPathKind;

use super::super::device::DeviceMount;
use super::super::mount_context::{MountContext, MountError};
use super::super::ownership::change_group;
use super::super::shared::Shared;
use super::super::{LOCAL_PLUGIN as PLUGIN, device};
use super::{MAP_VOLUME, Mounter, Steps, TearDown};
use crate::context::Context;
use crate::error_chain::chain;

/// Of directories to mount on: only root may read them.
const DIRECTORY_MODE: u32 = 0o750;

#[async_trait]
impl Mounter for LocalFilesPlan {
    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        mount(self, mount_context).await
    }

    /// Unmounts the volume from the pod's directory, and then the device, unless another pod uses it.
    async fn tear_down(&self, mount_context: &MountContext<'_>) -> Result<(), HostError> {
        let ctx = mount_context.ctx;
        ctx.mounts.unmount_tree(&mount_context.volume_dir()).await?;
        device::release(ctx, &mount_context.shared.devices, std::slice::from_ref(&mount_context.plan.name))
            .await
    }
}

#[async_trait]
impl Mounter for LocalDevicePlan {
    fn steps(&self) -> &'static Steps {
        &MAP_VOLUME
    }

    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        map(self.path.as_ref(), mount_context).await
    }
}

/// Unmounts the devices that the pod was the last to use.
#[derive(Debug)]
pub(super) struct ReleaseDevices;

#[async_trait]
impl TearDown for ReleaseDevices {
    fn holds(&self, plugin_dir: &str) -> bool {
        plugin_dir == PLUGIN
    }

    async fn after_unmount(&self, ctx: &Context, shared: &Shared, uid: &PodUid) -> Result<(), String> {
        let used = device::used_by(&*ctx.files, &ctx.settings.paths.pod(uid)).await;
        device::release(ctx, &shared.devices, &used).await.map_err(|error| chain(&error))
    }
}

/// Bind-mounts the directory, or the filesystem on the device, in the pod's directory, and changes its group to the pod's. A mark
/// records that both are done.
async fn mount(plan: &LocalFilesPlan, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
    let (name, read_only) = (&*mount_context.plan.name, mount_context.plan.read_only);
    let source = Path::new(&plan.path);
    // No other task unmounts the device after it was mounted and before it is bound.
    let permit = mount_context.shared.devices.acquire(name).await?;
    let is_device = is_device(mount_context, source).await?;
    let path = mount_context.volume_dir();
    let ready = ReadyVolume::at(path.clone());
    // Permissions that containers changed since stay.
    if mount_context.is_marked().await && mount_context.ctx.mounts.is_mount_point(&path).await? {
        return Ok(ready);
    }
    mount_context.ctx.files.ensure_dir(path.parent().unwrap_or(&path), DIRECTORY_MODE).await?;
    let is_bound = mount_context.ctx.mounts.is_mount_point(&path).await?;
    let access = read_only.then(|| "ro".to_owned()).into_iter();
    let (source, options) = if is_device {
        // Records that the pod uses the device, also if the kubelet is killed or the pod is deleted before the bind mount.
        if !is_bound {
            mount_context.ctx.files.ensure_dir(&path, DIRECTORY_MODE).await?;
        }
        let target = device::local_mount(mount_context.ctx, name);
        let LocalFilesPlan { path: device, fs_type, options } = plan;
        device::stage(mount_context, &DeviceMount { device, fs_type, options, target: &target }).await?;
        (target, access.collect())
    } else {
        (source.to_owned(), access.chain(plan.options.iter().cloned()).collect::<Vec<String>>())
    };
    if let Some(gid) = mount_context.group().filter(|_| !is_bound) {
        warn_if_group_changes(mount_context, name, &source, gid).await?;
    }
    mount_context.unless_leaving(mount_context.ctx.mounts.bind_volume(&source, &path, &options)).await?;
    drop(permit);
    if let Some(gid) = mount_context.group().filter(|_| !read_only) {
        change_group(mount_context, &path, gid).await?;
    }
    mount_context.mark().await?;
    Ok(ready)
}

/// Warns if other pods use the volume, which gets another group.
async fn warn_if_group_changes(
    mount_context: &MountContext<'_>,
    name: &str,
    source: &Path,
    gid: u32,
) -> Result<(), MountError> {
    // Without metadata nothing is known about the group.
    let Ok(facts) = mount_context.ctx.files.metadata(source).await else { return Ok(()) };
    if facts.gid != gid && device::is_used(mount_context.ctx, PLUGIN, name).await? {
        let message = format!(
            "The requested fsGroup is {gid}, but the volume {name} has GID {}. The volume may not be shareable.",
            facts.gid
        );
        mount_context.ctx.recorder.warning(&mount_context.identity(), None, "AlreadyMountedVolume", message);
    }
    Ok(())
}

async fn is_device(mount_context: &MountContext<'_>, source: &Path) -> Result<bool, MountError> {
    match exists(mount_context, source, HostPathKind::Directory).await {
        Ok(()) => Ok(false),
        Err(MountError::Invalid(why)) => {
            match exists(mount_context, source, HostPathKind::BlockDevice).await {
                Ok(()) => Ok(true),
                // Neither a directory nor a device.
                Err(MountError::Invalid(_)) => Err(MountError::Invalid(why)),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Makes a link to the device, by which containers get it.
async fn map(source: &Path, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
    let name = &mount_context.plan.name;
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
    Ok(ReadyVolume { is_device: true, ..ReadyVolume::at(path) })
}

async fn exists(
    mount_context: &MountContext<'_>,
    source: &Path,
    kind: HostPathKind,
) -> Result<(), MountError> {
    match mount_context.unless_leaving(mount_context.ctx.mounts.ensure_host_path(source, kind)).await {
        Ok(()) => Ok(()),
        Err(error @ HostError::GivenUp(_)) => Err(error.into()),
        Err(error @ (HostError::Io { .. } | HostError::Invalid(_))) => {
            Err(MountError::Invalid(format!("path {:?} cannot be used: {}", source.display(), chain(&error))))
        }
    }
}
