//! The cgroup of a pod that runs, as it was last seen: whether another program removed or changed it.
//!
//! Only looks, with each picture of the pod; what follows is decided with the rest ([`compute_pod_actions`]), and carried out
//! by a pass.
//!
//! [`compute_pod_actions`]: kubelet_core::pods::actions::compute_pod_actions

use kubelet_core::pods::stage::PodStage;
use model::cgroup::CgroupState;

use super::PodWorker;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CgroupWatch {
    pub(super) state: CgroupState,
    /// What is in its files was compared since the last resync; whether it is there is seen each time.
    pub(super) are_numbers_known: bool,
}

impl PodWorker {
    /// Before a pod has a sandbox, and once it is to end, its cgroup concerns only the pass.
    pub(super) async fn look_at_cgroup(&mut self) {
        let (Some(pod), Some(observed)) = (&self.desired.pod, &self.observed.latest) else { return };
        if self.state.stage() != PodStage::Syncing || observed.ready_sandboxes().next().is_none() {
            self.cgroup.state = CgroupState::AsItShouldBe;
            return;
        }
        let with_numbers = !self.cgroup.are_numbers_known;
        let Some(state) = self.handles.cgroups.state(pod, with_numbers).await else { return };
        self.cgroup.state = match (state, self.cgroup.state) {
            // The settings were not read since.
            (CgroupState::AsItShouldBe, CgroupState::Changed) if !with_numbers => CgroupState::Changed,
            (state, _) => state,
        };
        self.cgroup.are_numbers_known = true;
        if state == CgroupState::Missing {
            tracing::warn!(pod = %self.pod, "Pod cgroup was removed externally, restarting the pod");
        }
    }
}
