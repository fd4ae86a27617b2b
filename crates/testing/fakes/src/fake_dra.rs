//! A driver of dynamic resources in memory: it prepares claims, fails as a test wants, and records what would be wrong with a real one.
//! [`crate::TestDraDriver`] serves it over gRPC.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use model::devices::DeviceHealth;
use model::dra::{ClaimAnswers, ClaimDevice, ClaimId, DeviceReport};
use parking_lot::Mutex;
use ports::plugins::{DraDriver, HealthReports, PluginError, PluginResult};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::FakePlugins;

/// A driver whose clones are the same. Each claim gets one device, `<class>=<claim uid>`.
#[derive(Clone, Debug)]
pub struct FakeDraDriver {
    /// `example.com/gpu`.
    class: String,
    state: Arc<Mutex<State>>,
    is_running: Arc<watch::Sender<bool>>,
    /// `None` if it has no health stream.
    health: Arc<watch::Sender<Option<Vec<DeviceReport>>>>,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<String>,
    /// By UID.
    prepared: BTreeMap<String, ClaimId>,
    /// The UIDs of claims that a call under way is about.
    in_call: BTreeSet<String>,
    violations: Vec<String>,
    /// The error about each claim, by method.
    claim_errors: BTreeMap<&'static str, String>,
    /// How long a call takes.
    delay: Duration,
    /// Where CDI files are written.
    cdi_dir: Option<PathBuf>,
    share_id: Option<String>,
}

/// The short names of the methods.
const PREPARE: &str = "prepare";
const UNPREPARE: &str = "unprepare";
/// Of the device of each claim.
const POOL: &str = "node";
const DEVICE: &str = "device-0";

impl FakeDraDriver {
    #[must_use]
    pub fn new(class: &str) -> Self {
        Self {
            class: class.to_owned(),
            state: Arc::default(),
            is_running: Arc::new(watch::Sender::new(true)),
            health: Arc::new(watch::Sender::new(None)),
        }
    }

    /// The devices of prepared claims are described in files of this directory, which must exist.
    #[must_use]
    pub fn with_cdi_files(self, dir: &Path) -> Self {
        self.state.lock().cdi_dir = Some(dir.to_owned());
        self
    }

    /// It reports the health of its device in its streams, once.
    pub fn report_health(&self, health: DeviceHealth, message: &str, timeout: Option<Duration>) {
        self.report(vec![DeviceReport {
            pool: POOL.to_owned(),
            device: DEVICE.to_owned(),
            health,
            message: message.to_owned(),
            timeout,
        }]);
    }

    /// It reports these devices.
    pub fn report(&self, devices: Vec<DeviceReport>) {
        self.health.send_replace(Some(devices));
    }

    /// Its health streams end, and it has none until it reports again.
    pub fn end_health(&self) {
        self.health.send_replace(None);
    }

    /// The number of its health streams.
    #[must_use]
    pub fn health_streams(&self) -> usize {
        self.health.receiver_count()
    }

    /// Devices have this share id from now on.
    pub fn set_share_id(&self, share_id: &str) {
        self.state.lock().share_id = Some(share_id.to_owned());
    }

    /// Each prepare fails with this error about its claims, or succeeds again.
    pub fn set_prepare_error(&self, why: Option<&str>) {
        self.set_error(PREPARE, why);
    }

    /// The same for unprepare.
    pub fn set_unprepare_error(&self, why: Option<&str>) {
        self.set_error(UNPREPARE, why);
    }

    fn set_error(&self, method: &'static str, why: Option<&str>) {
        let mut state = self.state.lock();
        match why {
            Some(why) => state.claim_errors.insert(method, why.to_owned()),
            None => state.claim_errors.remove(method),
        };
    }

    /// Calls take that long from now on; their effect is at the end.
    pub fn set_delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// It accepts no calls and ends its connections, or is back.
    pub fn set_running(&self, is_running: bool) {
        self.is_running.send_replace(is_running);
    }

    /// `prepare a b`, with the names of the claims.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    /// The names of the claims that are prepared.
    #[must_use]
    pub fn prepared(&self) -> Vec<String> {
        self.state.lock().prepared.values().map(|claim| claim.name.clone()).collect()
    }

    /// What a kubelet must not do: two calls about a claim at once.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.state.lock().violations.clone()
    }

    /// Removes all CDI files, as a reboot does.
    pub fn remove_cdi_files(&self) {
        let state = self.state.lock();
        for uid in state.prepared.keys() {
            state.remove_cdi_file(uid);
        }
    }

    fn begin(&self, method: &'static str, claims: &[ClaimId]) -> Duration {
        let mut state = self.state.lock();
        let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
        state.calls.push(format!("{method} {}", names.join(" ")));
        for claim in claims {
            if !state.in_call.insert(claim.uid.clone()) {
                state.violations.push(format!("{method} {} during another call", claim.name));
            }
        }
        state.delay
    }

    /// A call whose caller has gone away ends as well.
    fn end(&self, claims: &[ClaimId]) {
        let mut state = self.state.lock();
        for claim in claims {
            state.in_call.remove(&claim.uid);
        }
    }

    async fn act<T>(
        &self,
        method: &'static str,
        claims: &[ClaimId],
        act: impl Fn(&mut State, &ClaimId) -> T + Send,
    ) -> ClaimAnswers<T> {
        let delay = self.begin(method, claims);
        let ends = EndOfCall { driver: self, claims };
        tokio::time::sleep(delay).await;
        let mut state = self.state.lock();
        let answers = claims.iter().map(|claim| {
            let error = state.claim_errors.get(method).cloned();
            (claim.uid.clone(), error.map_or_else(|| Ok(act(&mut state, claim)), Err))
        });
        let answers = answers.collect();
        drop(state);
        drop(ends);
        answers
    }
}

