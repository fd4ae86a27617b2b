//! Why containers of the pod wait: what the status shows of them, and the event `BackOff` of those that a back-off holds.

use std::collections::BTreeMap;

use kubelet_core::pods::backoff::{BackOffNotice, compute_back_off_notice, crash_loop_message};
use kubelet_core::pods::plan::{PodPlan, WaitingReason};
use kubelet_core::pods::status::{WaitingState, waiting_for_restart_of_all};
use model::MonoTime;

use super::PodWorker;
use crate::pods::pass::Waiting;

const CRASH_LOOP: &str = "CrashLoopBackOff";

/// The waiting states of the pod's containers, by name.
#[derive(Debug, Default)]
pub(super) struct WaitingContainers {
    states: BTreeMap<String, WaitingState>,
    /// When the state was set, or the event of its back-off was recorded last.
    reported_at: BTreeMap<String, MonoTime>,
}

impl WaitingContainers {
    pub(super) const fn states(&self) -> &BTreeMap<String, WaitingState> {
        &self.states
    }

    fn set(&mut self, container: &str, state: WaitingState, now: MonoTime) {
        self.states.insert(container.to_owned(), state);
        self.reported_at.insert(container.to_owned(), now);
    }

    pub(super) fn start_failed(&mut self, container: &str, why: Waiting, now: MonoTime) {
        self.set(container, WaitingState { reason: why.reason, message: why.message }, now);
    }

    pub(super) fn started(&mut self, container: &str) {
        self.states.remove(container);
        self.reported_at.remove(container);
    }

    /// The message of the container's back-off, if it is in one, and when that was reported.
    fn shown(&self, container: &str) -> Option<(Option<&str>, MonoTime)> {
        let state = self.states.get(container)?;
        let message = (state.reason == CRASH_LOOP).then_some(state.message.as_str());
        Some((message, *self.reported_at.get(container)?))
    }
}

impl PodWorker {
    /// Containers that are held back say so in their state.
    pub(super) fn note_waiting(&mut self, plan: &PodPlan) {
        let now = self.handles.ctx.clock.mono();
        for waiting in &plan.waiting {
            let container = &*waiting.container;
            let message = match &waiting.reason {
                WaitingReason::CrashLoopBackOff { delay, .. } => {
                    crash_loop_message(*delay, container, &self.pod)
                }
                WaitingReason::RestartingAllContainers => {
                    self.waiting.set(container, waiting_for_restart_of_all(), now);
                    continue;
                }
            };
            let period = self.handles.ctx.config().sync_frequency.as_std();
            match compute_back_off_notice(self.waiting.shown(container), &message, period, now) {
                BackOffNotice::ShowFailureUntil(until) => self.wake_no_later_than(until),
                BackOffNotice::Report => {
                    let event = format!(
                        "Back-off restarting failed container {container} in pod {}_{}({})",
                        self.pod.name, self.pod.namespace, self.pod.uid
                    );
                    self.handles.ctx.recorder.warning(&self.pod, Some(container), "BackOff", event);
                    let state = WaitingState { reason: CRASH_LOOP.to_owned(), message };
                    self.waiting.set(container, state, now);
                    self.wake_no_later_than(now + period + self.handles.ctx.rng.up_to(period / 2));
                }
                BackOffNotice::Nothing => {}
            }
        }
    }
}
