//! The decisions about logs: how container logs are read and filtered, where they are, when they are rotated, and which logs of the node
//! are shown. Never: reading or renaming a file.
#![forbid(unsafe_code)]

pub mod container_log;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod log_paths;
pub mod log_rotation;
pub mod node_logs;
