//! State that the acts on the volumes of all pods share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use api_agent::node_allocatable::NodeAllocatable;
use api_agent::reflector::StoreReader;
use model::k8s::Node;
use ports::Cluster;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::csi::Csi;
use super::flex::FlexDrivers;
use super::permits::Permits;

/// State that the acts of all pods share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The API, for claims and PersistentVolumes; `None` for a standalone kubelet.
    pub cluster: Option<Arc<dyn Cluster>>,
    pub allocatable: NodeAllocatable,
    pub own_node: StoreReader<Node>,
    pub devices: Permits,
    pub csi: Csi,
    pub flex: FlexDrivers,
    pub projects: Projects,
    pub(super) payloads: PayloadPermits,
}

/// How many volumes may have their files in memory at the same time.
const MAX_PAYLOADS: usize = 2;

#[derive(Debug)]
pub(super) struct PayloadPermits(Semaphore);

impl Default for PayloadPermits {
    fn default() -> Self {
        Self(Semaphore::new(MAX_PAYLOADS))
    }
}

impl PayloadPermits {
    /// Waits for a permit; it is held until it is dropped.
    pub(crate) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.0.acquire().await.ok()
    }
}

/// Ensures that two volumes never choose the same quota project.
#[derive(Debug)]
pub(super) struct Projects {
    pub permit: Semaphore,
    /// The absence of project quotas on this node has been logged.
    pub is_logged: AtomicBool,
}

impl Default for Projects {
    fn default() -> Self {
        Self { permit: Semaphore::new(1), is_logged: AtomicBool::new(false) }
    }
}
