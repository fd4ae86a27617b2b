//! Which disk a pod's volume is on, for types whose disks are mounted once for all pods: a record in the pod's directory names the
//! directory of that mount. It is written before the disk is mounted, so that a killed kubelet leaves nothing that is not found.

use std::path::{Component, Path, PathBuf};

use model::PodUid;
use ports::HostError;
use volumes_core::block::{BlockMap, DEVICES};
use volumes_core::types::volume_dir;
use volumes_core::{fc, iscsi};

use base_agent::context::Context;

/// Next to the mark of the volume.
const RECORD: &str = "global-mount";
const LONGEST: usize = 4096;
const DIRECTORY_MODE: u32 = 0o750;

/// A type of volume, and where its disks are mounted.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskType {
    /// In `volumes` and `plugins` of a pod.
    pub plugin_dir: &'static str,
    /// Below `plugins` of the kubelet's root directory.
    pub plugin: &'static str,
    /// How many directories deep the disks are in there.
    depth: usize,
}

/// By interface.
pub(super) const ISCSI: DiskType =
    DiskType { plugin_dir: "kubernetes.io~iscsi", plugin: iscsi::PLUGIN, depth: 2 };
pub(super) const FC: DiskType = DiskType { plugin_dir: "kubernetes.io~fc", plugin: fc::PLUGIN, depth: 1 };

impl DiskType {
    fn disks(self, ctx: &Context) -> PathBuf {
        ctx.settings.paths.root.join("plugins").join(self.plugin)
    }

    fn mark_dirs(self, ctx: &Context, uid: &PodUid) -> PathBuf {
        ctx.settings.paths.pod(uid).join("plugins").join(self.plugin_dir)
    }

    pub(crate) async fn record(
        self,
        ctx: &Context,
        uid: &PodUid,
        name: &str,
        global: &Path,
    ) -> Result<(), HostError> {
        let directory = self.mark_dirs(ctx, uid).join(name);
        let disks = self.disks(ctx);
        let inside = global.strip_prefix(&disks).unwrap_or(global);
        ctx.files.ensure_dir(&directory, DIRECTORY_MODE).await?;
        let content = inside.to_string_lossy();
        ctx.files.write_durably(&directory.join(RECORD), content.as_bytes(), 0o644).await
    }

    async fn recorded(self, ctx: &Context, uid: &PodUid, name: &str) -> Option<PathBuf> {
        let path = self.mark_dirs(ctx, uid).join(name).join(RECORD);
        let content = ctx.files.read_file(&path, LONGEST, false).await.ok()?;
        let inside = PathBuf::from(String::from_utf8(content).ok()?);
        let is_inside = inside.components().all(|part| matches!(part, Component::Normal(_)));
        (is_inside && inside.components().next().is_some()).then(|| self.disks(ctx).join(inside))
    }

    /// Records the disks of volumes that the Go kubelet mounted, which the mount table shows.
    pub(super) async fn record_found(self, ctx: &Context, uid: &PodUid) -> Result<(), HostError> {
        let volumes = ctx.settings.paths.pod(uid).join("volumes").join(self.plugin_dir);
        let below = format!("/plugins/{}/", self.plugin);
        for name in ctx.files.list_names(&volumes).await? {
            if self.recorded(ctx, uid, &name).await.is_some() {
                continue;
            }
            for other in ctx.mounts.other_mounts(&volumes.join(&name)).await? {
                if let Some((_, inside)) = other.to_string_lossy().split_once(&below) {
                    self.record(ctx, uid, &name, &self.disks(ctx).join(inside)).await?;
                }
            }
        }
        Ok(())
    }

    /// The directories of all disks that are mounted for all pods.
    pub(crate) async fn all(self, ctx: &Context) -> Vec<PathBuf> {
        let devices = self.disks(ctx).join(DEVICES);
        self.below(ctx, self.disks(ctx)).await.into_iter().filter(|dir| !dir.starts_with(&devices)).collect()
    }

    /// All disks whose devices pods share.
    pub(super) async fn block_maps(self, ctx: &Context) -> Vec<BlockMap> {
        let dirs = self.below(ctx, self.disks(ctx).join(DEVICES)).await.into_iter();
        dirs.map(|dir| BlockMap { dir }).collect()
    }

    /// The directory where pods share the same disk, but with a filesystem instead of as a device, or the other way round.
    pub(super) fn other_use(self, ctx: &Context, dir: &Path) -> PathBuf {
        let (disks, devices) = (self.disks(ctx), self.disks(ctx).join(DEVICES));
        match dir.strip_prefix(&devices) {
            Ok(inside) => disks.join(inside),
            Err(_) => devices.join(dir.strip_prefix(&disks).unwrap_or(dir)),
        }
    }

    async fn below(self, ctx: &Context, root: PathBuf) -> Vec<PathBuf> {
        let mut found = vec![root];
        for _ in 0..self.depth {
            let mut below = Vec::new();
            for dir in found {
                let names = ctx.files.list_names(&dir).await.unwrap_or_default();
                below.extend(names.iter().map(|name| dir.join(name)));
            }
            found = below;
        }
        found
    }

    /// The directories of the disks that the pod used.
    pub(super) async fn used_by(self, ctx: &Context, uid: &PodUid) -> Vec<PathBuf> {
        let mut used = Vec::new();
        for name in ctx.files.list_names(&self.mark_dirs(ctx, uid)).await.unwrap_or_default() {
            used.extend(self.recorded(ctx, uid, &name).await);
        }
        used
    }

    /// A pod has the disk mounted.
    pub(super) async fn is_used(self, ctx: &Context, global: &Path) -> Result<bool, HostError> {
        if !ctx.mounts.other_mounts(global).await?.is_empty() {
            return Ok(true);
        }
        let paths = &ctx.settings.paths;
        for uid in ctx.files.list_names(&paths.pods()).await?.into_iter().map(PodUid::from) {
            for name in ctx.files.list_names(&self.mark_dirs(ctx, &uid)).await? {
                let path = volume_dir(&paths.pod(&uid), self.plugin_dir, &name);
                let is_same = self.recorded(ctx, &uid, &name).await.is_some_and(|disk| disk == global);
                if is_same && ctx.mounts.is_mount_point(&path).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
