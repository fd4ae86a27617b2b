//! The health of devices of drivers: each instance reports it in a stream, and the pods whose claims have a device that changed its health
//! report that within a second. With the gate `ResourceHealthStatus`.
//!
//! Owns what was reported, and `dra_health_state`. Decisions, and the format of the file, are in `resources_core::claims::health`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base_agent::context::Context;
use base_agent::damaged;
use base_agent::error_chain::chain;
use base_agent::retry_delay::RetryDelay;
use futures_util::StreamExt;
use model::dra::DeviceKey;
use model::k8s::{Pod, PodStatus};
use parking_lot::Mutex;
use ports::plugins::{DraDriver, PluginError, PluginResult};
use resources_core::claims::health::{HealthChanges, HealthStream, HealthTable, compute_claim_health};
use resources_core::claims::health_file::{HEALTH_STATE_FILE, parse_health_state, write_health_state};
use resources_core::devices::ContainerHealth;
use tokio::sync::Notify;

use super::drivers::Instance;
use super::{Claims, LIMIT, MODE};
use crate::devices::HealthListeners;

/// Between the end of a stream and the next try, at first and at most. A stream that lasted for the longest delay begins again with the
/// first.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// At least between two updates of pods and of the file, so that a driver whose devices change all the time costs little.
const PERIOD: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct DeviceHealth {
    state: Mutex<State>,
    /// The number of the last stream.
    streams: AtomicU64,
    /// Notified of changes.
    changed: Notify,
    listeners: HealthListeners,
    with_messages: bool,
    path: PathBuf,
}

#[derive(Debug, Default)]
struct State {
    table: HealthTable,
    /// Changes that no pod and no file has yet.
    pending: HealthChanges,
}

impl State {
    fn add(&mut self, changes: HealthChanges) {
        for (driver, devices) in changes {
            self.pending.entry(driver).or_default().extend(devices);
        }
    }
}

impl DeviceHealth {
    /// Reads what an earlier kubelet has received; `None` without the feature gate. A file that is damaged or cannot be read only makes the
    /// health unknown until drivers report again.
    pub(super) async fn load(ctx: &Context, listeners: HealthListeners) -> Option<Self> {
        let features = ctx.node_facts.features;
        if !features.device_health {
            return None;
        }
        let path = ctx.settings.paths.root.join(HEALTH_STATE_FILE);
        let parse = |bytes: &[u8]| parse_health_state(&String::from_utf8_lossy(bytes), ctx.clock.now());
        let table = match damaged::load(&*ctx.files, &path, LIMIT, "health of devices", parse).await {
            Ok(file) => file.intact().unwrap_or_default(),
            Err(error) => {
                tracing::error!(path = %path.display(), err = chain(&error), "Failed to read health of devices");
                HealthTable::default()
            }
        };
        Some(Self {
            state: Mutex::new(State { table, pending: HealthChanges::new() }),
            streams: AtomicU64::new(0),
            changed: Notify::new(),
            listeners,
            with_messages: features.device_health_messages,
            path,
        })
    }

    fn change(&self, change: impl FnOnce(&mut HealthTable) -> HealthChanges) {
        let mut state = self.state.lock();
        let changes = change(&mut state.table);
        if !changes.is_empty() {
            state.add(changes);
            drop(state);
            self.changed.notify_one();
        }
    }

    fn end(&self, driver: &str, stream: HealthStream) {
        self.change(|table| of_driver(driver, table.end(driver, stream)));
    }
}

fn of_driver(driver: &str, devices: BTreeSet<DeviceKey>) -> HealthChanges {
    if devices.is_empty() { HealthChanges::new() } else { [(driver.to_owned(), devices)].into() }
}

