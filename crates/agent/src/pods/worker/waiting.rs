//! Why containers of the pod wait: what the status shows of them, and the event `BackOff` of those that a back-off holds.

use base_core::exit_signal::signal_of_exit_code;
use kubelet_core::pods::backoff::{BackOffNotice, compute_back_off_notice, crash_loop_message};
use kubelet_core::pods::plan::{PodPlan, WaitingReason};
use kubelet_core::pods::status::waiting_for_restart_of_all;
use kubelet_core::pods::waiting::{CRASH_LOOP, WaitingState};

use super::PodWorker;

impl PodWorker {
    /// Sets the waiting states of containers that the plan delays.
    pub(super) fn record_waiting(&mut self, plan: &PodPlan) {
        let now = self.handles.ctx.clock.mono();
        for waiting in &plan.waiting {
            let container = &*waiting.container;
            let message = match &waiting.reason {
                WaitingReason::CrashLoopBackOff { delay, .. } => {
                    crash_loop_message(*delay, container, &self.pod)
                }
                WaitingReason::RestartingAllContainers => {
                    self.memory.waiting.set(container, waiting_for_restart_of_all(), now);
                    continue;
                }
            };
            let period = self.handles.ctx.config().sync_frequency.as_std();
            match compute_back_off_notice(self.memory.waiting.last_report(container), &message, period, now) {
                BackOffNotice::ShowFailureUntil(until) => self.alarm.no_later_than(until),
                BackOffNotice::Report => {
                    let event = format!(
                        "Back-off restarting failed container {container} in pod {}_{}({})",
                        self.pod.name, self.pod.namespace, self.pod.uid
                    );
                    self.log_restart(container, &message);
                    self.handles.ctx.recorder.warning(&self.pod, Some(container), "BackOff", event);
                    let state = WaitingState { reason: CRASH_LOOP.to_owned(), message };
                    self.memory.waiting.set(container, state, now);
                    self.alarm.no_later_than(now + period + self.handles.ctx.rng.up_to(period / 2));
                }
                BackOffNotice::Nothing => {}
            }
        }
    }

    /// The event has the words of the Go kubelet; this line says why the container ended, and where its log is.
    fn log_restart(&self, container: &str, message: &str) {
        let Some(ended) = self.observed.latest.as_ref().and_then(|observed| observed.newest(container))
        else {
            return;
        };
        tracing::warn!(
            pod = %self.pod,
            containerName = container,
            exitCode = ended.exit_code,
            signal = signal_of_exit_code(ended.exit_code),
            reason = ended.reason,
            logPath = ended.log_path,
            "Container ended, it is restarted after a back-off: {message}"
        );
    }
}
