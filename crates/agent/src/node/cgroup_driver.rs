//! Detects the cgroup driver at start, in parallel to other tasks: only pods that need it wait. Owns the answer, which never
//! changes once it is known.

use std::sync::Arc;

use kubelet_core::node::cgroup_driver::{DriverAnswer, DriverPlan, DriverReason, compute_cgroup_driver};
use model::CgroupDriver;
use ports::runtime::RuntimeError;
use ports::{Clock, Runtime};
use tokio::sync::watch;

use crate::metrics::Metrics;

/// Queries the runtime. The task ends with the answer.
#[derive(Debug)]
pub struct DriverDetection {
    pub runtime: Arc<dyn Runtime>,
    pub clock: Clock,
    /// `cgroupDriver`.
    pub configured: CgroupDriver,
    pub metrics: Arc<Metrics>,
    pub answer: watch::Sender<Option<CgroupDriver>>,
}

impl DriverDetection {
    /// Queries the runtime until the driver is decided; at most one call every two seconds.
    pub async fn run(self) {
        let mut tries = 0_u32;
        loop {
            tries = tries.saturating_add(1);
            let answer = self.runtime.cgroup_driver().await;
            match compute_cgroup_driver(meaning(&answer), tries, self.configured) {
                DriverPlan::AskAgain { after } => self.clock.sleep_until(self.clock.mono() + after).await,
                DriverPlan::Use { driver, why } => {
                    self.report(driver, why, answer.err());
                    self.answer.send_replace(Some(driver));
                    return;
                }
            }
        }
    }

    fn report(&self, driver: CgroupDriver, why: DriverReason, error: Option<RuntimeError>) {
        let (configured, error) = (self.configured, error.map(|error| error.to_string()));
        match why {
            DriverReason::RuntimeReported => {
                tracing::info!(%driver, %configured, "Using cgroup driver setting received from the CRI runtime");
            }
            DriverReason::RuntimeTooOld => {
                self.metrics.runtime_loses_support();
                tracing::warn!(
                    %driver,
                    "CRI implementation does not report its cgroup driver, falling back to cgroupDriver from the configuration; update the runtime, \
                     because Kubernetes 1.37 needs one that does"
                );
            }
            DriverReason::RuntimeRefuses => {
                tracing::error!(
                    %driver,
                    err = error,
                    "CRI implementation does not report its cgroup driver, falling back to cgroupDriver from the configuration"
                );
            }
        }
    }
}

const fn meaning(answer: &Result<CgroupDriver, RuntimeError>) -> DriverAnswer {
    match answer {
        Ok(driver) => DriverAnswer::Reported(*driver),
        Err(RuntimeError::Unimplemented { .. }) => DriverAnswer::NotOffered,
        Err(RuntimeError::TimedOut { .. } | RuntimeError::Unavailable { .. }) => DriverAnswer::NoAnswer,
        Err(
            RuntimeError::Failed { .. } | RuntimeError::NotFound { .. } | RuntimeError::AlreadyExists { .. },
        ) => DriverAnswer::Refused,
    }
}
