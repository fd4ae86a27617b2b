//! The ports `Files`, `Mounts`, `Processes`, `Machine`, `Cgroups` and `Shutdown` on Linux: mounts, cgroups, procfs, inotify,
//! files and process limits.
//!
//! Owns: [`LinuxHost`], one file for each kind of step, [`LinuxCgroups`], and the process-level functions in [`process`].
//!
//! Architecture invariants:
//! - it decides nothing: no retry, no back-off, no policy;
//! - blocking system calls run on tokio's blocking threads, never on its workers, and each kind of work has some of its own
//!   ([`blocking_threads`]);
//! - what a pod may have prepared (its volumes, its logs) is entered by file descriptor, never by a path it could
//!   change under us;
//! - unsafe code only in `async_inotify`, `projects`, `loop_devices`, `program_memory`, `free_memory` and `static_names`, in functions of
//!   a few lines each: rustix wraps every other system call that is needed.
#![deny(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests run on real sockets and real time"
    )
)]

pub mod process;

mod addresses;
mod async_inotify;
mod atomic;
mod bind;
mod blocking;
mod cgroups;
mod container_processes;
mod dbus;
mod exec_trace;
mod fault;
mod files;
mod foreign_mounts;
#[cfg(target_env = "gnu")]
mod free_memory;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod holders;
mod host_path;
mod huge_pages;
mod in_volume;
mod job;
mod journal;
mod kernel_log;
mod linux_host;
pub mod listeners;
mod lock_file;
mod logind;
mod loop_devices;
mod machine;
mod manifests;
mod measure;
mod mounts;
pub mod node_lock;
mod open_file;
mod own_process;
mod ownership;
mod payload;
mod program;
mod program_memory;
mod projects;
mod removal;
mod rewrite;
mod socket_tree;
#[cfg(all(target_env = "gnu", any(test, target_feature = "crt-static")))]
mod static_names;
mod sub_path;
mod subordinate_ids;
mod systemd;
mod temporary;
mod tmpfs;
mod topology;
mod unmount;
mod volume_helper;
mod walk;
mod watch;

use std::io;
use std::path::Path;

use ports::host::HostError;

pub use addresses::host_ips;
pub use blocking::threads as blocking_threads;
pub use cgroups::LinuxCgroups;
pub use linux_host::LinuxHost;
pub use logind::Logind;
pub use volume_helper::serve as serve_as_volume_helper;

/// The error of a system call that failed: `what` was being done to `path`.
fn failed<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> HostError {
    move |error| HostError::Io { what, path: path.to_path_buf(), source: error.into() }
}

/// The message of an error with that of its source.
fn chain(error: &HostError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests;
