//! The fake as the kubelet's client sees it: what listens at a socket, with the deadline of the real client.

use std::path::PathBuf;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use model::dra::{ClaimAnswers, ClaimDevice, ClaimId};
use ports::plugins::{DRA_TIMEOUT, DraDriver, HealthReports, PluginError, PluginResult};

use super::FakeDraDriver;
use super::faults::refusal;
use crate::FakePlugins;

/// The driver is looked up with each call.
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

/// A call ends with its deadline, and with the driver.
async fn answered<T>(
    driver: &FakeDraDriver,
    call: impl Future<Output = PluginResult<T>> + Send,
) -> PluginResult<T> {
    let mut is_running = driver.is_running.subscribe();
    tokio::select! {
        biased;
        answer = call => answer,
        _ = is_running.wait_for(|is_running| !is_running) => {
            Err(refusal("Unavailable", "error reading from server: EOF"))
        }
        () = tokio::time::sleep(DRA_TIMEOUT) => Err(refusal("DeadlineExceeded", "context deadline exceeded")),
    }
}

#[async_trait]
impl DraDriver for FakeDraClient {
    async fn prepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<Vec<ClaimDevice>>> {
        let driver = self.driver()?;
        answered(&driver, driver.prepare(claims)).await
    }

    async fn unprepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<()>> {
        let driver = self.driver()?;
        answered(&driver, driver.unprepare(claims)).await
    }

    async fn connection(&self) -> PluginResult<BoxFuture<'static, ()>> {
        self.driver()?.connection().await
    }

    async fn health(&self) -> PluginResult<HealthReports> {
        self.driver()?.health().await
    }
}
