//! Cgroups: directories in the hierarchies of the kernel, some of them owned by systemd; and the processes in them.

use std::path::Path;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use model::cgroup::{CgroupPath, CgroupSettings, CgroupState, MemoryMark, ProcessFacts};

use crate::host::HostResult;

/// The result of removing a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupRemoval {
    /// The cgroup does not exist in any hierarchy any more.
    Gone,
    /// These processes are still in it.
    Busy { pids: Vec<u32> },
}

/// The cgroups of this node. No call waits for a process to end.
#[async_trait]
pub trait Cgroups: Send + Sync + std::fmt::Debug {
    /// Whether the cgroup exists in every hierarchy with a controller.
    async fn exists(&self, cgroup: &CgroupPath) -> bool;
    /// Creates the cgroup and its parents if they are missing, and writes the settings that differ.
    async fn ensure(&self, cgroup: &CgroupPath, settings: &CgroupSettings) -> HostResult<()>;
    /// Whether the cgroup exists with these settings. A file that cannot be read is an error.
    async fn compare(&self, cgroup: &CgroupPath, settings: &CgroupSettings) -> HostResult<CgroupState>;
    /// The content of these files, each by its controller and name; `None` for those that cannot be read.
    async fn read(
        &self,
        cgroup: &CgroupPath,
        files: &[(&'static str, &'static str)],
    ) -> HostResult<Vec<Option<String>>>;
    /// The names of the cgroups directly below, in any hierarchy; sorted, without duplicates.
    async fn children(&self, cgroup: &CgroupPath) -> Vec<String>;
    /// The processes in the cgroup and below it.
    async fn processes(&self, cgroup: &CgroupPath) -> Vec<u32>;
    /// Sends SIGKILL to all processes in the cgroup and below it. Success if it does not exist.
    async fn kill(&self, cgroup: &CgroupPath) -> HostResult<()>;
    /// Removes the cgroup and all below it, from the bottom up, except those that hold processes.
    async fn remove(&self, cgroup: &CgroupPath) -> HostResult<CgroupRemoval>;
    /// Moves a process into the cgroup, in every hierarchy that has it.
    async fn join(&self, cgroup: &CgroupPath, pid: u32) -> HostResult<()>;
    /// The processes in the cgroup itself, not below it.
    async fn members(&self, cgroup: &CgroupPath) -> HostResult<Vec<u32>>;
    /// Facts about those of the processes that still exist.
    async fn facts_of(&self, pids: &[u32]) -> Vec<ProcessFacts>;
    /// The process that listens on a socket; `None` if it is in another PID namespace.
    async fn listener(&self, socket: &Path) -> HostResult<Option<u32>>;
    /// Sets `oom_score_adj` of a process.
    async fn set_oom_score_adj(&self, pid: u32, score: i32) -> HostResult<()>;
    /// The future ends when memory usage reaches one of the thresholds, or is above it already; dropping it ends the watch.
    /// Only cgroup v1 supports this.
    async fn watch_memory(&self, marks: &[MemoryMark]) -> HostResult<BoxFuture<'static, ()>>;
}
