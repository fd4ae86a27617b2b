//! How long a pod's passes took, and its way from being seen to running: for the metrics, and for nothing else.

use jiff::Timestamp;
use model::k8s::PodStatus;
use model::{MonoTime, Now};

use crate::metrics::{Metrics, WorkerPass};

#[derive(Debug)]
pub(super) struct Times {
    seen_at: MonoTime,
    /// The act in flight.
    act: Option<(MonoTime, WorkerPass)>,
    has_begun: bool,
    has_run: bool,
}

impl Times {
    pub(super) const fn new(seen_at: MonoTime) -> Self {
        Self { seen_at, act: None, has_begun: false, has_run: false }
    }

    /// An earlier kubelet, or the API, has this of the pod.
    pub(super) fn remember(&mut self, status: Option<&PodStatus>) {
        let phase = status.and_then(|status| status.phase.as_deref());
        self.has_run = phase.is_some_and(|phase| phase != "Pending");
    }

    pub(super) fn act_began(&mut self, metrics: &Metrics, now: MonoTime, is_kill: bool) {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let pass = match (is_kill, is_first) {
            (true, _) => WorkerPass::Kill,
            (false, true) => WorkerPass::Create,
            (false, false) => WorkerPass::Sync,
        };
        if pass == WorkerPass::Create {
            metrics.worker_began(now.saturating_since(self.seen_at));
        }
        self.act = Some((now, pass));
    }

    pub(super) fn act_ended(&mut self, metrics: &Metrics, now: MonoTime) {
        if let Some((began, pass)) = self.act.take() {
            metrics.worker_passed(pass, now.saturating_since(began));
        }
    }

    /// `created` is of the pod's object in the API.
    pub(super) fn published(
        &mut self,
        metrics: &Metrics,
        now: Now,
        status: &PodStatus,
        created: Option<Timestamp>,
    ) {
        if self.has_run || status.phase.as_deref() != Some("Running") {
            return;
        }
        self.has_run = true;
        let since_created = created.map(|created| now.wall_since(created));
        metrics.pod_runs(now.mono.saturating_since(self.seen_at), since_created);
    }
}
