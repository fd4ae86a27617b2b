//! Stops the containers and sandboxes of a pod that terminates.

use std::sync::Arc;

use kubelet_core::pods::termination::{GracePeriod, compute_kill_plan};
use model::PodObservation;
use model::k8s::Pod;
use tracing::Instrument;

use super::{ActReport, PodWorker};
use crate::pods::pass::kill::{KillTarget, kill_in_turns};

impl PodWorker {
    /// Starts the act that stops the containers and then the sandboxes.
    pub(super) fn terminate(
        &mut self,
        pod: Option<Arc<Pod>>,
        observed: Arc<PodObservation>,
        grace: GracePeriod,
    ) {
        let (handles, kills) = (self.handles.clone(), self.kills.clone());
        let (name, uid) = (&self.pod, self.pod.uid.as_str());
        let span =
            tracing::info_span!(target: "trace", "syncTerminatingPod", k8s.pod = %name, k8s.pod.uid = uid);
        let pass = async move {
            let plan = compute_kill_plan(pod.as_deref(), &observed, grace);
            let target = KillTarget {
                pod: &observed.pod,
                spec: pod.as_deref(),
                observed: &observed,
                progress: &kills,
            };
            kill_in_turns(&handles, target, &plan.kills).await;
            for sandbox in &plan.stop {
                match handles.ctx.runtime.stop_sandbox(sandbox).await {
                    Ok(()) => {}
                    Err(error) if error.is_not_found() => {}
                    Err(error) => {
                        let message = format!("error killing pod: failed to \"KillPodSandbox\": {error}");
                        handles.ctx.recorder.warning(&observed.pod, None, "FailedKillPod", message);
                    }
                }
            }
            ActReport::Terminated
        };
        self.act.start(pass.instrument(span));
    }
}
