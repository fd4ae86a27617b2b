//! [`Mounts`]: what may wait for a foreign filesystem runs where it can be cancelled.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use model::payload::Payload;
use model::stats::TreeUsage;
use ports::Mounts;
use ports::host::{GroupPolicy, HostPathKind, HostResult};

use super::LinuxHost;
use crate::blocking::Work;
use crate::job::{self, Job};
use crate::{files, huge_pages, mounts, payload, projects, tmpfs};

#[async_trait]
impl Mounts for LinuxHost {
    async fn read_in_volume(&self, volume: &Path, inside: &str, limit: usize) -> HostResult<Vec<u8>> {
        let (volume, inside) = (volume.to_path_buf(), inside.to_owned());
        self.in_volume(Job::Read { volume, inside, limit }).await
    }

    async fn ensure_host_path(&self, path: &Path, kind: HostPathKind) -> HostResult<()> {
        self.in_volume(Job::HostPath { path: path.to_path_buf(), kind }).await.map(drop)
    }

    async fn ensure_tmpfs(&self, path: &Path, size_bytes: u64) -> HostResult<()> {
        self.on(Work::Mounts, path, move |path| tmpfs::ensure_tmpfs(path, size_bytes)).await
    }

    async fn ensure_huge_pages(&self, path: &Path, page_bytes: u64) -> HostResult<()> {
        self.on(Work::Mounts, path, move |path| huge_pages::ensure(path, page_bytes)).await
    }

    async fn bind_volume(&self, source: &Path, target: &Path, options: &[String]) -> HostResult<()> {
        let (source, target) = (source.to_path_buf(), target.to_path_buf());
        self.in_volume(Job::Bind { source, target, options: options.join(",") }).await.map(drop)
    }

    async fn set_tree_group(&self, path: &Path, gid: u32, policy: GroupPolicy) -> HostResult<()> {
        self.in_volume(Job::Group { path: path.to_path_buf(), gid, policy }).await.map(drop)
    }

    async fn set_group(&self, path: &Path, gid: u32) -> HostResult<()> {
        self.on_file(path, move |path| files::set_group(path, gid)).await
    }

    async fn write_payload(
        &self,
        volume: &Path,
        payload: &Payload,
        group: Option<u32>,
        now: Timestamp,
    ) -> HostResult<bool> {
        let payload = payload.clone();
        self.on_file(volume, move |volume| payload::write_payload(volume, &payload, group, now)).await
    }

    async fn is_mount_point(&self, path: &Path) -> HostResult<bool> {
        self.on(Work::Mounts, path, mounts::is_mount_point).await
    }

    async fn other_mounts(&self, path: &Path) -> HostResult<Vec<PathBuf>> {
        self.on(Work::Mounts, path, mounts::other_mounts).await
    }

    async fn unmount_tree(&self, path: &Path) -> HostResult<()> {
        let queue = self.directories.queue_for(Work::Mounts, path);
        self.worker.unmount_tree(&queue, path).await
    }

    async fn bind_sub_path(&self, volume: &Path, sub_path: &str, target: &Path) -> HostResult<()> {
        let (volume, sub_path, target) = (volume.to_path_buf(), sub_path.to_owned(), target.to_path_buf());
        self.in_volume(Job::SubPath { volume, sub_path, target }).await.map(drop)
    }

    async fn tree_usage(&self, path: &Path) -> HostResult<TreeUsage> {
        let output = self.in_volume(Job::Usage { path: path.to_path_buf() }).await?;
        job::usage(&output, path)
    }

    async fn project_of(&self, path: &Path) -> HostResult<u32> {
        self.on_file(path, projects::project_of).await
    }

    async fn set_project(&self, path: &Path, project: u32) -> HostResult<()> {
        self.on_file(path, move |path| projects::set_project(path, project)).await
    }

    async fn project_usage(&self, path: &Path, project: u32) -> HostResult<TreeUsage> {
        self.on(Work::Measurements, path, move |path| projects::project_usage(path, project)).await
    }

    fn keeps_tmpfs_in_memory(&self) -> bool {
        tmpfs::stays_in_memory()
    }
}

impl LinuxHost {
    /// A job where the filesystem may be foreign.
    pub(super) async fn in_volume(&self, job: Job) -> HostResult<Vec<u8>> {
        let path = job.accessed_path();
        let queue = match job {
            Job::Group { .. } | Job::Usage { .. } => self.directories.queue_for(Work::Trees, path),
            Job::Space { .. } => self.directories.queue_for(Work::Measurements, path),
            Job::Unmount { .. } => self.directories.queue_for(Work::Mounts, path),
            Job::HostPath { .. } | Job::SubPath { .. } | Job::Read { .. } | Job::Bind { .. } => {
                self.directories.queue(path)
            }
        };
        self.worker.carry_out(&queue, job).await
    }
}
