//! Disks that the attach/detach controller attaches and this kubelet looks for: mounted once for all pods, and bound into the directory
//! of each; or mapped for each as a device.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use model::PodUid;
use ports::HostError;
use volumes_core::block::BlockMap;
use volumes_core::engine::ReadyVolume;

use super::super::block_maps::{self, PodDevice};
use super::super::device::{self, DeviceMount};
use super::super::global_mounts::DiskType;
use super::super::mount_context::{MountContext, MountError};
use super::super::ownership::change_group;
use super::super::shared::Shared;
use super::super::{attachment, exists};
use super::{Attached, MAP_VOLUME, MOUNT_VOLUME, Steps, TearDown, TerminatingPod};

/// The disk of a volume.
#[async_trait]
pub(crate) trait Disk: Send + Sync {
    fn disk_type(&self) -> DiskType;
    /// In `volumesInUse` and `volumesAttached` of the node.
    fn unique_name(&self) -> String;
    /// Containers see the device itself.
    fn is_device(&self) -> bool;
    /// The filesystem that is made on an empty disk, and mount options.
    fn filesystem(&self) -> (&str, &[String]);
    /// The directory where it is mounted for all pods.
    fn global_mount(&self, root: &Path) -> PathBuf;
    fn block_map(&self, root: &Path) -> BlockMap;
    /// Looks for the disk, and records what is needed to remove it. Idempotent.
    async fn attach(&self, mount_context: &MountContext<'_>, dir: &Path) -> Result<PathBuf, MountError>;
}

pub(crate) fn steps(disk: &dyn Disk) -> &'static Steps {
    if disk.is_device() { &MAP_VOLUME } else { &MOUNT_VOLUME }
}

pub(super) async fn set_up(
    disk: &dyn Disk,
    mount_context: &MountContext<'_>,
) -> Result<ReadyVolume, MountError> {
    let name = disk.unique_name();
    attachment::record_in_use(mount_context, &name)?;
    match disk.is_device() {
        true => set_up_device(disk, mount_context, &name).await,
        false => set_up_files(disk, mount_context, &name).await,
    }
}

async fn set_up_files(
    disk: &dyn Disk,
    mount_context: &MountContext<'_>,
    name: &str,
) -> Result<ReadyVolume, MountError> {
    let (ctx, target) = (mount_context.ctx, mount_context.volume_dir());
    let is_bound = ctx.mounts.is_mount_point(&target).await?;
    if is_bound && mount_context.is_marked().await {
        return Ok(ReadyVolume::at(target));
    }
    let read_only = mount_context.plan.read_only;
    if !is_bound {
        attachment::disk_attached(mount_context, name).await?;
        mount(disk, mount_context).await?;
    }
    if let Some(gid) = mount_context.group().filter(|_| !read_only) {
        change_group(mount_context, &target, gid).await?;
    }
    mount_context.mark().await?;
    Ok(ReadyVolume::at(target))
}

async fn set_up_device(
    disk: &dyn Disk,
    mount_context: &MountContext<'_>,
    name: &str,
) -> Result<ReadyVolume, MountError> {
    let map = disk.block_map(&mount_context.ctx.settings.paths.root);
    let device = PodDevice::new(mount_context, &map);
    let ready = ReadyVolume { is_device: true, ..ReadyVolume::at(device.link.clone()) };
    if device.is_mapped().await? {
        return Ok(ready);
    }
    attachment::disk_attached(mount_context, name).await?;
    // No other task removes the disk after it was found and before it is bound.
    let permit = mount_context.shared.devices.acquire(&map.dir.to_string_lossy()).await?;
    device.claim().await?;
    let found = disk.attach(mount_context, &map.dir).await?;
    device.map(&found).await?;
    drop(permit);
    Ok(ready)
}

/// Removes what an attempt may have mounted for the pod.
pub(super) async fn tear_down(disk: &dyn Disk, mount_context: &MountContext<'_>) -> Result<(), HostError> {
    let ctx = mount_context.ctx;
    let mounted = match disk.is_device() {
        true => {
            let map = disk.block_map(&ctx.settings.paths.root);
            map.of_pod(mount_context.identity().uid.as_str())
        }
        false => mount_context.volume_dir(),
    };
    ctx.mounts.unmount_tree(&mounted).await
}

