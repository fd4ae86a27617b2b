//! Disks of Fibre Channel networks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use base_agent::context::Context;
use ports::HostError;
use volumes_core::block::BlockMap;
use volumes_core::engine::ReadyVolume;
use volumes_core::fc::{FcPlan, has_dir, unique_name_of};

use super::super::fc;
use super::super::global_mounts::{DiskType, FC};
use super::super::mount_context::{MountContext, MountError};
use super::super::shared::Shared;
use super::disk::{self, Disk, Disks};
use super::{Mounter, Steps};

/// A multipath device is busy for a while after it was unmounted.
const DETACH_PAUSE: Duration = Duration::from_secs(10);
const DETACH_TIMEOUT: Duration = Duration::from_secs(120);

#[async_trait]
impl Mounter for FcPlan {
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
impl Disk for FcPlan {
    fn disk_type(&self) -> DiskType {
        FC
    }

    fn unique_name(&self) -> String {
        self.unique_name.clone()
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

    async fn attach(&self, mount_context: &MountContext<'_>, _dir: &Path) -> Result<PathBuf, MountError> {
        fc::attach(mount_context, &self.disk).await
    }
}

/// Removes disks from the kernel.
#[derive(Debug)]
pub(super) struct FcDisks;

#[async_trait]
impl Disks for FcDisks {
    fn disk_type(&self) -> DiskType {
        FC
    }

    fn unique_names(&self, dir: &Path) -> Vec<String> {
        unique_name_of(dir).into_iter().collect()
    }

    fn has_dir(&self, name: &str, dir: &Path) -> bool {
        has_dir(name, dir)
    }

    /// A disk that cannot be removed for two minutes after it was unmounted is left in the kernel, as by the Go kubelet.
    async fn detach(
        &self,
        ctx: &Context,
        _shared: &Shared,
        dir: &Path,
        is_device: bool,
    ) -> Result<(), String> {
        let until = ctx.clock.mono() + DETACH_TIMEOUT;
        while let Err(err) = fc::detach(ctx, dir).await {
            if is_device {
                return Err(format!("fc: failed to detach disk: {}\nError: {err}", dir.display()));
            }
            if ctx.clock.mono() >= until {
                tracing::error!(path = %dir.display(), err, "Failed to detach Fibre Channel disk, it is left in the kernel");
                break;
            }
            ctx.clock.sleep_until(ctx.clock.mono() + DETACH_PAUSE).await;
        }
        Ok(())
    }
}
