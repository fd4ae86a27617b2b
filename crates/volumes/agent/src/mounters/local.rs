//! Directories and block devices of this node that a PersistentVolume stands for.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use model::PodUid;
use ports::HostError;
use ports::host::HostPathKind;
use volumes_core::block::{BlockMap, DEVICES};
use volumes_core::engine::ReadyVolume;
use volumes_core::types::{LocalDevicePlan, LocalFilesPlan};

use super::super::block_maps::{self, PodDevice};
use super::super::device::DeviceMount;
use super::super::mount_context::{MountContext, MountError};
use super::super::ownership::change_group;
use super::super::shared::Shared;
use super::super::{LOCAL_PLUGIN as PLUGIN, device};
use super::{MAP_VOLUME, Mounter, Steps, TearDown};

/// The directory of the type below `plugins` of the kubelet's root directory.
const PLUGIN_NAME: &str = "kubernetes.io/local-volume";
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

    async fn tear_down(&self, mount_context: &MountContext<'_>) -> Result<(), HostError> {
        let map = block_map(mount_context.ctx, &mount_context.plan.name);
        let bound = map.of_pod(mount_context.identity().uid.as_str());
        mount_context.ctx.mounts.unmount_tree(&bound).await
    }
}

/// Unmounts the devices that the pod was the last to use, and unmaps those that it saw.
#[derive(Debug)]
pub(super) struct ReleaseDevices;

#[async_trait]
impl TearDown for ReleaseDevices {
    fn holds(&self, plugin_dir: &str) -> bool {
        plugin_dir == PLUGIN
    }

    async fn after_unmount(&self, ctx: &Context, shared: &Shared, uid: &PodUid) -> Result<(), String> {
        let used = device::used_by(&*ctx.files, &ctx.settings.paths.pod(uid)).await;
        device::release(ctx, &shared.devices, &used).await.map_err(|error| chain(&error))?;
        release_mapped(ctx, shared, uid).await.map_err(|error| chain(&error))
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
        mount_context.ctx.recorder.warning(mount_context.identity(), None, "AlreadyMountedVolume", message);
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

/// Binds the device for the pod, and makes a link to it, by which containers get it.
async fn map(source: &Path, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
    let map = block_map(mount_context.ctx, &mount_context.plan.name);
    let device = PodDevice::new(mount_context, &map);
    let ready = ReadyVolume { is_device: true, ..ReadyVolume::at(device.link.clone()) };
    exists(mount_context, source, HostPathKind::BlockDevice).await?;
    if device.is_mapped().await? {
        return Ok(ready);
    }
    // No other task removes the directory of the volume before the device is bound in it.
    let permit = mount_context.shared.devices.acquire(&map.dir.to_string_lossy()).await?;
    device.claim().await?;
    device.map(source).await?;
    drop(permit);
    Ok(ready)
}

/// Where pods share the device of this volume.
fn block_map(ctx: &Context, name: &str) -> BlockMap {
    BlockMap { dir: device_maps(ctx).join(name) }
}

fn device_maps(ctx: &Context) -> PathBuf {
    ctx.settings.paths.root.join("plugins").join(PLUGIN_NAME).join(DEVICES)
}

/// Takes the devices away that the pod sees, and removes the directories of volumes that no pod uses any more.
async fn release_mapped(ctx: &Context, shared: &Shared, uid: &PodUid) -> Result<(), HostError> {
    let root = device_maps(ctx);
    let names = ctx.files.list_names(&root).await.unwrap_or_default();
    let maps = names.iter().map(|name| BlockMap { dir: root.join(name) }).collect();
    for map in block_maps::used_by(ctx, maps, uid).await {
        let _permit = shared.devices.acquire(&map.dir.to_string_lossy()).await?;
        block_maps::unmap(ctx, &map, uid).await?;
        if !block_maps::is_used(ctx, &map).await? {
            ctx.files.remove_tree(&map.dir).await?;
        }
    }
    Ok(())
}

async fn exists(
    mount_context: &MountContext<'_>,
    source: &Path,
    kind: HostPathKind,
) -> Result<(), MountError> {
    match mount_context.unless_leaving(mount_context.ctx.mounts.ensure_host_path(source, kind)).await {
        Ok(()) => Ok(()),
        Err(error @ HostError::NotFinished(_)) => Err(error.into()),
        Err(error @ (HostError::Io { .. } | HostError::Invalid(_))) => {
            Err(MountError::Invalid(format!("path {:?} cannot be used: {}", source.display(), chain(&error))))
        }
    }
}
