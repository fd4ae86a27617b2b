//! ResourceClaims of pods: their drivers prepare them before the sandbox exists, and unprepare them when the pod runs nothing any more.
//!
//! Owns which claims are prepared for which pods, and `dra_manager_state`. Decisions, and the format of the file, are in
//! `resources_core::claims`; the health of devices is in `health`. Operations on different claims delay each other only while the file is
//! written. Sleeps without claims.

pub mod drivers;
mod health;
pub mod reconcile;
pub mod registration;
mod slices;

use std::sync::Arc;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use model::ContainerRef;
use model::PodUid;
use model::dra::{ClaimId, UsedClaim};
use model::k8s::{Pod, PodStatus};
use parking_lot::Mutex;
use ports::plugins::{PluginError, Plugins};
use ports::{Cluster, HostError};
use resources_core::claims::ClaimError;
use resources_core::claims::checkpoint::{DRA_STATE_FILE, parse_dra_state, write_dra_state};
use resources_core::claims::containers::{compute_cdi_devices, compute_used_claims};
use resources_core::claims::table::{
    AllocatedClaim, AnswerError, Batches, Begin, ClaimTable, PREPARE, UNPREPARE,
};
use tokio::sync::{oneshot, watch};

use crate::devices::HealthListeners;
use crate::metrics::ClaimMetrics;
use drivers::{Drivers, NotRegistered};
use health::DeviceHealth;
use reconcile::KnownPods;

const MODE: u32 = 0o600;
const LIMIT: usize = 16 << 20;

/// Why claims are not prepared or not unprepared. The messages are those of the Go kubelet.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    NotRegistered(#[from] NotRegistered),
    #[error("{method}: {source}")]
    Call { method: &'static str, source: PluginError },
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("checkpoint ResourceClaim {what}: {why}")]
    Save { what: &'static str, why: String },
    /// The kubelet stops, or the task panicked.
    #[error("the operation was aborted")]
    Aborted,
}

/// A handle; clones share all of it.
#[derive(Clone, Debug)]
pub struct Claims {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ctx: Arc<Context>,
    table: Mutex<ClaimTable>,
    /// Notifies of the end of each operation, and of writes that failed.
    ended: watch::Sender<u64>,
    drivers: Drivers,
    /// `None` without the feature gate.
    health: Option<DeviceHealth>,
    /// What is on disk; `None` after a write that failed, because the file may have the old content or the new one.
    on_disk: tokio::sync::Mutex<Option<String>>,
}

