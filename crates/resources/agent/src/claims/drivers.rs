//! The registered drivers of dynamic resources: which instances each has, and which of them are connected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use model::MonoTime;
use model::dra::DraVersion;
use parking_lot::Mutex;
use ports::plugins::{DraDriver, PluginError, Plugins};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::metrics::ClaimMetrics;

/// Instances of all drivers that can be registered at once.
const MAX_INSTANCES: usize = 256;
/// At least between two tries to open a connection.
const RECONNECT: Duration = Duration::from_secs(1);
/// The ResourceSlices of a driver without a connected instance are deleted after this time.
const WIPE_DELAY: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("DRA driver {driver} is not registered")]
pub struct NotRegistered {
    pub driver: String,
}

/// A handle; clones share all of it.
#[derive(Clone, Debug)]
pub struct Drivers {
    ctx: Arc<Context>,
    plugins: Arc<dyn Plugins>,
    table: Arc<Mutex<Table>>,
    /// Notified when a driver loses its last connection.
    pub(super) lost: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    /// Each in the order of registration.
    instances: BTreeMap<String, Vec<Instance>>,
    /// When the slices of drivers without a connection are due to be deleted.
    away: BTreeMap<String, MonoTime>,
}

#[derive(Clone, Debug)]
pub(crate) struct Instance {
    endpoint: PathBuf,
    version: DraVersion,
    pub(super) driver: Arc<dyn DraDriver>,
    is_connected: bool,
    /// Cancelled when it is deregistered.
    pub(super) removed: CancellationToken,
}

impl Table {
    fn connection_changed(&mut self, driver: &str, now: MonoTime) {
        let instances = self.instances.get(driver);
        if instances.into_iter().flatten().any(|instance| instance.is_connected) {
            self.away.remove(driver);
        } else {
            // A later event does not postpone it.
            self.away.entry(driver.to_owned()).or_insert(now + WIPE_DELAY);
        }
    }
}

impl Drivers {
    pub(super) fn new(ctx: Arc<Context>, plugins: Arc<dyn Plugins>) -> Self {
        Self { ctx, plugins, table: Arc::default(), lost: Arc::new(Notify::new()) }
    }

    /// # Errors
    /// The endpoint is registered for the driver, or there are too many. The text is complete, and is reported to the plugin.
    pub(crate) fn add(&self, driver: &str, endpoint: &Path, version: DraVersion) -> Result<Instance, String> {
        let instance = Instance {
            endpoint: endpoint.to_owned(),
            version,
            driver: self.plugins.dra_driver(endpoint, version),
            is_connected: false,
            removed: CancellationToken::new(),
        };
        {
            let mut table = self.table.lock();
            if table.instances.values().flatten().count() >= MAX_INSTANCES {
                return Err(format!("the limit of {MAX_INSTANCES} DRA driver plugins is reached"));
            }
            let instances = table.instances.entry(driver.to_owned()).or_default();
            if instances.iter().any(|known| known.endpoint == endpoint) {
                let endpoint = endpoint.display();
                return Err(format!("endpoint {endpoint} already registered for DRA driver plugin {driver}"));
            }
            instances.push(instance.clone());
            table.connection_changed(driver, self.ctx.clock.mono());
        }
        self.lost.notify_one();
        let (drivers, name, added) = (self.clone(), driver.to_owned(), instance.clone());
        self.ctx.tasks.spawn_isolated("connection of a DRA driver", async move {
            let removed = instance.removed.clone();
            tokio::select! {
                () = removed.cancelled() => {}
                () = drivers.keep_connected(&name, &instance) => {}
            }
        });
        Ok(added)
    }

    pub fn remove(&self, driver: &str, endpoint: &Path) {
        {
            let mut table = self.table.lock();
            let Some(instances) = table.instances.get_mut(driver) else { return };
            let Some(index) = instances.iter().position(|known| known.endpoint == endpoint) else { return };
            instances.remove(index).removed.cancel();
            if instances.is_empty() {
                table.instances.remove(driver);
            }
            table.connection_changed(driver, self.ctx.clock.mono());
        }
        self.lost.notify_one();
    }

    /// The drivers that are registered, and whether each has a connection.
    #[must_use]
    pub fn registered(&self) -> Vec<(String, bool)> {
        let table = self.table.lock();
        let shown = |(name, instances): (&String, &Vec<Instance>)| {
            (name.clone(), instances.iter().any(|instance| instance.is_connected))
        };
        table.instances.iter().map(shown).collect()
    }

    /// The instance for the next call: the newest one that is connected, else the newest.
    pub(super) fn find(&self, driver: &str) -> Result<Instance, NotRegistered> {
        let table = self.table.lock();
        let instances = table.instances.get(driver).map(Vec::as_slice).unwrap_or_default();
        let connected = instances.iter().rfind(|instance| instance.is_connected);
        let missing = || NotRegistered { driver: driver.to_owned() };
        connected.or(instances.last()).cloned().ok_or_else(missing)
    }

    #[must_use]
    pub fn is_registered(&self, driver: &str) -> bool {
        self.table.lock().instances.contains_key(driver)
    }

    /// Opens a connection without calls, again and again. Never returns.
    async fn keep_connected(&self, name: &str, instance: &Instance) {
        loop {
            let began = self.ctx.clock.mono();
            if let Ok(ended) = instance.driver.connection().await {
                self.set_connected(name, instance, true);
                ended.await;
                self.set_connected(name, instance, false);
                tracing::info!(driver = name, endpoint = %instance.endpoint.display(), "Connection to DRA driver ended");
            }
            // At once after a connection that lasted.
            self.ctx.clock.sleep_until(began + RECONNECT).await;
        }
    }

    fn set_connected(&self, name: &str, instance: &Instance, is_connected: bool) {
        {
            let mut table = self.table.lock();
            let instances = table.instances.get_mut(name).into_iter().flatten();
            for known in instances.filter(|known| known.endpoint == instance.endpoint) {
                known.is_connected = is_connected;
            }
            table.connection_changed(name, self.ctx.clock.mono());
        }
        self.lost.notify_one();
    }

    /// Drivers that have been without a connection for long enough, and when the next one will have been.
    pub(super) fn due(&self, now: MonoTime) -> (Vec<String>, Option<MonoTime>) {
        let table = self.table.lock();
        let due = table.away.iter().filter(|(_, at)| **at <= now).map(|(driver, _)| driver.clone());
        let next = table.away.values().filter(|at| **at > now).min().copied();
        (due.collect(), next)
    }

    /// The slices of the driver are deleted. A driver that is still not connected gets no second deletion.
    pub(super) fn wiped(&self, driver: &str) {
        self.table.lock().away.remove(driver);
    }

    /// Counts a call in the metrics.
    pub(super) fn record_call(
        &self,
        driver: &str,
        instance: &Instance,
        method: &str,
        began: MonoTime,
        error: Option<&PluginError>,
    ) {
        let took = self.ctx.clock.mono().saturating_since(began);
        let method = format!("{}{method}", instance.version.path());
        let code = error.map_or("OK", |error| match error {
            PluginError::Failed { code, .. } => code,
            PluginError::TimedOut { .. } => "DeadlineExceeded",
            PluginError::Unreachable { .. } | PluginError::Listen { .. } => "Unavailable",
            PluginError::Malformed(_) => "Internal",
        });
        self.ctx.metrics.get::<ClaimMetrics>().called(driver, &method, code, took);
    }
}
