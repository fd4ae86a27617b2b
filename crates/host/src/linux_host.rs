//! [`LinuxHost`]: the ports of the machine, one file for each.

mod files;
mod machine;
mod mounts;
mod processes;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ports::host::MachineInfo;

use crate::foreign_mounts::ForeignMounts;
use crate::volume_helper::{HelperProcesses, Worker};

/// The machine this process runs on.
#[derive(Debug)]
pub struct LinuxHost {
    /// The directory that holds `/proc`, `/sys` and `/etc`; `/` except in tests.
    root: PathBuf,
    machine: OnceLock<MachineInfo>,
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
        Self { root, machine: OnceLock::new(), worker: Worker::Thread }
    }

    /// Accesses volumes on filesystems that hold none of these paths through helper processes; `program` must begin with
    /// [`crate::serve_as_volume_helper`].
    #[must_use]
    pub fn with_volume_helpers(self, program: PathBuf, own: Vec<PathBuf>) -> Self {
        let foreign = Arc::new(ForeignMounts::new(own));
        Self { worker: Worker::Helper { program, foreign, helpers: HelperProcesses::default() }, ..self }
    }
}

impl Default for LinuxHost {
    fn default() -> Self {
        Self::new()
    }
}
