//! Cgroups: directories in the trees of the kernel, some of them systemd's; and the processes that are in them.

use std::path::Path;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use model::cgroup::{CgroupPath, CgroupSettings, CgroupState, MemoryMark, ProcessFacts};

use crate::host::HostResult;

/// What came of taking a cgroup away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupRemoval {
    /// There is none, in no tree.
    Gone,
    /// These are still inside.
    Busy { pids: Vec<u32> },
}

/// The cgroups of this machine. Every call is short: none waits for a process to end.
#[async_trait]
pub trait Cgroups: Send + Sync + std::fmt::Debug {
    /// Whether it is in every tree that limits something.
    async fn exists(&self, cgroup: &CgroupPath) -> bool;
    /// Makes it and those above it where they are missing, and writes what is not so yet.
    async fn ensure(&self, cgroup: &CgroupPath, settings: &CgroupSettings) -> HostResult<()>;
    /// Whether it is there, and is like this. What could not be read is an error, and not missing.
    async fn compare(&self, cgroup: &CgroupPath, settings: &CgroupSettings) -> HostResult<CgroupState>;
    /// The last parts of the names of the cgroups directly below, in whichever tree they are; sorted, each once.
    async fn children(&self, cgroup: &CgroupPath) -> Vec<String>;
    /// The processes in it and below it.
    async fn processes(&self, cgroup: &CgroupPath) -> Vec<u32>;
    /// Sends SIGKILL to all processes in it and below it. Success if there is no such cgroup.
    async fn kill(&self, cgroup: &CgroupPath) -> HostResult<()>;
    /// Takes it away with all below it, from the bottom up, as far as nobody is inside.
    async fn remove(&self, cgroup: &CgroupPath) -> HostResult<CgroupRemoval>;
    /// Moves a process into it, in every tree that it is in.
    async fn join(&self, cgroup: &CgroupPath, pid: u32) -> HostResult<()>;
    /// The processes that are in it itself, and not below it.
    async fn members(&self, cgroup: &CgroupPath) -> HostResult<Vec<u32>>;
    /// What is known of these processes, of those that are still there.
    async fn facts_of(&self, pids: &[u32]) -> Vec<ProcessFacts>;
    /// The process that listens on a socket; `None` if it is not among those that we can see.
    async fn listener(&self, socket: &Path) -> HostResult<Option<u32>>;
    /// Sets how eagerly a process is killed when memory runs out.
    async fn set_oom_score_adj(&self, pid: u32, score: i32) -> HostResult<()>;
    /// What it returns ends as soon as one of the marks is reached, or has been before; when it is dropped, nobody watches
    /// any more. Only version 1 can watch memory.
    async fn watch_memory(&self, marks: &[MemoryMark]) -> HostResult<BoxFuture<'static, ()>>;
}
