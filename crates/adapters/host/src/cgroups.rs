//! The Cgroups port on Linux: directories in the hierarchies of the kernel, slices of systemd, and the processes in them. Decides
//! nothing, and never waits for a process.

mod memory_alarm;
mod processes;
mod slices;
mod trees;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use model::cgroup::{CgroupPath, CgroupSettings, CgroupState, CgroupVersion, MemoryMark, ProcessFacts};
use ports::Cgroups;
use ports::cgroups::CgroupRemoval;
use ports::host::HostResult;

use crate::blocking::{Queue, Work, blocking};
use slices::Slices;
use trees::Trees;

/// The cgroups of this machine.
#[derive(Debug)]
pub struct LinuxCgroups {
    trees: Trees,
    slices: Slices,
}

impl LinuxCgroups {
    /// `root`: where cgroups are mounted, `/sys/fs/cgroup` except in tests.
    #[must_use]
    pub fn new(root: PathBuf, version: CgroupVersion) -> Self {
        Self::with_systemd(root, version, slices::SOCKET.into())
    }

    /// The same with another address of systemd.
    fn with_systemd(root: PathBuf, version: CgroupVersion, socket: PathBuf) -> Self {
        Self { trees: Trees::new(root, version), slices: Slices::new(socket) }
    }

    async fn work<T, F>(&self, cgroup: &CgroupPath, work: F) -> HostResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Trees, &str) -> HostResult<T> + Send + 'static,
    {
        let (trees, path) = (self.trees.clone(), cgroup.path.clone());
        let queue = Queue::of_owner(Work::Cgroups, &path);
        blocking(&queue, self.trees.root(), move |_| work(&trees, &path)).await
    }
}

#[async_trait]
impl Cgroups for LinuxCgroups {
    async fn exists(&self, cgroup: &CgroupPath) -> bool {
        self.work(cgroup, |trees, path| Ok(trees.exists(path))).await.unwrap_or(false)
    }

    async fn ensure(&self, cgroup: &CgroupPath, settings: &CgroupSettings) -> HostResult<()> {
        if cgroup.is_slice {
            self.slices.ensure(cgroup, &settings.properties).await?;
        }
        let files = settings.files.clone();
        self.work(cgroup, move |trees, path| {
            trees.make(path)?;
            trees.write(path, &files)
        })
        .await
    }

    async fn compare(&self, cgroup: &CgroupPath, settings: &CgroupSettings) -> HostResult<CgroupState> {
        let files = settings.files.clone();
        self.work(cgroup, move |trees, path| trees.compare(path, &files)).await
    }

    async fn read(
        &self,
        cgroup: &CgroupPath,
        files: &[(&'static str, &'static str)],
    ) -> HostResult<Vec<Option<String>>> {
        let files = files.to_vec();
        self.work(cgroup, move |trees, path| Ok(trees.read(path, &files))).await
    }

    async fn children(&self, cgroup: &CgroupPath) -> Vec<String> {
        self.work(cgroup, |trees, path| Ok(trees.children(path))).await.unwrap_or_default()
    }

    async fn processes(&self, cgroup: &CgroupPath) -> Vec<u32> {
        self.work(cgroup, |trees, path| Ok(trees.processes(path))).await.unwrap_or_default()
    }

    async fn kill(&self, cgroup: &CgroupPath) -> HostResult<()> {
        self.work(cgroup, Trees::kill).await
    }

    async fn remove(&self, cgroup: &CgroupPath) -> HostResult<CgroupRemoval> {
        if cgroup.is_slice && self.work(cgroup, |trees, path| Ok(trees.has_any(path))).await? {
            self.slices.stop(cgroup).await?;
        }
        self.work(cgroup, Trees::remove).await
    }

    async fn join(&self, cgroup: &CgroupPath, pid: u32) -> HostResult<()> {
        self.work(cgroup, move |trees, path| trees.join(path, pid)).await
    }

    async fn members(&self, cgroup: &CgroupPath) -> HostResult<Vec<u32>> {
        self.work(cgroup, Trees::members).await
    }

    async fn facts_of(&self, pids: &[u32]) -> Vec<ProcessFacts> {
        let pids = pids.to_vec();
        let read = move |proc: &Path| Ok(processes::facts_of(proc, &pids));
        blocking(&Queue::of(Work::Processes), Path::new(processes::PROC), read).await.unwrap_or_default()
    }

    async fn listener(&self, socket: &Path) -> HostResult<Option<u32>> {
        processes::listener(socket).await
    }

    async fn set_oom_score_adj(&self, pid: u32, score: i32) -> HostResult<()> {
        let write = move |proc: &Path| processes::set_oom_score_adj(proc, pid, score);
        blocking(&Queue::of(Work::Processes), Path::new(processes::PROC), write).await
    }

    async fn watch_memory(&self, marks: &[MemoryMark]) -> HostResult<BoxFuture<'static, ()>> {
        let tree = self.trees.memory_tree()?;
        let marks = marks.to_vec();
        let arm = move |tree: &Path| memory_alarm::arm(tree, &marks);
        let event = blocking(&Queue::of(Work::Cgroups), &tree, arm).await?;
        Ok(memory_alarm::wait(event, &tree)?.boxed())
    }
}

#[cfg(test)]
mod tests;
