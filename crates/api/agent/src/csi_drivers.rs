//! The CSIDrivers of the cluster: how the kubelet treats the volumes of each driver.
//!
//! Owns their store and its reflector, which starts with the first request: a node without CSI volumes reads none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api_core::reflector::ObjectKey;
use base_agent::context::Context;
use model::k8s::CSIDriver;
use ports::Cluster;
use ports::cluster::Selection;
use tokio::sync::watch;

use super::reflector::{CollectionOf, Reflector, Store, StoreReader};

/// How long a caller waits for the first list; the volume's operation is tried again.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// A handle; clones share the store.
#[derive(Clone, Debug)]
pub struct CsiDrivers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ctx: Arc<Context>,
    cluster: Arc<dyn Cluster>,
    store: watch::Sender<Store<CSIDriver>>,
    is_started: AtomicBool,
}

impl CsiDrivers {
    pub fn new(ctx: &Arc<Context>, cluster: &Arc<dyn Cluster>) -> Self {
        let (ctx, cluster) = (ctx.clone(), cluster.clone());
        let store = watch::Sender::new(Store::default());
        Self { shared: Arc::new(Shared { ctx, cluster, store, is_started: AtomicBool::new(false) }) }
    }

    /// The CSIDriver of that name; `None` if it does not exist.
    ///
    /// # Errors
    /// The API server has not answered yet, or the object cannot be decoded.
    pub async fn get(&self, name: &str) -> Result<Option<Arc<CSIDriver>>, String> {
        let mut store = self.changes();
        let clock = self.shared.ctx.clock;
        let is_synced = tokio::select! {
            synced = store.wait_for(|store| store.is_complete) => synced.is_ok(),
            () = clock.sleep_until(clock.mono() + SYNC_TIMEOUT) => false,
        };
        if !is_synced {
            return Err("failed to sync csidriver cache: timed out waiting for the condition".to_owned());
        }
        let key = ObjectKey { namespace: String::new(), name: name.to_owned() };
        let found = store.borrow().find(&key);
        found.map_err(|problem| format!("csidriver {name:?} cannot be decoded: {problem}"))
    }

    /// All CSIDrivers, with notice of their changes.
    pub fn changes(&self) -> StoreReader<CSIDriver> {
        let Shared { ctx, cluster, store, is_started } = &*self.shared;
        if !is_started.swap(true, Ordering::Relaxed) {
            let drivers: CollectionOf<CSIDriver> = |cluster| cluster.csi_drivers();
            let all = Selection::default();
            let reflector = Reflector::new(ctx, cluster, drivers, "CSIDriver", all, store.clone());
            ctx.tasks.spawn("CSIDriver reflector", reflector.run());
        }
        store.subscribe()
    }
}