/// Mounts the disk for all pods and binds it for this one.
async fn mount(disk: &dyn Disk, mount_context: &MountContext<'_>) -> Result<(), MountError> {
    let (ctx, plan) = (mount_context.ctx, mount_context.plan);
    let global = disk.global_mount(&ctx.settings.paths.root);
    disk.disk_type().record(ctx, &mount_context.identity().uid, &plan.name, &global).await?;
    // No other task unmounts the disk after it was mounted and before it is bound.
    let permit = mount_context.shared.devices.acquire(&global.to_string_lossy()).await?;
    if !ctx.mounts.is_mount_point(&global).await? {
        let device = disk.attach(mount_context, &global).await?;
        let (fs_type, options) = disk.filesystem();
        let mount = DeviceMount { device: &device.to_string_lossy(), fs_type, options, target: &global };
        device::stage(mount_context, &mount).await?;
    }
    let options: Vec<String> = plan.read_only.then(|| "ro".to_owned()).into_iter().collect();
    let target = mount_context.volume_dir();
    let bind = ctx.mounts.bind_volume(&global, &target, &options);
    mount_context.unless_leaving(bind).await?;
    drop(permit);
    Ok(())
}

/// What becomes of the disks of a type after their last pod.
#[async_trait]
pub(super) trait Disks: Debug + Send + Sync {
    fn disk_type(&self) -> DiskType;
    /// The names that the volume with this directory may have in `volumesInUse`; none if it is of no disk.
    fn unique_names(&self, dir: &Path) -> Vec<String>;
    /// Whether the volume of that unique name has this directory.
    fn has_dir(&self, unique_name: &str, dir: &Path) -> bool;
    /// Removes the disk from the node, which nothing has mounted or mapped. Idempotent: its directory goes last.
    async fn detach(&self, ctx: &Context, shared: &Shared, dir: &Path, is_device: bool)
    -> Result<(), String>;
}

/// Unmounts the disks that the pod was the last to use, and removes them from the node.
#[derive(Debug)]
pub(super) struct Detach<D>(pub D);

#[async_trait]
impl<D: Disks> TearDown for Detach<D> {
    fn holds(&self, plugin_dir: &str) -> bool {
        plugin_dir == self.0.disk_type().plugin_dir
    }

    async fn before_unmount(
        &self,
        ctx: &Context,
        _shared: &Shared,
        terminating: &TerminatingPod<'_>,
    ) -> Result<(), String> {
        self.0.disk_type().record_found(ctx, terminating.uid).await.map_err(|error| chain(&error))
    }

    async fn after_unmount(&self, ctx: &Context, shared: &Shared, uid: &PodUid) -> Result<(), String> {
        for global in self.0.disk_type().used_by(ctx, uid).await {
            self.release(ctx, shared, &global).await?;
        }
        let maps = self.0.disk_type().block_maps(ctx).await;
        for map in block_maps::used_by(ctx, maps, uid).await {
            self.release_device(ctx, shared, &map, uid).await?;
        }
        Ok(())
    }

    async fn find_attached(&self, ctx: &Context) -> Vec<Attached> {
        let mounted = self.0.disk_type().all(ctx).await.into_iter();
        let mapped = self.0.disk_type().block_maps(ctx).await.into_iter().map(|map| map.dir);
        let attached = mounted.chain(mapped).map(|dir| {
            let (permit, unique_names) = (dir.to_string_lossy().into_owned(), self.0.unique_names(&dir));
            Attached { dir, permit, unique_names }
        });
        attached.collect()
    }
}

impl<D: Disks> Detach<D> {
    /// Success also if another pod uses the disk.
    async fn release(&self, ctx: &Context, shared: &Shared, global: &Path) -> Result<(), String> {
        let failed = |error: HostError| chain(&error);
        let _permit = shared.devices.acquire(&global.to_string_lossy()).await.map_err(failed)?;
        if self.0.disk_type().is_used(ctx, global).await.map_err(failed)? {
            return Ok(());
        }
        ctx.mounts.unmount_tree(global).await.map_err(failed)?;
        self.remove(ctx, shared, global, false).await
    }

    /// As [`Self::release`], after the device was taken away from the pod.
    async fn release_device(
        &self,
        ctx: &Context,
        shared: &Shared,
        map: &BlockMap,
        uid: &PodUid,
    ) -> Result<(), String> {
        let failed = |error: HostError| chain(&error);
        let _permit = shared.devices.acquire(&map.dir.to_string_lossy()).await.map_err(failed)?;
        block_maps::unmap(ctx, map, uid).await.map_err(failed)?;
        match block_maps::is_used(ctx, map).await.map_err(failed)? {
            true => Ok(()),
            false => self.remove(ctx, shared, &map.dir, true).await,
        }
    }

    /// The disk has no user in this directory. The caller has its permit.
    async fn remove(
        &self,
        ctx: &Context,
        shared: &Shared,
        dir: &Path,
        is_device: bool,
    ) -> Result<(), String> {
        let failed = |error: HostError| chain(&error);
        if exists(ctx, dir).await.map_err(failed)? {
            self.0.detach(ctx, shared, dir, is_device).await?;
            ctx.files.remove_tree(dir).await.map_err(failed)?;
        }
        let other = self.0.disk_type().other_use(ctx, dir);
        if !exists(ctx, &other).await.map_err(failed)? {
            attachment::release_all(shared, |name| self.0.has_dir(name, dir));
        }
        Ok(())
    }
}
