//! The one act of a pod in flight, and how fresh an observation must be after it.

use kubelet_core::pods::plan::PodStep;
use model::{MonoTime, PodObservation};
use tokio::task::{JoinError, JoinSet};

use super::ActReport;

/// Dropped with the worker: nothing is left running.
#[derive(Debug)]
pub(super) struct Act {
    running: JoinSet<ActReport>,
    /// The step of a plan that it carries out.
    step: Option<PodStep>,
    /// Observations from before this moment do not show what the last act did.
    ended_at: MonoTime,
}

impl Act {
    pub(super) fn new(now: MonoTime) -> Self {
        Self { running: JoinSet::new(), step: None, ended_at: now }
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    pub(super) fn start(&mut self, act: impl Future<Output = ActReport> + Send + 'static) {
        self.running.spawn(act);
    }

    pub(super) fn start_step(
        &mut self,
        step: PodStep,
        act: impl Future<Output = ActReport> + Send + 'static,
    ) {
        self.step = Some(step);
        self.start(act);
    }

    /// The report of an act that has ended; `None` if none is running. Cancel safe.
    pub(super) async fn report(&mut self) -> Option<Result<ActReport, JoinError>> {
        self.running.join_next().await
    }

    pub(super) fn abort(&mut self) {
        self.running.abort_all();
    }

    pub(super) const fn ended(&mut self, now: MonoTime) {
        self.ended_at = now;
    }

    pub(super) const fn ended_at(&self) -> MonoTime {
        self.ended_at
    }

    pub(super) const fn take_step(&mut self) -> Option<PodStep> {
        self.step.take()
    }

    /// The observation shows what the last act did.
    pub(super) fn is_shown_by(&self, observed: &PodObservation) -> bool {
        observed.taken_at >= self.ended_at
    }
}
