//! What the kubelet serves to its clients: logs, streams, statistics, and the implementation of `NodeApi`.

pub(crate) mod checkpoints;
pub(crate) mod container_logs;
pub(crate) mod explain;
pub(crate) mod inventory;
pub mod log_rotation;
pub(crate) mod measurements;
pub mod node_api;
pub(crate) mod pod_lookup;
pub(crate) mod running_pods;
pub(crate) mod streams;
pub(crate) mod system_logs;
