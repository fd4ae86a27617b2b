//! [`LinuxHost`]: the ports of the machine, one file for each.

mod files;
mod machine;
mod mounts;
mod processes;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ports::host::{HostResult, MachineInfo};

use crate::blocking::{Directories, Work, blocking, on_tree};
use crate::container_processes::ContainerCgroups;
use crate::foreign_mounts::ForeignMounts;
use crate::volume_helper::{HelperProcesses, Worker};
use crate::walk::TreeWork;

/// The machine this process runs on.
#[derive(Debug)]
pub struct LinuxHost {
    /// The directory that holds `/proc`, `/sys` and `/etc`; `/` except in tests.
    root: PathBuf,
    machine: OnceLock<MachineInfo>,
    directories: Directories,
    containers: Arc<ContainerCgroups>,
    /// What accesses volumes: a thread or a volume helper process.
    worker: Worker,
}

impl LinuxHost {
    #[must_use]
    pub fn new() -> Self {
        Self::with_root(PathBuf::from("/"))
    }

    /// Reads the facts of [`ports::Machine`] below `root` instead of `/`. Paths given to the other ports are used unchanged.
    #[must_use]
    pub fn with_root(root: PathBuf) -> Self {
        let containers = Arc::new(ContainerCgroups::new(root.join("sys/fs/cgroup")));
        let directories = Directories::default();
        Self { root, machine: OnceLock::new(), directories, containers, worker: Worker::Thread }
    }

    /// Work in these directories waits for other threads than work on the kubelet's own files: in that of the pods, in that of their logs,
    /// and in that of the manifests.
    #[must_use]
    pub fn with_directories(self, pods: PathBuf, pod_logs: PathBuf, manifests: Option<PathBuf>) -> Self {
        Self { directories: Directories::new(pods, pod_logs, manifests), ..self }
    }

    /// Accesses volumes on filesystems that hold none of these paths through helper processes; `program` must begin with
    /// [`crate::serve_as_volume_helper`].
    #[must_use]
    pub fn with_volume_helpers(self, program: PathBuf, own: Vec<PathBuf>) -> Self {
        let foreign = Arc::new(ForeignMounts::new(own));
        Self { worker: Worker::Helper { program, foreign, helpers: HelperProcesses::default() }, ..self }
    }
}

impl LinuxHost {
    /// Small work on a file or directory.
    async fn on_file<T, F>(&self, path: &Path, work: F) -> HostResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> HostResult<T> + Send + 'static,
    {
        blocking(&self.directories.queue(path), path, work).await
    }

    /// Other work.
    async fn on<T, F>(&self, kind: Work, path: &Path, work: F) -> HostResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> HostResult<T> + Send + 'static,
    {
        blocking(&self.directories.queue_for(kind, path), path, work).await
    }

    async fn on_tree<W: TreeWork>(&self, path: &Path, work: W) -> HostResult<W::Output> {
        on_tree(&self.directories.queue_for(Work::Trees, path), path, work).await
    }
}

impl Default for LinuxHost {
    fn default() -> Self {
        Self::new()
    }
}
