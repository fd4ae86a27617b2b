//! The fake as [`CsiDriver`]: what the client of the kubelet sees, with its deadline.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use model::csi::{
    ExpandRequest, NodeCapabilities, NodeInfo, PublishRequest, StageRequest, StatsRequest, VolumeStats,
};
use ports::plugins::{CSI_TIMEOUT, CsiDriver, PluginResult};
use tokio::sync::oneshot;

use super::violations::{Checked, into_answer};
use super::volumes::Volumes;
use super::{CsiFault, CsiMethod, FakeCsiDriver, State, refusal, unreachable};
use crate::FakePlugins;

/// Finds the driver of its socket at each call.
#[derive(Debug)]
pub(crate) struct FakeCsiClient {
    pub(crate) plugins: FakePlugins,
    pub(crate) socket: PathBuf,
}

/// Which call it is.
#[derive(Clone, Copy, Debug)]
struct Call<'a> {
    method: CsiMethod,
    volume_id: Option<&'a str>,
}

impl<'a> Call<'a> {
    const fn of(method: CsiMethod, volume_id: &'a str) -> Self {
        Self { method, volume_id: Some(volume_id) }
    }
}

/// A call that changes a volume, until its caller has an answer or timed out.
struct InFlight<'a> {
    driver: &'a FakeCsiDriver,
    call: Call<'a>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(volume_id) = self.call.volume_id {
            self.driver.state.lock().calls.end(volume_id, self.call.method);
        }
    }
}

impl State {
    /// Records the call, and finds the fault that it meets.
    fn begin(&mut self, call: Call<'_>) -> PluginResult<Option<CsiFault>> {
        let Call { method, volume_id } = call;
        self.calls.record(method, volume_id);
        if let (Some(volume_id), false) = (volume_id, method.is_read()) {
            if let Some(other) = self.calls.in_flight(volume_id) {
                let what = format!("{other:?} for the volume is in flight");
                self.calls.violation(method, Some(volume_id), &what);
            }
            self.calls.begin(volume_id, method);
            if self.calls.is_held(volume_id) {
                return Err(refusal("Aborted", format!("an operation for volume {volume_id} is pending")));
            }
        }
        Ok(self.calls.take_fault(method, volume_id))
    }
}

impl FakeCsiDriver {
    fn carry_out<T>(&self, call: Call<'_>, act: impl FnOnce(&mut Volumes) -> Checked<T>) -> PluginResult<T> {
        let mut state = self.state.lock();
        let (answer, violation) = into_answer(act(&mut state.volumes));
        if let Some(what) = violation {
            state.calls.violation(call.method, call.volume_id, &what);
        }
        answer
    }

    async fn call<T: Send + 'static>(
        &self,
        call: Call<'_>,
        act: impl FnOnce(&mut Volumes) -> Checked<T> + Send + 'static,
    ) -> PluginResult<T> {
        let fault = self.state.lock().begin(call);
        let _in_flight = InFlight { driver: self, call };
        match fault? {
            None => self.carry_out(call, act),
            Some(CsiFault::Fails(code, message)) => Err(refusal(code, message)),
            Some(CsiFault::FailsAfterDoing(code, message)) => {
                self.carry_out(call, act)?;
                Err(refusal(code, message))
            }
            Some(CsiFault::Hangs) => self.hang(call, act).await,
            #[expect(clippy::panic, reason = "this is what the test wants to see survived")]
            Some(CsiFault::Panics) => panic!("a fault of this test"),
            Some(CsiFault::AnswersAfter(after)) => {
                let answer = self.carry_out(call, act);
                until_deadline(async {
                    tokio::time::sleep(after).await;
                    answer
                })
                .await
            }
        }
    }

    /// Waits until the call is released.
    async fn hang<T: Send + 'static>(
        &self,
        call: Call<'_>,
        act: impl FnOnce(&mut Volumes) -> Checked<T> + Send + 'static,
    ) -> PluginResult<T> {
        let (sender, answer) = oneshot::channel();
        self.state.lock().calls.hold(call.volume_id.map(str::to_owned), |volumes| {
            // The caller may no longer wait.
            let _ = sender.send(into_answer(act(volumes)).0);
        });
        until_deadline(async {
            let lost = || refusal("Unavailable", "error reading from server: EOF");
            answer.await.unwrap_or_else(|_| Err(lost()))
        })
        .await
    }
}