impl Claims {
    /// Reads what an earlier kubelet has prepared.
    ///
    /// # Errors
    /// The file is damaged or cannot be read: claims would never be unprepared.
    pub(crate) async fn load(
        ctx: &Arc<Context>,
        plugins: Arc<dyn Plugins>,
        listeners: HealthListeners,
    ) -> Result<Self, HostError> {
        let path = ctx.settings.paths.root.join(DRA_STATE_FILE);
        let text = match ctx.files.read_file(&path, LIMIT, false).await {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.is_not_found() => String::new(),
            Err(error) => return Err(error),
        };
        let table = match text.as_str() {
            "" => ClaimTable::default(),
            text => parse_dra_state(text)
                .map_err(|error| HostError::Invalid(error.advice(&path.display().to_string())))?,
        };
        let shared = Shared {
            ctx: ctx.clone(),
            table: Mutex::new(table),
            ended: watch::Sender::new(0),
            drivers: Drivers::new(ctx.clone(), plugins),
            health: DeviceHealth::load(ctx, listeners).await,
            on_disk: tokio::sync::Mutex::new(Some(text)),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Starts the tasks that unprepare claims of pods that are gone, publish the health of devices, and delete ResourceSlices, if there
    /// is an API server.
    pub fn start(&self, known: KnownPods, cluster: Option<Arc<dyn Cluster>>) {
        let tasks = &self.shared.ctx.tasks;
        tasks.spawn("ResourceClaims of pods that are gone", self.clone().reconcile(known));
        if self.shared.health.is_some() {
            tasks.spawn("health of devices of ResourceClaims", self.clone().publish_health());
        }
        if let Some(cluster) = cluster {
            tasks.spawn("ResourceSlices", self.clone().delete_slices(cluster));
        }
    }

    #[must_use]
    pub fn drivers(&self) -> &Drivers {
        &self.shared.drivers
    }

    /// Whether the pod has claims that are prepared, or may be.
    #[must_use]
    pub fn are_used_by(&self, pod: &PodUid) -> bool {
        self.shared.table.lock().is_used_by(pod)
    }

    /// Reads the table, which is locked meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&ClaimTable) -> T) -> T {
        read(&self.shared.table.lock())
    }

    /// The CDI names of the devices of claims that the container gets.
    ///
    /// # Errors
    /// A claim is not prepared.
    pub fn cdi_devices(
        &self,
        pod: &Pod,
        status: Option<&PodStatus>,
        container: &ContainerRef<'_>,
    ) -> Result<Vec<String>, ClaimError> {
        self.read(|table| compute_cdi_devices(table, pod, status, container))
    }

    /// The claims that the container uses, each once, with the devices that it gets; empty if one is not prepared.
    #[must_use]
    pub fn of_container(
        &self,
        pod: &Pod,
        status: Option<&PodStatus>,
        container: &ContainerRef<'_>,
    ) -> Vec<UsedClaim> {
        self.read(|table| compute_used_claims(table, pod, status, container)).unwrap_or_default()
    }

    /// The runtime did not find a device of the pod's claims: they are prepared again before its next container is created.
    pub fn set_unresolved(&self, pod: &PodUid) {
        self.shared.table.lock().set_unresolved(pod);
    }

    #[must_use]
    pub fn are_unresolved(&self, pod: &PodUid) -> bool {
        self.shared.table.lock().is_unresolved(pod)
    }

    /// The drivers prepare what is not prepared yet of these claims, which the pod uses from now on. Once it has begun, the operation
    /// goes on if the caller does not wait any longer.
    ///
    /// # Errors
    /// A driver is not registered or fails, or the file cannot be written. What has succeeded is not repeated by the next try.
    pub async fn prepare(&self, pod: &PodUid, claims: Vec<AllocatedClaim>) -> Result<(), OperationError> {
        // A driver that is not here is an error before anything is recorded, so that the pod can be deleted at any time.
        for driver in claims.iter().flat_map(|claim| &claim.drivers) {
            self.shared.drivers.find(driver)?;
        }
        let mut ended = self.shared.ended.subscribe();
        let batches = loop {
            ended.mark_unchanged();
            match self.shared.table.lock().begin_prepare(pod, &claims).map_err(ClaimError::from)? {
                Begin::Ready(batches) => break batches,
                Begin::Busy => {}
            }
            // The sender lives as long as `self`.
            let _ = ended.changed().await;
        };
        let claims_handle = self.clone();
        self.spawn("prepare ResourceClaims", async move {
            let result = claims_handle.call_prepare(&batches).await;
            claims_handle.end(|table| table.end_prepare(batches.values().flatten()));
            result
        })
        .await
    }

    async fn call_prepare(&self, batches: &Batches) -> Result<(), OperationError> {
        self.save("cache").await?;
        if batches.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        for (driver, claims) in batches {
            result = self.prepare_with(driver, claims).await;
            if result.is_err() {
                break;
            }
        }
        // Also what has succeeded before an error.
        let saved = self.save("state").await;
        result.and(saved)
    }

    async fn prepare_with(&self, driver: &str, claims: &[ClaimId]) -> Result<(), OperationError> {
        let instance = self.shared.drivers.find(driver)?;
        let began = self.shared.ctx.clock.mono();
        let answer = instance.driver.prepare(claims).await;
        self.shared.drivers.record_call(driver, &instance, PREPARE, began, answer.as_ref().err());
        let answer = answer.map_err(|source| OperationError::Call { method: PREPARE, source })?;
        tracing::info!(driver, claims = ?claims, "Prepared ResourceClaims");
        Ok(self.shared.table.lock().prepared(driver, claims, answer)?)
    }

    /// The pod runs nothing any more: drivers unprepare the claims that no other pod uses. Once it has begun, the operation goes on if the
    /// caller does not wait any longer.
    ///
    /// # Errors
    /// A driver is not registered or fails, and the pod still uses its claims. Or the file cannot be written: the pod uses none of them any
    /// more, because the end of a pod must not wait for a full disk, and the reconcile loop writes it later.
    pub async fn unprepare(&self, pod: &PodUid) -> Result<(), OperationError> {
        let mut ended = self.shared.ended.subscribe();
        let batches = loop {
            ended.mark_unchanged();
            {
                let mut table = self.shared.table.lock();
                if !table.is_used_by(pod) {
                    return Ok(());
                }
                match table.begin_unprepare(pod) {
                    Begin::Ready(batches) => break batches,
                    Begin::Busy => {}
                }
            }
            // The sender lives as long as `self`.
            let _ = ended.changed().await;
        };
        let (claims, pod) = (self.clone(), pod.clone());
        self.spawn("unprepare ResourceClaims", async move {
            let mut result = Ok(());
            for (driver, batch) in &batches {
                // One driver that is away keeps no other from its part.
                let unprepared = claims.unprepare_with(driver, batch).await;
                result = result.and(unprepared);
            }
            claims.end(|table| table.end_unprepare(&pod));
            let saved = claims.save("state").await;
            result.and(saved)
        })
        .await
    }

    async fn unprepare_with(&self, driver: &str, claims: &[ClaimId]) -> Result<(), OperationError> {
        let instance = self.shared.drivers.find(driver)?;
        let began = self.shared.ctx.clock.mono();
        let answer = instance.driver.unprepare(claims).await;
        self.shared.drivers.record_call(driver, &instance, UNPREPARE, began, answer.as_ref().err());
        let answer = answer.map_err(|source| OperationError::Call { method: UNPREPARE, source })?;
        tracing::info!(driver, claims = ?claims, "Unprepared ResourceClaims");
        Ok(self.shared.table.lock().unprepared(driver, claims, answer)?)
    }

    /// The operation ends with its own task, whatever happens to the caller: nothing else begins with its claims before.
    async fn spawn(
        &self,
        name: &'static str,
        operation: impl Future<Output = Result<(), OperationError>> + Send + 'static,
    ) -> Result<(), OperationError> {
        let (reply, result) = oneshot::channel();
        self.shared.ctx.tasks.spawn_isolated(name, async move {
            // The caller may have gone.
            let _ = reply.send(operation.await);
        });
        result.await.unwrap_or(Err(OperationError::Aborted))
    }

    fn end(&self, end: impl FnOnce(&mut ClaimTable)) {
        let counts = {
            let mut table = self.shared.table.lock();
            end(&mut table);
            let (by_driver, all) = table.counts();
            let by_driver = by_driver.into_iter().map(|(driver, count)| (driver.to_owned(), count));
            (by_driver.collect(), all)
        };
        self.shared.ctx.metrics.get::<ClaimMetrics>().set_in_use(counts.0, counts.1);
        self.shared.ended.send_modify(|count| *count += 1);
    }

    /// Writes the file if it has changed.
    async fn save(&self, what: &'static str) -> Result<(), OperationError> {
        let mut on_disk = self.shared.on_disk.lock().await;
        let failed = |why: String| OperationError::Save { what, why };
        let text = self.read(write_dra_state).map_err(|error| failed(error.to_string()))?;
        if on_disk.as_ref() == Some(&text) {
            return Ok(());
        }
        let path = self.shared.ctx.settings.paths.root.join(DRA_STATE_FILE);
        let written = self.shared.ctx.files.write_durably(&path, text.as_bytes(), MODE).await;
        *on_disk = written.is_ok().then_some(text);
        drop(on_disk);
        written.map_err(|error| {
            // So that the loop which tries again wakes up.
            self.shared.ended.send_modify(|count| *count += 1);
            failed(chain(&error))
        })
    }

    /// Whether the file is known to have what was written last.
    async fn is_saved(&self) -> bool {
        self.shared.on_disk.lock().await.is_some()
    }
}
