//! The node as a member of a cluster: every client of the Kubernetes API.
//!
//! Owns no state of pods: pods come in as one more config source of the sync loop, and their status goes out from
//! [`base_agent::pods_view::PodsView`]. A standalone kubelet starts none of this.
#![forbid(unsafe_code)]

pub mod admission_node;
pub mod attachments;
pub mod certificates;
pub mod csi;
pub mod csi_allocatable;
pub mod csi_drivers;
pub mod csi_node;
pub mod events;
pub mod meta;
pub mod metrics;
pub mod mirrors;
pub mod node_allocatable;
pub mod objects;
pub mod pods;
pub mod reflector;
pub mod status;
pub mod volumes_in_use;

use std::sync::Arc;

use ports::Cluster;

/// The clients of the API server. Each has its own rate limit, so that no kind of traffic delays another.
#[derive(Clone, Debug)]
pub struct ApiClients {
    /// Reads and watches, registration, mirror pods, tokens.
    pub general: Arc<dyn Cluster>,
    /// The status of pods, and the deletion of terminated pods.
    pub status: Arc<dyn Cluster>,
    pub events: Arc<dyn Cluster>,
    /// The status of the node, and its lease.
    pub heartbeat: Arc<dyn Cluster>,
}
