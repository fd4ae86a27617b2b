//! The machine that the kubelet runs on, as four ports: its [`Files`], [`Mounts`], [`Processes`] and the [`Machine`] itself, in
//! kubelet-sized steps rather than system calls.

mod files;
mod machine;
mod mounts;
mod processes;

use std::path::PathBuf;
use std::sync::Arc;

pub use files::{DirEntry, DirectoryChange, FileIdentity, FileMetadata, Files, ManifestFile, OpenFile};
pub use machine::{Machine, MachineInfo, SubordinateIds};
pub use mounts::{GroupPolicy, HostPathKind, Mounts};
pub use processes::{CommandOutput, ExecTrace, Processes, ProgramCall, ProgramOutput};

/// Why a step on the machine failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{what} {path}")]
    Io {
        /// What was being done, as a verb phrase: `create directory`, `mount tmpfs on`.
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The path is not what it must be. The text is complete: it names the path and what was expected.
    #[error("{0}")]
    Invalid(String),
    /// The work did not end in time, or would have had to wait for such work. Its effect may still happen. The text is
    /// complete.
    #[error("{0}")]
    NotFinished(String),
}

impl HostError {
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            Self::Invalid(_) | Self::NotFinished(_) => false,
        }
    }
}

pub type HostResult<T> = Result<T, HostError>;

/// The four ports of one machine.
#[derive(Clone, Debug)]
pub struct Host {
    pub files: Arc<dyn Files>,
    pub mounts: Arc<dyn Mounts>,
    pub processes: Arc<dyn Processes>,
    pub machine: Arc<dyn Machine>,
}

impl Host {
    /// The ports of a machine that implements all four.
    #[must_use]
    pub fn new<T: Files + Mounts + Processes + Machine + 'static>(host: T) -> Self {
        let host = Arc::new(host);
        Self { files: host.clone(), mounts: host.clone(), processes: host.clone(), machine: host }
    }
}
