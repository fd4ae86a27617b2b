//! The cgroup of a pod that runs, as it was last seen: whether another program removed or changed it.
//!
//! Reads the cgroup with each observation of the pod; the plan ([`compute_pod_actions`]) decides what follows, and a pass
//! executes it.
//!
//! [`compute_pod_actions`]: kubelet_core::pods::actions::compute_pod_actions

use std::time::Duration;

use base_core::pod_stage::{PodStage, RuntimePresence};
use kubelet_core::pods::cgroup_loss::{CgroupLoss, CgroupLossInputs, OtherPods, compute_cgroup_loss};
use kubelet_core::takeover::source_in;
use model::SandboxId;
use model::cgroup::CgroupState;
use model::k8s::Pod;

use super::PodWorker;
use crate::cgroup_problems::PodWithoutCgroup;

/// How soon a pod that goes on without a cgroup is inspected again.
const RECHECK: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct CgroupWatch {
    pub(super) state: CgroupState,
    /// Its settings were compared since the last resync; its existence is checked each time.
    pub(super) are_numbers_known: bool,
    /// It has existed under this kubelet.
    was_seen: bool,
    /// The pod goes on without a cgroup.
    missing: Option<PodWithoutCgroup>,
}

impl CgroupWatch {
    pub(super) const fn is_missing(&self) -> bool {
        self.missing.is_some()
    }
}

impl PodWorker {
    /// Before a pod has a sandbox, and once it is to end, its cgroup concerns only the pass.
    pub(super) async fn inspect_cgroup(&mut self) {
        let (Some(pod), Some(observed)) = (self.desired.pod.clone(), &self.observed.latest) else {
            return;
        };
        let sandbox = observed.ready_sandboxes().next().map(|sandbox| sandbox.id.clone());
        let Some(sandbox) = sandbox.filter(|_| self.state.stage() == PodStage::Syncing) else {
            self.cgroup.state = CgroupState::UpToDate;
            self.cgroup.missing = None;
            return;
        };
        let with_numbers = !self.cgroup.are_numbers_known;
        let Some(state) = self.handles.cgroups.state(&pod, with_numbers).await else { return };
        let state = match state {
            CgroupState::Missing => self.explain_missing_cgroup(&pod, &sandbox).await,
            CgroupState::UpToDate | CgroupState::Changed => {
                self.cgroup.was_seen = true;
                self.cgroup.missing = None;
                state
            }
        };
        self.cgroup.state = match (state, self.cgroup.state) {
            // The settings were not read since.
            (CgroupState::UpToDate, CgroupState::Changed) if !with_numbers => CgroupState::Changed,
            (state, _) => state,
        };
        self.cgroup.are_numbers_known = true;
    }

    /// Missing only if the cgroup was removed; otherwise the pod goes on, and the node is not ready.
    async fn explain_missing_cgroup(&mut self, pod: &Pod, sandbox: &SandboxId) -> CgroupState {
        let Some(expected) = self.handles.cgroups.path(pod) else { return CgroupState::UpToDate };
        let recorded = if self.cgroup.was_seen { String::new() } else { self.recorded_cgroup(sandbox).await };
        let inputs = CgroupLossInputs {
            was_seen: self.cgroup.was_seen,
            recorded: &recorded,
            expected: &expected.path,
            others: self.cgroups_of_others().await,
        };
        match compute_cgroup_loss(inputs) {
            CgroupLoss::Removed => {
                self.cgroup.missing = None;
                tracing::warn!(pod = %self.pod, "Pod cgroup was removed externally, restarting the pod");
                CgroupState::Missing
            }
            CgroupLoss::Keep(why) => {
                self.report_kept(&why.to_string());
                self.alarm.no_later_than(self.handles.ctx.clock.mono() + RECHECK);
                CgroupState::UpToDate
            }
        }
    }

    /// Each reason is one event.
    fn report_kept(&mut self, why: &str) {
        let is_new = match &self.cgroup.missing {
            Some(missing) => missing.update(why),
            None => {
                self.cgroup.missing = Some(self.handles.cgroups.problems.keep(&self.pod, why));
                true
            }
        };
        if is_new {
            let message = format!("pod is not restarted although its cgroup is missing: {why}");
            self.handles.ctx.recorder.warning(&self.pod, None, "PodCgroupMissing", message);
        }
    }

    /// Where the runtime created the sandbox; empty if it does not report that now.
    async fn recorded_cgroup(&self, sandbox: &SandboxId) -> String {
        match self.handles.ctx.runtime.sandbox_info(sandbox).await {
            Ok(info) => source_in(&info).1,
            Err(error) => {
                tracing::debug!(pod = %self.pod, err = %error, "Failed to get the cgroup of the pod sandbox");
                String::new()
            }
        }
    }

    /// Whether other pods that may run have their cgroups. Only pods with a worker count: the runtime may run other pods, too.
    async fn cgroups_of_others(&self) -> OtherPods {
        let cache = &self.handles.cache;
        let Some(listed) = cache.presence() else { return OtherPods::Unknown };
        let mut others = cache.subscribed();
        others.remove(&self.pod.uid);
        others.retain(|uid| {
            listed.get(uid).is_some_and(|(_, presence)| match presence {
                RuntimePresence::MayRun => true,
                RuntimePresence::Dead => false,
            })
        });
        for uid in &others {
            if self.handles.cgroups.exists(uid).await {
                return OtherPods::SomeHaveCgroups;
            }
        }
        if others.is_empty() { OtherPods::None } else { OtherPods::NoneHasItsCgroup }
    }
}
