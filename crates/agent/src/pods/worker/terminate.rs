//! Stops the containers and sandboxes of a pod that terminates.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::pods::termination::{GracePeriod, compute_kill_plan};
use model::k8s::Pod;
use model::{PodObservation, PodRef};
use resources_agent::claims::OperationError;
use resources_agent::metrics::ClaimMetrics;
use tracing::Instrument;

use super::{ActReport, PodWorker};
use crate::pods::handles::PodHandles;
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
            ActReport::Terminated { claims: unprepare_claims(&handles, &observed.pod).await }
        };
        self.act.start(pass.instrument(span));
    }
}

/// How long to wait for an observation that shows that nothing of the pod runs. Without one, the next pass tries.
const OBSERVATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Has drivers unprepare the claims of the pod once the runtime has shown that nothing of it runs. On failure the pod keeps them, and
/// stays terminating.
async fn unprepare_claims(handles: &PodHandles, pod: &PodRef) -> Result<(), OperationError> {
    let ctx = &handles.ctx;
    if !handles.resources.claims.are_used_by(&pod.uid) {
        ctx.metrics.get::<ClaimMetrics>().operation("UnprepareResources", false, Duration::ZERO);
        return Ok(());
    }
    let since = ctx.clock.mono();
    let mut observations = handles.cache.subscribe(&pod.uid);
    handles.pleg.inspect(pod);
    let is_stopped = async {
        let shown = observations.wait_for(|seen| seen.as_ref().is_some_and(|seen| seen.taken_at >= since));
        shown.await.is_ok_and(|seen| seen.as_ref().is_some_and(|seen| seen.is_stopped()))
    };
    let is_stopped = tokio::select! {
        is_stopped = is_stopped => is_stopped,
        () = ctx.clock.sleep_until(since + OBSERVATION_TIMEOUT) => false,
    };
    if !is_stopped {
        return Ok(());
    }
    let began = ctx.clock.mono();
    let unprepared = handles.resources.claims.unprepare(&pod.uid).await;
    let took = ctx.clock.mono().saturating_since(began);
    ctx.metrics.get::<ClaimMetrics>().operation("UnprepareResources", unprepared.is_err(), took);
    unprepared
}
