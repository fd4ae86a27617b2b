//! Disks of iSCSI targets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use base_agent::context::Context;
use ports::HostError;
use volumes_core::block::BlockMap;
use volumes_core::engine::ReadyVolume;
use volumes_core::iscsi::{IscsiPlan, RECORD, unique_name, unique_names};

use super::super::global_mounts::{DiskType, ISCSI};
use super::super::iscsi;
use super::super::mount_context::{MountContext, MountError};
use super::super::shared::Shared;
use super::disk::{self, Disk, Disks};
use super::{Mounter, Steps};

const DIRECTORY_MODE: u32 = 0o750;

#[async_trait]
impl Mounter for IscsiPlan {
    fn steps(&self) -> &'static Steps {
        disk::steps(self)
    }

    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        disk::set_up(self, mount_context).await
    }

    async fn tear_down(&self, mount_context: &MountContext<'_>) -> Result<(), HostError> {
        disk::tear_down(self, mount_context).await
    }
}

#[async_trait]
impl Disk for IscsiPlan {
    fn disk_type(&self) -> DiskType {
        ISCSI
    }

    fn unique_name(&self) -> String {
        unique_name(&self.target_portal, &self.disk.iqn, &self.disk.lun)
    }

    fn is_device(&self) -> bool {
        self.is_device
    }

    fn filesystem(&self) -> (&str, &[String]) {
        (&self.fs_type, &self.options)
    }

    fn global_mount(&self, root: &Path) -> PathBuf {
        self.disk.global_mount(root)
    }

    fn block_map(&self, root: &Path) -> BlockMap {
        self.disk.block_map(root)
    }

    async fn attach(&self, mount_context: &MountContext<'_>, dir: &Path) -> Result<PathBuf, MountError> {
        let files = &mount_context.ctx.files;
        let secret = secret(self, mount_context).await.map_err(MountError::Attach)?;
        // What a later logout needs, before the login.
        files.ensure_dir(dir, DIRECTORY_MODE).await?;
        files.write_durably(&dir.join(RECORD), self.disk.to_record().as_bytes(), 0o644).await?;
        iscsi::attach(mount_context, self, &secret).await
    }
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

/// Ends sessions that no disk needs.
#[derive(Debug)]
pub(super) struct IscsiDisks;

#[async_trait]
impl Disks for IscsiDisks {
    fn disk_type(&self) -> DiskType {
        ISCSI
    }

    /// A volume that names no port is in use without one.
    fn unique_names(&self, dir: &Path) -> Vec<String> {
        unique_names(dir)
    }

    fn has_dir(&self, name: &str, dir: &Path) -> bool {
        unique_names(dir).iter().any(|known| known == name)
    }

    async fn detach(
        &self,
        ctx: &Context,
        shared: &Shared,
        dir: &Path,
        _is_device: bool,
    ) -> Result<(), String> {
        let detached = iscsi::detach(ctx, shared, dir).await;
        detached.map_err(|error| format!("iscsi: failed to detach disk: {}\nError: {error}", dir.display()))
    }
}
