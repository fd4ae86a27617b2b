//! A driver of dynamic resources in memory: it prepares claims, fails as a test wants, and records what would be wrong with a real one.
//! [`crate::TestDraDriver`] serves it over gRPC.

mod client;
mod faults;

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

pub(crate) use client::FakeDraClient;
pub use faults::{DraFault, DraMethod};
use faults::{Faults, OnCall};

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
    /// The CDI names that a container runtime finds.
    cdi_devices: BTreeSet<String>,
    /// The UIDs of claims that a call under way is about.
    in_call: BTreeSet<String>,
    violations: Vec<String>,
    /// The error about each claim, by method.
    claim_errors: BTreeMap<DraMethod, String>,
    faults: Faults,
    on_call: Option<OnCall>,
    breakage: Breakage,
    /// How long a call takes.
    delay: Duration,
    /// Where CDI files are written.
    cdi_dir: Option<PathBuf>,
    share_id: Option<String>,
}

/// What a broken driver does wrong: tests show with it that they would detect that.
#[derive(Clone, Copy, Debug, Default)]
struct Breakage {
    ignores_prepares: bool,
    ignores_unprepares: bool,
    hides_devices: bool,
    outlives_callers: bool,
}

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
        self.set_error(DraMethod::Prepare, why);
    }

    /// The same for unprepare.
    pub fn set_unprepare_error(&self, why: Option<&str>) {
        self.set_error(DraMethod::Unprepare, why);
    }

    fn set_error(&self, method: DraMethod, why: Option<&str>) {
        let mut state = self.state.lock();
        match why {
            Some(why) => state.claim_errors.insert(method, why.to_owned()),
            None => state.claim_errors.remove(&method),
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

    pub fn forget_calls(&self) -> &Self {
        self.state.lock().calls.clear();
        self
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

    /// The same, by UID.
    #[must_use]
    pub fn prepared_uids(&self) -> BTreeSet<String> {
        self.state.lock().prepared.keys().cloned().collect()
    }

    /// The CDI names of its devices that a container runtime finds.
    #[must_use]
    pub fn cdi_devices(&self) -> BTreeSet<String> {
        self.state.lock().cdi_devices.clone()
    }

    /// Removes all CDI files, as a reboot does.
    pub fn remove_cdi_files(&self) {
        let mut state = self.state.lock();
        state.cdi_devices.clear();
        for uid in state.prepared.keys() {
            state.remove_cdi_file(uid);
        }
    }

    /// It has lost its own state: nothing is prepared.
    pub fn forget_claims(&self) {
        self.remove_cdi_files();
        self.state.lock().prepared.clear();
    }

    fn begin(&self, method: DraMethod, claims: &[ClaimId]) -> (Duration, Option<DraFault>) {
        let on_call = self.state.lock().on_call.clone();
        if let Some(on_call) = on_call {
            on_call.notify(method, claims);
        }
        let mut state = self.state.lock();
        let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
        let name = method.name();
        state.calls.push(format!("{name} {}", names.join(" ")));
        for claim in claims {
            if !state.in_call.insert(claim.uid.clone()) {
                state.violations.push(format!("{name} {} during another call", claim.name));
            }
        }
        (state.delay, state.faults.take(method))
    }

    async fn act<T: Send>(
        &self,
        method: DraMethod,
        claims: &[ClaimId],
        act: impl Fn(&mut State, &ClaimId) -> T + Send + Sync,
    ) -> PluginResult<ClaimAnswers<T>> {
        let (delay, fault) = self.begin(method, claims);
        let mut end = EndOfCall { driver: self, claims, is_answered: false };
        tokio::time::sleep(delay).await;
        let answered = async {
            self.fail_before(fault.as_ref()).await?;
            let answers = self.carry_out(method, claims, fault.as_ref(), act);
            self.fail_after(fault.as_ref()).await?;
            Ok(answers)
        };
        let answer = answered.await;
        end.is_answered = true;
        answer
    }

    fn carry_out<T>(
        &self,
        method: DraMethod,
        claims: &[ClaimId],
        fault: Option<&DraFault>,
        act: impl Fn(&mut State, &ClaimId) -> T,
    ) -> ClaimAnswers<T> {
        let mut state = self.state.lock();
        let first = claims.first().map(|claim| claim.uid.as_str());
        let answer = |claim: &ClaimId| {
            let refusal = match fault {
                Some(DraFault::SkipsFirst) if first == Some(&claim.uid) => return None,
                Some(DraFault::RefusesFirst(why)) if first == Some(&claim.uid) => Some((*why).to_owned()),
                _ => state.claim_errors.get(&method).cloned(),
            };
            Some((claim.uid.clone(), refusal.map_or_else(|| Ok(act(&mut state, claim)), Err)))
        };
        claims.iter().filter_map(answer).collect()
    }
}

/// A call whose caller has gone away ends as well.
struct EndOfCall<'a> {
    driver: &'a FakeDraDriver,
    claims: &'a [ClaimId],
    is_answered: bool,
}

impl Drop for EndOfCall<'_> {
    fn drop(&mut self) {
        let mut state = self.driver.state.lock();
        if self.is_answered || !state.breakage.outlives_callers {
            for claim in self.claims {
                state.in_call.remove(&claim.uid);
            }
        }
    }
}

fn cdi_name(class: &str, uid: &str) -> String {
    format!("{class}={uid}")
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
    fn write_cdi_file(&mut self, class: &str, claim: &ClaimId) {
        self.cdi_devices.insert(cdi_name(class, &claim.uid));
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
            if !state.breakage.ignores_prepares {
                state.prepared.insert(claim.uid.clone(), claim.clone());
            }
            state.write_cdi_file(&class, claim);
            let device = ClaimDevice {
                pool: POOL.to_owned(),
                name: DEVICE.to_owned(),
                share_id: state.share_id.clone(),
                requests: Vec::new(),
                cdi_devices: vec![cdi_name(&class, &claim.uid)],
            };
            if state.breakage.hides_devices { Vec::new() } else { vec![device] }
        };
        self.act(DraMethod::Prepare, claims, prepare).await
    }

    async fn unprepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<()>> {
        let class = self.class.clone();
        let unprepare = move |state: &mut State, claim: &ClaimId| {
            if !state.breakage.ignores_unprepares {
                state.prepared.remove(&claim.uid);
            }
            state.cdi_devices.remove(&cdi_name(&class, &claim.uid));
            state.remove_cdi_file(&claim.uid);
        };
        self.act(DraMethod::Unprepare, claims, unprepare).await
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