struct EndOfCall<'a> {
    driver: &'a FakeDraDriver,
    claims: &'a [ClaimId],
}

impl Drop for EndOfCall<'_> {
    fn drop(&mut self) {
        self.driver.end(self.claims);
    }
}

impl State {
    fn cdi_file(&self, uid: &str) -> Option<PathBuf> {
        Some(self.cdi_dir.as_ref()?.join(format!("test-dra-{uid}.json")))
    }

    fn remove_cdi_file(&self, uid: &str) {
        if let Some(path) = self.cdi_file(uid) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// A container with the device has the variable `DRA_<claim>` with the name of the claim.
    fn write_cdi_file(&self, class: &str, claim: &ClaimId) {
        let Some(path) = self.cdi_file(&claim.uid) else { return };
        let variable = format!("DRA_{}={}", claim.name.replace('-', "_"), claim.name);
        let device = serde_json::json!({"name": claim.uid, "containerEdits": {"env": [variable]}});
        let spec = serde_json::json!({"cdiVersion": "0.5.0", "kind": class, "devices": [device]});
        // Containers find no device then, which the test reports.
        let _ = std::fs::write(path, spec.to_string());
    }
}

#[async_trait]
impl DraDriver for FakeDraDriver {
    async fn prepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<Vec<ClaimDevice>>> {
        let class = self.class.clone();
        let prepare = move |state: &mut State, claim: &ClaimId| {
            state.prepared.insert(claim.uid.clone(), claim.clone());
            state.write_cdi_file(&class, claim);
            vec![ClaimDevice {
                pool: POOL.to_owned(),
                name: DEVICE.to_owned(),
                share_id: state.share_id.clone(),
                requests: Vec::new(),
                cdi_devices: vec![format!("{class}={}", claim.uid)],
            }]
        };
        Ok(self.act(PREPARE, claims, prepare).await)
    }

    async fn unprepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<()>> {
        let unprepare = |state: &mut State, claim: &ClaimId| {
            state.prepared.remove(&claim.uid);
            state.remove_cdi_file(&claim.uid);
        };
        Ok(self.act(UNPREPARE, claims, unprepare).await)
    }

    async fn connection(&self) -> PluginResult<BoxFuture<'static, ()>> {
        let mut is_running = self.is_running.subscribe();
        let end = async move {
            let _ = is_running.wait_for(|is_running| !is_running).await;
        };
        Ok(end.boxed())
    }

    async fn health(&self) -> PluginResult<HealthReports> {
        if self.health.borrow().is_none() {
            let message = "unknown service v1alpha1.DRAResourceHealth".to_owned();
            return Err(PluginError::Failed { code: "Unimplemented".to_owned(), message });
        }
        let reports = WatchStream::new(self.health.subscribe());
        let reports = reports.take_while(|report| std::future::ready(report.is_some()));
        let reports = reports.flat_map(|report| stream::iter(report.map(Ok)));
        let mut is_running = self.is_running.subscribe();
        let stopped = async move {
            let _ = is_running.wait_for(|is_running| !is_running).await;
        };
        Ok(reports.take_until(stopped.boxed()).boxed())
    }
}

/// What listens at a socket, looked up with each call.
#[derive(Debug)]
pub(crate) struct FakeDraClient {
    pub(crate) plugins: FakePlugins,
    pub(crate) socket: PathBuf,
}

impl FakeDraClient {
    fn driver(&self) -> PluginResult<FakeDraDriver> {
        let unreachable = || PluginError::Unreachable {
            socket: self.socket.clone(),
            message: "connection refused".to_owned(),
        };
        let driver = self.plugins.dra_driver_at(&self.socket);
        driver.filter(|driver| *driver.is_running.borrow()).ok_or_else(unreachable)
    }
}

#[async_trait]
impl DraDriver for FakeDraClient {
    async fn prepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<Vec<ClaimDevice>>> {
        self.driver()?.prepare(claims).await
    }

    async fn unprepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<()>> {
        self.driver()?.unprepare(claims).await
    }

    async fn connection(&self) -> PluginResult<BoxFuture<'static, ()>> {
        self.driver()?.connection().await
    }

    async fn health(&self) -> PluginResult<HealthReports> {
        self.driver()?.health().await
    }
}
