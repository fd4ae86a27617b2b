//! Devices of disks that pods share, as the Go kubelet has them: a bind mount for each pod in a directory of the disk, a link in the pod's
//! directory, and a loop device that keeps the bind mount's device open.
//!
//! The file on which the device is bound is made before the disk is looked for: it shows that the pod uses the disk, whatever becomes of
//! the kubelet.

use std::path::{Path, PathBuf};

use base_agent::context::Context;
use base_agent::error_chain::chain;
use model::PodUid;
use ports::HostError;
use volumes_core::block::{BlockMap, LOOP_PROGRAM, keeps_open, loop_args, pod_link};

use super::device::ANSWER;
use super::mount_context::{MountContext, MountError};
use super::{exists, program};

const BLOCK: &str = "/sys/block";
const DIRECTORY_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
const MAP_STEP: &str = "MapVolume.MapBlockVolume";

/// A device as one pod has it.
pub(super) struct PodDevice<'a> {
    mount_context: &'a MountContext<'a>,
    map: &'a BlockMap,
    bound: PathBuf,
    pub link: PathBuf,
}

impl<'a> PodDevice<'a> {
    pub(crate) fn new(mount_context: &'a MountContext<'a>, map: &'a BlockMap) -> Self {
        let plan = mount_context.plan;
        let link = pod_link(&mount_context.pod_dir(), &plan.plugin_dir(), &plan.name);
        let bound = map.of_pod(mount_context.identity().uid.as_str());
        Self { mount_context, map, bound, link }
    }

    /// Everything is there that [`Self::map`] makes.
    pub(crate) async fn is_mapped(&self) -> Result<bool, HostError> {
        let ctx = self.mount_context.ctx;
        Ok(ctx.mounts.is_mount_point(&self.bound).await?
            && exists(ctx, &self.link).await?
            && is_kept_open(ctx, &self.bound).await?)
    }

    /// From here on the pod uses the disk.
    pub(crate) async fn claim(&self) -> Result<(), HostError> {
        let (files, mounts) = (&self.mount_context.ctx.files, &self.mount_context.ctx.mounts);
        files.ensure_dir(&self.map.dir, DIRECTORY_MODE).await?;
        match mounts.is_mount_point(&self.bound).await? {
            true => Ok(()),
            false => files.write_file(&self.bound, b"", FILE_MODE).await,
        }
    }

    /// Idempotent.
    pub(crate) async fn map(&self, device: &Path) -> Result<(), MountError> {
        let MountContext { ctx, .. } = self.mount_context;
        let resolved = ctx.files.resolve(device).await;
        let device = resolved.map_err(|error| failed("MapVolume.EvalHostSymlinks", &chain(&error)))?;
        let bind = ctx.mounts.bind_volume(&device, &self.bound, &[]);
        self.mount_context.unless_leaving(bind).await.map_err(|error| match error {
            HostError::NotFinished(_) => error.into(),
            HostError::Io { .. } | HostError::Invalid(_) => {
                failed(MAP_STEP, &format!("blkUtil.MapDevice failed. {}", self.failure(&chain(&error))))
            }
        })?;
        ctx.files.ensure_dir(self.link.parent().unwrap_or(&self.link), DIRECTORY_MODE).await?;
        ctx.files.ensure_symlink(&device, &self.link).await?;
        if !is_kept_open(ctx, &self.bound).await? {
            self.keep_open().await?;
        }
        self.report();
        Ok(())
    }

    async fn keep_open(&self) -> Result<(), MountError> {
        let call = program(LOOP_PROGRAM, loop_args(&self.bound), ANSWER);
        let attached = self.mount_context.ctx.processes.run_program(&call);
        let attached = self.mount_context.unless_leaving(attached).await;
        attached.map(drop).map_err(|error| match error {
            HostError::NotFinished(_) => error.into(),
            HostError::Io { .. } | HostError::Invalid(_) => failed(
                MAP_STEP,
                &format!("blkUtil.AttachFileDevice failed. {}", self.failure(&chain(&error))),
            ),
        })
    }

    fn failure(&self, why: &str) -> String {
        let uid = &self.mount_context.identity().uid;
        format!("globalMapPath:{}, podUID: {uid}: {why}", self.map.dir.display())
    }

    fn report(&self) {
        let (pod, name) = (self.mount_context.identity(), &self.mount_context.plan.name);
        let of_pod = self.link.parent().unwrap_or(&self.link);
        for (what, path) in [("globalMapPath", &*self.map.dir), ("volumeMapPath", of_pod)] {
            let path = path.display().to_string();
            let message = format!("MapVolume.MapPodDevice succeeded for volume {name:?} {what} {path:?}");
            self.mount_context.ctx.recorder.normal(pod, None, "SuccessfulMountVolume", message);
        }
    }
}

fn failed(step: &'static str, why: &str) -> MountError {
    MountError::Map { step, why: why.to_owned() }
}

async fn is_kept_open(ctx: &Context, bound: &Path) -> Result<bool, HostError> {
    let blocks = ctx.files.list_names(Path::new(BLOCK)).await?.into_iter();
    let loops = blocks.filter(|name| name.starts_with("loop"));
    let files = loops.map(|name| Path::new(BLOCK).join(name).join("loop/backing_file"));
    let texts = ctx.files.read_each(files.collect()).await;
    Ok(texts.iter().flatten().any(|text| keeps_open(text, bound)))
}

/// Takes the device away from the pod; unmounting detaches the loop device. Idempotent.
pub(super) async fn unmap(ctx: &Context, map: &BlockMap, uid: &PodUid) -> Result<(), HostError> {
    let bound = map.of_pod(uid.as_str());
    ctx.mounts.unmount_tree(&bound).await?;
    ctx.files.remove_file(&bound).await
}

/// Some pod has the device.
pub(super) async fn is_used(ctx: &Context, map: &BlockMap) -> Result<bool, HostError> {
    for name in ctx.files.list_names(&map.dir).await? {
        if ctx.mounts.is_mount_point(&map.of_pod(&name)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Those of the devices that the pod uses.
pub(super) async fn used_by(ctx: &Context, maps: Vec<BlockMap>, uid: &PodUid) -> Vec<BlockMap> {
    let mut used = Vec::new();
    for map in maps {
        // A directory that cannot be listed cannot be removed either, so the tear-down is repeated.
        let names = ctx.files.list_names(&map.dir).await.unwrap_or_default();
        if names.iter().any(|name| name == uid.as_str()) {
            used.push(map);
        }
    }
    used
}
