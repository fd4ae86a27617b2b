//! What the HTTPS API serves: container logs, node logs, statistics and metrics.

pub mod container_log;
pub mod log_paths;
pub mod log_rotation;
pub mod node_logs;
pub mod stats;
