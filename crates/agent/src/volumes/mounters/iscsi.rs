//! Disks of iSCSI targets: mounted once for all pods, and bound into the directory of each.

use std::collections::BTreeMap;

use async_trait::async_trait;
use kubelet_core::volumes::engine::ReadyVolume;
use kubelet_core::volumes::iscsi::{IscsiPlan, PLUGIN, RECORD, unique_name, unique_names};
use model::PodUid;
use ports::HostError;

use super::super::device::{self, DeviceMount};
use super::super::global_mounts::DiskType;
use super::super::mount_context::{MountContext, MountError};
use super::super::ownership::change_group;
use super::super::shared::Shared;
use super::super::{attachment, iscsi};
use super::{Mounter, TearDown};
use crate::context::Context;
use crate::error_chain::chain;

const DISKS: DiskType = DiskType { plugin_dir: "kubernetes.io~iscsi", plugin: PLUGIN };
const DIRECTORY_MODE: u32 = 0o750;

#[async_trait]
impl Mounter for IscsiPlan {
    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        let (ctx, target) = (mount_context.ctx, mount_context.volume_dir());
        let name = unique_name(&self.target_portal, &self.disk.iqn, &self.disk.lun);
        attachment::note_in_use(mount_context, &name)?;
        let is_bound = ctx.mounts.is_mount_point(&target).await?;
        if is_bound && mount_context.is_marked().await {
            return Ok(ReadyVolume::at(target));
        }
        let read_only = mount_context.plan.read_only;
        if !is_bound {
            attachment::attached(mount_context, &name).await?;
            mount(self, mount_context).await?;
        }
        if let Some(gid) = mount_context.group().filter(|_| !read_only) {
            change_group(mount_context, &target, gid).await?;
        }
        mount_context.mark().await?;
        Ok(ReadyVolume::at(target))
    }

    async fn tear_down(&self, mount_context: &MountContext<'_>) -> Result<(), HostError> {
        mount_context.ctx.mounts.unmount_tree(&mount_context.volume_dir()).await
    }
}

/// Mounts the disk for all pods and binds it for this one.
async fn mount(disk: &IscsiPlan, mount_context: &MountContext<'_>) -> Result<(), MountError> {
    let (ctx, plan) = (mount_context.ctx, mount_context.plan);
    let global = disk.disk.global_mount(&ctx.settings.paths.root);
    DISKS.record(ctx, (&mount_context.identity().uid, &plan.name), &global).await?;
    // No other task unmounts the disk after it was mounted and before it is bound.
    let permit = mount_context.shared.devices.acquire(&global.to_string_lossy()).await?;
    if !ctx.mounts.is_mount_point(&global).await? {
        let secret = secret(disk, mount_context).await.map_err(MountError::Attach)?;
        // What a later logout needs, before the login.
        ctx.files.ensure_dir(&global, DIRECTORY_MODE).await?;
        ctx.files.write_durably(&global.join(RECORD), disk.disk.to_record().as_bytes(), 0o644).await?;
        let device = iscsi::attach(mount_context, disk, &secret).await?;
        let (fs_type, options) = (&*disk.fs_type, &*disk.options);
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

async fn secret(
    disk: &IscsiPlan,
    mount_context: &MountContext<'_>,
) -> Result<BTreeMap<String, String>, String> {
    let wanted = disk.secret.as_ref().filter(|_| disk.chap_discovery || disk.chap_session);
    let Some(wanted) = wanted else { return Ok(BTreeMap::new()) };
    let cluster = mount_context.shared.cluster.as_ref().ok_or("cannot get kube client")?;
    let read = cluster.secrets().get(&wanted.namespace, &wanted.name).await;
    let read = read.map_err(|error| {
        format!("couldn't get secret {}/{} error: {error}", wanted.namespace, wanted.name)
    })?;
    let data = read.data.unwrap_or_default().into_iter();
    Ok(data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect())
}

/// Unmounts the disks that the pod was the last to use, and logs out.
#[derive(Debug)]
pub(super) struct Detach;

#[async_trait]
impl TearDown for Detach {
    fn holds(&self, plugin_dir: &str) -> bool {
        plugin_dir == DISKS.plugin_dir
    }

    async fn before_unmount(&self, ctx: &Context, _shared: &Shared, uid: &PodUid) -> Result<(), String> {
        DISKS.record_found(ctx, uid).await.map_err(|error| chain(&error))
    }

    async fn after_unmount(&self, ctx: &Context, shared: &Shared, uid: &PodUid) -> Result<(), String> {
        let failed = |error: HostError| chain(&error);
        for global in DISKS.used_by(ctx, uid).await {
            let _permit = shared.devices.acquire(&global.to_string_lossy()).await.map_err(failed)?;
            if DISKS.is_used(ctx, &global).await.map_err(failed)? {
                continue;
            }
            ctx.mounts.unmount_tree(&global).await.map_err(failed)?;
            let left = ctx.files.list_names(global.parent().unwrap_or(&global)).await.map_err(failed)?;
            let name = global.file_name().unwrap_or_default();
            if left.iter().any(|known| known.as_str() == name) {
                iscsi::detach(ctx, shared, &global).await.map_err(|error| {
                    format!("iscsi: failed to detach disk: {}\nError: {error}", global.display())
                })?;
            }
            // A volume that names no port is in use without one.
            for name in unique_names(&global) {
                attachment::release(shared, &name);
            }
        }
        Ok(())
    }
}
