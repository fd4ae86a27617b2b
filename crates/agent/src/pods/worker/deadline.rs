//! The deadline of a pod (`activeDeadlineSeconds`): when it is noticed, and how often that is reported.

use base_core::pod_stage::PodStage;
use kubelet_core::pods::deadline;
use kubelet_core::pods::worker::{TerminationCause, WorkerEvent};

use super::{PodWorker, status};

impl PodWorker {
    /// Ends the pod when its deadline has passed. A sync that is under way ends first, as in the Go kubelet: what it starts is
    /// stopped in an orderly way, while a runtime whose call is cancelled half-way leaves a container that failed to start.
    pub(super) fn check_deadline(&mut self) {
        let Some(deadline) = self.deadline() else { return };
        let now = self.handles.ctx.clock.now();
        if deadline > now.wall {
            return self.alarm.no_later_than(now.mono_at(deadline));
        }
        let is_syncing = self.state.stage() == PodStage::Syncing && self.act.is_running();
        if self.reported.terminal.is_none() && !is_syncing {
            self.reported.terminal = Some(status::deadline_exceeded());
            self.report_deadline();
            self.feed(WorkerEvent::Kill { cause: TerminationCause::DeadlineExceeded, grace_override: None });
        }
    }

    /// The event of a pod that ends for its deadline. The Go kubelet records it with each status that it generates: when it
    /// notices the deadline, before and after it stops the containers, and for the last status.
    pub(super) fn report_deadline(&self) {
        if self.reported.terminal.as_ref().is_some_and(|why| why.reason == deadline::REASON) {
            self.handles.ctx.recorder.normal(&self.pod, None, deadline::REASON, deadline::MESSAGE);
        }
    }
}
