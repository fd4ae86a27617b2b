//! The CSI drivers that have registered.
//!
//! Owns the table of drivers by name. A driver that registers again replaces the one before it; what waits for one is woken.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base_agent::context::Context;
use model::csi::NodeCapabilities;
use parking_lot::Mutex;
use ports::plugins::{CsiDriver, PluginResult, Plugins};
use tokio::sync::{OnceCell, Semaphore, watch};
use volumes_core::csi::not_registered;
use volumes_core::csi::plan::CsiPlan;
use volumes_core::csi_versions::Version;

use super::metered::Metered;

/// Drivers that can be registered at once.
const MAX_DRIVERS: usize = 256;
/// Volumes of one driver that are measured at once: a driver that hangs keeps no more calls open.
const MEASUREMENTS: usize = 4;

/// A handle; clones share the table.
#[derive(Clone, Debug)]
pub struct Drivers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ctx: Arc<Context>,
    plugins: Arc<dyn Plugins>,
    registered: Mutex<BTreeMap<String, Registered>>,
    /// The names of drivers, in the order of their registrations.
    registrations: watch::Sender<u64>,
}

#[derive(Clone, Debug)]
struct Registered {
    endpoint: PathBuf,
    version: Version,
    driver: Driver,
}

/// A registered driver.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub calls: Arc<dyn CsiDriver>,
    metered: Metered,
    /// They do not change while a driver is registered.
    capabilities: Arc<OnceCell<NodeCapabilities>>,
    /// Permits to measure volumes.
    pub measurements: Arc<Semaphore>,
}

impl Driver {
    /// The driver for calls that concern a volume: metrics say whether its in-tree type has moved to the driver.
    pub(crate) fn for_volume(self, plan: &CsiPlan) -> Self {
        match plan.is_migrated {
            true => Self { calls: Arc::new(Metered { is_migrated: true, ..self.metered.clone() }), ..self },
            false => self,
        }
    }

    /// What the driver supports; it is asked once for each registration.
    pub(crate) async fn capabilities(&self) -> PluginResult<NodeCapabilities> {
        self.capabilities.get_or_try_init(|| self.calls.capabilities()).await.copied()
    }
}

impl Drivers {
    pub(crate) fn new(ctx: Arc<Context>, plugins: Arc<dyn Plugins>) -> Self {
        let (registered, registrations) = (Mutex::default(), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { ctx, plugins, registered, registrations }) }
    }

    /// A driver at that socket, which is not registered yet.
    pub(crate) fn at(&self, name: &str, endpoint: &Path) -> Driver {
        let calls = self.shared.plugins.csi_driver(endpoint);
        let ctx = self.shared.ctx.clone();
        let metered = Metered { ctx, driver: name.into(), is_migrated: false, calls };
        Driver {
            calls: Arc::new(metered.clone()),
            metered,
            capabilities: Arc::default(),
            measurements: Arc::new(Semaphore::new(MEASUREMENTS)),
        }
    }

    /// From now on volumes of the driver are mounted.
    ///
    /// # Errors
    /// Too many drivers are registered.
    pub(crate) fn register(
        &self,
        name: &str,
        endpoint: &Path,
        version: Version,
        driver: Driver,
    ) -> Result<(), String> {
        {
            let mut registered = self.shared.registered.lock();
            if registered.len() >= MAX_DRIVERS && !registered.contains_key(name) {
                return Err(format!("the limit of {MAX_DRIVERS} CSI drivers is reached"));
            }
            registered.insert(name.to_owned(), Registered { endpoint: endpoint.to_owned(), version, driver });
        }
        self.shared.registrations.send_modify(|count| *count += 1);
        Ok(())
    }

    /// The driver at that socket is gone; one that registered at another meanwhile stays. Returns whether it was registered.
    pub(crate) fn deregister(&self, name: &str, endpoint: &Path) -> bool {
        let mut registered = self.shared.registered.lock();
        let is_it = registered.get(name).is_some_and(|known| known.endpoint == endpoint);
        is_it && registered.remove(name).is_some()
    }

    /// # Errors
    /// No driver of that name is registered.
    pub(crate) fn get(&self, name: &str) -> Result<Driver, String> {
        let registered = self.shared.registered.lock();
        registered.get(name).map(|known| known.driver.clone()).ok_or_else(|| not_registered(name))
    }

    /// The version with which the driver is registered.
    pub(crate) fn version(&self, name: &str) -> Option<Version> {
        self.shared.registered.lock().get(name).map(|known| known.version.clone())
    }

    /// Their names.
    pub(crate) fn registered(&self) -> Vec<String> {
        self.shared.registered.lock().keys().cloned().collect()
    }

    /// Notifies of every registration.
    pub(crate) fn registrations(&self) -> watch::Receiver<u64> {
        self.shared.registrations.subscribe()
    }
}
