//! Detects the cgroup driver at start, in parallel to other tasks: only pods that need it wait. Owns the answer, which never
//! changes once it is known.

use std::sync::Arc;

use base_agent::metrics::Metrics;
use kubelet_core::node::cgroup_driver::{DriverAnswer, DriverPlan, DriverReason, compute_cgroup_driver};
use model::CgroupDriver;
use ports::runtime::RuntimeError;
use ports::{Clock, Runtime};
use tokio::sync::watch;

use crate::cgroup_problems::CgroupProblems;
use crate::metrics::RuntimeMetrics;

/// Queries the runtime. The task ends with the answer.
#[derive(Debug)]
pub struct DriverDetection {
    pub runtime: Arc<dyn Runtime>,
    pub clock: Clock,
    /// `cgroupDriver`.
    pub configured: CgroupDriver,
    pub metrics: Metrics,
    /// The node is not ready until the driver is known.
    pub problems: CgroupProblems,
    pub answer: watch::Sender<Option<CgroupDriver>>,
}

impl DriverDetection {
    /// Queries the runtime until the driver is decided; at most one call every two seconds.
    pub async fn run(self) {
        let mut refusals = 0_u32;
        let mut reported = None;
        loop {
            let answer = self.runtime.cgroup_driver().await;
            let meaning = meaning(&answer);
            refusals = if meaning == DriverAnswer::Refused { refusals.saturating_add(1) } else { 0 };
            match compute_cgroup_driver(meaning, refusals, self.configured) {
                DriverPlan::AskAgain { after } => {
                    if let Err(error) = answer {
                        self.report_unknown(&mut reported, error.to_string());
                    }
                    self.clock.sleep_until(self.clock.mono() + after).await;
                }
                DriverPlan::Use { driver, why } => {
                    self.report(driver, why);
                    self.problems.driver_known();
                    self.answer.send_replace(Some(driver));
                    return;
                }
            }
        }
    }

    /// Each new error is logged once; the node's condition has the last one.
    fn report_unknown(&self, reported: &mut Option<String>, error: String) {
        if reported.as_ref() != Some(&error) {
            tracing::warn!(
                err = error,
                "Failed to get the cgroup driver of the container runtime, pods wait for it"
            );
        }
        self.problems.driver_unknown(&error);
        *reported = Some(error);
    }

    fn report(&self, driver: CgroupDriver, why: DriverReason) {
        let configured = self.configured;
        match why {
            DriverReason::RuntimeReported => {
                tracing::info!(%driver, %configured, "Using cgroup driver setting received from the CRI runtime");
            }
            DriverReason::RuntimeTooOld => {
                self.metrics.get::<RuntimeMetrics>().loses_support();
                tracing::warn!(
                    %driver,
                    "CRI implementation does not report its cgroup driver, falling back to cgroupDriver from the configuration; update the runtime, \
                     because Kubernetes 1.37 needs one that does"
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
