//! What clients of the kubelet get: logs, streams, statistics and the node as `NodeApi` shows it.

pub(crate) mod checkpoints;
pub(crate) mod container_logs;
pub mod log_rotation;
pub mod node_api;
pub(crate) mod pod_lookup;
pub mod stats;
pub(crate) mod streams;
pub(crate) mod system_logs;
