//! The cgroup of a pod that runs, as it was last seen: whether another program removed or changed it.
//!
//! Reads the cgroup with each observation of the pod; the plan ([`compute_pod_actions`]) decides what follows, and a pass
//! executes it.
//!
//! [`compute_pod_actions`]: kubelet_core::pods::actions::compute_pod_actions

use kubelet_core::pods::stage::PodStage;
use model::cgroup::CgroupState;

use super::PodWorker;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CgroupWatch {
    pub(super) state: CgroupState,
    /// Its settings were compared since the last resync; its existence is checked each time.
    pub(super) are_numbers_known: bool,
}

impl PodWorker {
    /// Before a pod has a sandbox, and once it is to end, its cgroup concerns only the pass.
    pub(super) async fn inspect_cgroup(&mut self) {
        let (Some(pod), Some(observed)) = (self.desired.pod.kept(), &self.observed.latest) else { return };
        if self.state.stage() != PodStage::Syncing || observed.ready_sandboxes().next().is_none() {
            self.cgroup.state = CgroupState::UpToDate;
            return;
        }
        let with_numbers = !self.cgroup.are_numbers_known;
        let Some(state) = self.handles.cgroups.state(pod, with_numbers).await else { return };
        self.cgroup.state = match (state, self.cgroup.state) {
            // The settings were not read since.
            (CgroupState::UpToDate, CgroupState::Changed) if !with_numbers => CgroupState::Changed,
            (state, _) => state,
        };
        self.cgroup.are_numbers_known = true;
        if state == CgroupState::Missing {
            tracing::warn!(pod = %self.pod, "Pod cgroup was removed externally, restarting the pod");
        }
    }
}
