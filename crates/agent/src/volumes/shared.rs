//! What the acts on the volumes of all pods share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use ports::{Cluster, HostError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::api::node_allocatable::NodeAllocatable;

/// What the acts of all pods have in common.
#[derive(Debug)]
pub(super) struct Shared {
    /// The API, for claims and PersistentVolumes; `None` for a standalone kubelet.
    pub(super) cluster: Option<Arc<dyn Cluster>>,
    pub(super) allocatable: NodeAllocatable,
    pub(super) devices: Devices,
    pub(super) projects: Projects,
    pub(super) payloads: PayloadPermits,
}

/// So many volumes have their files in memory at the same time.
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
        // Nobody closes it.
        self.0.acquire().await.ok()
    }
}

/// One thing at a time is done with each device.
#[derive(Debug, Default)]
pub(super) struct Devices {
    turns: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Devices {
    /// Waits until nobody else does anything with the device, and keeps others away until it is dropped.
    pub(super) async fn turn(&self, name: &str) -> Result<OwnedSemaphorePermit, HostError> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|known, turn| known == name || Arc::strong_count(turn) > 1);
            turns.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        };
        turn.acquire_owned().await.map_err(|_| HostError::GivenUp("the kubelet stops".to_owned()))
    }
}

/// Two volumes never choose the same project.
#[derive(Debug)]
pub(super) struct Projects {
    pub(super) turn: Semaphore,
    /// That there are none on this machine has been said.
    pub(super) is_said: AtomicBool,
}

impl Default for Projects {
    fn default() -> Self {
        Self { turn: Semaphore::new(1), is_said: AtomicBool::new(false) }
    }
}