impl Claims {
    /// The health of the devices of the pod's claims, as the status of its containers shows it.
    #[must_use]
    pub fn health_of(&self, pod: &Pod, status: Option<&PodStatus>) -> ContainerHealth {
        let has_claims = pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.is_some());
        let Some(health) = self.shared.health.as_ref().filter(|_| has_claims) else {
            return ContainerHealth::new();
        };
        self.read(|claims| {
            compute_claim_health(claims, &health.state.lock().table, pod, status, health.with_messages)
        })
    }

    /// Receives the reports of the instance until it is deregistered.
    pub(crate) fn watch_health(&self, driver: &str, instance: Instance) {
        let Some(health) = &self.shared.health else { return };
        let stream = HealthStream(health.streams.fetch_add(1, Ordering::Relaxed) + 1);
        let (claims, driver) = (self.clone(), driver.to_owned());
        self.shared.ctx.tasks.spawn_isolated("health of devices of a DRA driver", async move {
            let Some(health) = &claims.shared.health else { return };
            tokio::select! {
                () = instance.removed.cancelled() => {}
                () = claims.receive_forever(health, &driver, stream, &*instance.driver) => {}
            }
            health.end(&driver, stream);
        });
    }

    /// Never returns.
    async fn receive_forever(
        &self,
        health: &DeviceHealth,
        name: &str,
        stream: HealthStream,
        driver: &dyn DraDriver,
    ) {
        let clock = self.shared.ctx.clock;
        let mut retry = RetryDelay::new(FIRST_RETRY, MAX_RETRY);
        loop {
            let began = clock.mono();
            if let Err(error) = self.receive(health, name, stream, driver).await {
                tracing::debug!(driver = name, err = %error, "Health stream of DRA driver failed, retrying");
                // What an earlier kubelet had from a driver that is not there yet counts until it is too old.
                if !matches!(error, PluginError::Unreachable { .. }) {
                    health.end(name, stream);
                }
            } else {
                health.end(name, stream);
            }
            let ended = clock.mono();
            if ended.saturating_since(began) >= MAX_RETRY {
                retry.reset();
            }
            clock.sleep_until(ended + retry.take()).await;
        }
    }

    /// Until the stream ends. Many drivers have none.
    async fn receive(
        &self,
        health: &DeviceHealth,
        name: &str,
        stream: HealthStream,
        driver: &dyn DraDriver,
    ) -> PluginResult<()> {
        let mut reports = driver.health().await?;
        let mut has_warned = false;
        while let Some(devices) = reports.next().await.transpose()? {
            let now = self.shared.ctx.clock.now();
            let mut ignored = 0;
            health.change(|table| {
                let (changed, count) = table.report(name, stream, devices, now);
                ignored = count;
                of_driver(name, changed)
            });
            if ignored > 0 && !has_warned {
                has_warned = true;
                tracing::warn!(
                    driver = name,
                    devices = ignored,
                    "DRA driver reports too many devices or names that are too long, ignoring their health"
                );
            }
        }
        Ok(())
    }

    /// Makes health unknown that is too old, notifies pods of changes and writes the file. Never returns.
    pub(super) async fn publish_health(self) {
        let Some(health) = &self.shared.health else { return };
        let clock = self.shared.ctx.clock;
        loop {
            let next = health.state.lock().table.next_expiry();
            tokio::select! {
                () = health.changed.notified() => {}
                () = clock.sleep_until_some(next) => {}
            }
            health.change(|table| table.expire(clock.mono()));
            let pending = std::mem::take(&mut health.state.lock().pending);
            if !pending.is_empty() {
                self.notify_pods(health, &pending);
                self.save_health(health).await;
                clock.sleep_until(clock.mono() + PERIOD).await;
            }
        }
    }

    fn notify_pods(&self, health: &DeviceHealth, changes: &HealthChanges) {
        for (driver, devices) in changes {
            let pods = self.read(|table| table.pods_with(driver, devices));
            tracing::debug!(driver, devices = devices.len(), pods = pods.len(), "Health of devices changed");
            health.listeners.notify(&pods);
        }
    }

    /// A failure costs only the health after a restart, until drivers report again.
    async fn save_health(&self, health: &DeviceHealth) {
        let text = write_health_state(&health.state.lock().table).map_err(|error| error.to_string());
        let saved = match text {
            Ok(text) => {
                let written = self.shared.ctx.files.write_file(&health.path, text.as_bytes(), MODE).await;
                written.map_err(|error| chain(&error))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = saved {
            tracing::error!(path = %health.path.display(), err = error, "Failed to write health of devices");
        }
    }
}
