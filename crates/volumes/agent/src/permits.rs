//! Permits to work on what pods share: a device, or a volume of a CSI driver.
//!
//! Owns one semaphore for each name, as long as a task waits for it or works.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ports::HostError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One permit for each device or volume: one task at a time works on it.
#[derive(Debug, Default)]
pub(super) struct Permits {
    permits: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Permits {
    /// Waits until no other task works on it; the permit is held until it is dropped.
    pub(crate) async fn acquire(&self, name: &str) -> Result<OwnedSemaphorePermit, HostError> {
        let permit = {
            let mut permits = self.permits.lock();
            permits.retain(|known, permit| known == name || Arc::strong_count(permit) > 1);
            permits.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        };
        permit.acquire_owned().await.map_err(|_| HostError::NotFinished("the kubelet stops".to_owned()))
    }
}
