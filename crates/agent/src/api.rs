//! The node as a member of a cluster: every client of the Kubernetes API.
//!
//! Owns no state of pods: pods come in as one more config source of the sync loop, and their status goes out from
//! [`base_agent::pods_view::PodsView`]. A standalone kubelet starts none of this.

pub(crate) mod admission_node;
pub mod attachments;
pub mod certificates;
pub mod csi;
pub mod csi_allocatable;
pub mod csi_drivers;
pub mod csi_node;
pub(crate) mod events;
pub(crate) mod meta;
pub(crate) mod mirrors;
pub(crate) mod node_allocatable;
pub mod objects;
pub(crate) mod pods;
pub mod reflector;
pub(crate) mod status;

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
