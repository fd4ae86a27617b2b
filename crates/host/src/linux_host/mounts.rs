//! [`Mounts`]: what may wait for a foreign filesystem runs where it can be given up.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use model::payload::Payload;
use model::stats::TreeUsage;
use ports::Mounts;
use ports::host::{GroupPolicy, HostPathKind, HostResult};

use super::LinuxHost;
use crate::job::{self, Job};
use crate::{blocking, files, huge_pages, mounts, payload, projects, tmpfs};

#[async_trait]
impl Mounts for LinuxHost {
    async fn read_in_volume(&self, volume: &Path, inside: &str, limit: usize) -> HostResult<Vec<u8>> {
        let (volume, inside) = (volume.to_path_buf(), inside.to_owned());
        self.worker.carry_out(Job::Read { volume, inside, limit }).await
    }

    async fn ensure_host_path(&self, path: &Path, kind: HostPathKind) -> HostResult<()> {
        self.worker.carry_out(Job::HostPath { path: path.to_path_buf(), kind }).await.map(drop)
    }

    async fn ensure_tmpfs(&self, path: &Path, size_bytes: u64) -> HostResult<()> {
        blocking(path, move |path| tmpfs::ensure_tmpfs(path, size_bytes)).await
    }

    async fn ensure_huge_pages(&self, path: &Path, page_bytes: u64, size_bytes: u64) -> HostResult<()> {
        blocking(path, move |path| huge_pages::ensure(path, page_bytes, size_bytes)).await
    }

    async fn bind_volume(&self, source: &Path, target: &Path, options: &[String]) -> HostResult<()> {
        let (source, target) = (source.to_path_buf(), target.to_path_buf());
        self.worker.carry_out(Job::Bind { source, target, options: options.join(",") }).await.map(drop)
    }

    async fn set_tree_group(&self, path: &Path, gid: u32, policy: GroupPolicy) -> HostResult<()> {
        self.worker.carry_out(Job::Group { path: path.to_path_buf(), gid, policy }).await.map(drop)
    }

    async fn set_group(&self, path: &Path, gid: u32) -> HostResult<()> {
        blocking(path, move |path| files::set_group(path, gid)).await
    }

    async fn write_payload(
        &self,
        volume: &Path,
        payload: &Payload,
        group: Option<u32>,
        now: Timestamp,
    ) -> HostResult<bool> {
        let payload = payload.clone();
        blocking(volume, move |volume| payload::write_payload(volume, &payload, group, now)).await
    }

    async fn is_mount_point(&self, path: &Path) -> HostResult<bool> {
        blocking(path, mounts::is_mount_point).await
    }

    async fn other_mounts(&self, path: &Path) -> HostResult<Vec<PathBuf>> {
        blocking(path, mounts::other_mounts).await
    }

    async fn unmount_tree(&self, path: &Path) -> HostResult<()> {
        self.worker.unmount_tree(path).await
    }

    async fn bind_sub_path(&self, volume: &Path, sub_path: &str, target: &Path) -> HostResult<()> {
        let (volume, sub_path, target) = (volume.to_path_buf(), sub_path.to_owned(), target.to_path_buf());
        self.worker.carry_out(Job::SubPath { volume, sub_path, target }).await.map(drop)
    }

    async fn tree_usage(&self, path: &Path) -> HostResult<TreeUsage> {
        let output = self.worker.carry_out(Job::Usage { path: path.to_path_buf() }).await?;
        job::usage(&output, path)
    }

    async fn project_of(&self, path: &Path) -> HostResult<u32> {
        blocking(path, projects::project_of).await
    }

    async fn set_project(&self, path: &Path, project: u32) -> HostResult<()> {
        blocking(path, move |path| projects::set_project(path, project)).await
    }

    async fn project_usage(&self, path: &Path, project: u32) -> HostResult<TreeUsage> {
        blocking(path, move |path| projects::project_usage(path, project)).await
    }

    fn keeps_tmpfs_in_memory(&self) -> bool {
        tmpfs::stays_in_memory()
    }
}