async fn until_deadline<T>(answer: impl Future<Output = PluginResult<T>>) -> PluginResult<T> {
    let in_time = tokio::time::timeout(CSI_TIMEOUT, answer).await;
    in_time.unwrap_or_else(|_| Err(refusal("DeadlineExceeded", "context deadline exceeded")))
}

impl FakeCsiClient {
    fn driver(&self) -> PluginResult<FakeCsiDriver> {
        let driver = self.plugins.csi_driver_at(&self.socket);
        driver.filter(|driver| driver.state.lock().is_running).ok_or_else(|| unreachable(&self.socket))
    }
}

#[async_trait]
impl CsiDriver for FakeCsiClient {
    async fn node_info(&self) -> PluginResult<NodeInfo> {
        let driver = self.driver()?;
        let info = driver.state.lock().info.clone();
        driver.call(Call { method: CsiMethod::NodeGetInfo, volume_id: None }, |_| Ok(info)).await
    }

    async fn capabilities(&self) -> PluginResult<NodeCapabilities> {
        let call = Call { method: CsiMethod::NodeGetCapabilities, volume_id: None };
        self.driver()?.call(call, |volumes| Ok(volumes.capabilities)).await
    }

    async fn stage(&self, request: &StageRequest) -> PluginResult<()> {
        let (driver, request) = (self.driver()?, request.clone());
        driver.state.lock().calls.stages.push(request.clone());
        let volume_id = request.volume_id.clone();
        let call = Call::of(CsiMethod::NodeStageVolume, &volume_id);
        driver.call(call, move |volumes| volumes.stage(&request)).await
    }

    async fn unstage(&self, volume_id: &str, staging_target_path: &Path) -> PluginResult<()> {
        let (id, path) = (volume_id.to_owned(), staging_target_path.to_owned());
        let call = Call::of(CsiMethod::NodeUnstageVolume, volume_id);
        self.driver()?.call(call, move |volumes| volumes.unstage(&id, &path)).await
    }

    async fn publish(&self, request: &PublishRequest) -> PluginResult<()> {
        let (driver, request) = (self.driver()?, request.clone());
        driver.state.lock().calls.publishes.push(request.clone());
        let volume_id = request.volume_id.clone();
        let call = Call::of(CsiMethod::NodePublishVolume, &volume_id);
        driver.call(call, move |volumes| volumes.publish(&request)).await
    }

    async fn unpublish(&self, volume_id: &str, target_path: &Path) -> PluginResult<()> {
        let (id, path) = (volume_id.to_owned(), target_path.to_owned());
        let call = Call::of(CsiMethod::NodeUnpublishVolume, volume_id);
        self.driver()?.call(call, move |volumes| volumes.unpublish(&id, &path)).await
    }

    async fn expand(&self, request: &ExpandRequest) -> PluginResult<i64> {
        let (driver, request) = (self.driver()?, request.clone());
        driver.state.lock().calls.expansions.push(request.clone());
        let volume_id = request.volume_id.clone();
        let call = Call::of(CsiMethod::NodeExpandVolume, &volume_id);
        driver.call(call, move |volumes| volumes.expand(&request)).await
    }

    async fn stats(&self, request: &StatsRequest) -> PluginResult<VolumeStats> {
        let (volume_id, request) = (request.volume_id.clone(), request.clone());
        let call = Call::of(CsiMethod::NodeGetVolumeStats, &volume_id);
        self.driver()?.call(call, move |volumes| volumes.stats_of(&request)).await
    }
}
