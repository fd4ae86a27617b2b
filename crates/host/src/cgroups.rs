//! The Cgroups port on Linux: directories in the trees of the kernel, and slices of systemd. Decides nothing, and never
//! waits for a process.

mod memory_alarm;
mod slices;
mod trees;

use std::path::PathBuf;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use model::cgroup::{CgroupPath, CgroupSettings, CgroupVersion, MemoryMark};
use ports::Cgroups;
use ports::cgroups::CgroupRemoval;
use ports::host::HostResult;

use crate::blocking;
use slices::Slices;
use trees::Trees;

/// The cgroups of this machine.
#[derive(Debug)]
pub struct LinuxCgroups {
    trees: Trees,
    slices: Slices,
}

impl LinuxCgroups {
    /// `root`: where cgroups are mounted, `/sys/fs/cgroup` but for tests.
    #[must_use]
    pub fn new(root: PathBuf, version: CgroupVersion) -> Self {
        Self::with_systemd(root, version, slices::SOCKET.into())
    }

    /// The same with a systemd that answers elsewhere.
    fn with_systemd(root: PathBuf, version: CgroupVersion, socket: PathBuf) -> Self {
        Self { trees: Trees::new(root, version), slices: Slices::new(socket) }
    }

    async fn work<T, F>(&self, cgroup: &CgroupPath, work: F) -> HostResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Trees, &str) -> HostResult<T> + Send + 'static,
    {
        let (trees, path) = (self.trees.clone(), cgroup.path.clone());
        blocking(self.trees.root(), move |_| work(&trees, &path)).await
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

    async fn watch_memory(&self, marks: &[MemoryMark]) -> HostResult<BoxFuture<'static, ()>> {
        let tree = self.trees.memory_tree()?;
        let marks = marks.to_vec();
        let event = blocking(&tree, move |tree| memory_alarm::arm(tree, &marks)).await?;
        Ok(memory_alarm::wait(event, &tree)?.boxed())
    }
}

#[cfg(test)]
mod tests;
