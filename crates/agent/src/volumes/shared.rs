//! State that the acts on the volumes of all pods share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use ports::{Cluster, HostError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::api::node_allocatable::NodeAllocatable;

/// State that the acts of all pods share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The API, for claims and PersistentVolumes; `None` for a standalone kubelet.
    pub(super) cluster: Option<Arc<dyn Cluster>>,
    pub(super) allocatable: NodeAllocatable,
    pub(super) devices: Devices,
    pub(super) projects: Projects,
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
    pub(super) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.0.acquire().await.ok()
    }
}

/// One permit for each device: one task at a time works on it.
#[derive(Debug, Default)]
pub(super) struct Devices {
    permits: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Devices {
    /// Waits until no other task works on the device; the permit is held until it is dropped.
    pub(super) async fn acquire(&self, name: &str) -> Result<OwnedSemaphorePermit, HostError> {
        let permit = {
            let mut permits = self.permits.lock();
            permits.retain(|known, permit| known == name || Arc::strong_count(permit) > 1);
            permits.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        };
        permit.acquire_owned().await.map_err(|_| HostError::GivenUp("the kubelet stops".to_owned()))
    }
}

/// Ensures that two volumes never choose the same quota project.
#[derive(Debug)]
pub(super) struct Projects {
    pub(super) permit: Semaphore,
    /// The absence of project quotas on this node has been logged.
    pub(super) is_logged: AtomicBool,
}

impl Default for Projects {
    fn default() -> Self {
        Self { permit: Semaphore::new(1), is_logged: AtomicBool::new(false) }
    }
}
