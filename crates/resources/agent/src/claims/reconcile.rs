//! Unprepares the claims of pods that are gone: those that were deleted by force, or while the kubelet was down. Writes the state file
//! again if the last write failed, because a file that is out of date has references of pods that are gone.

use std::collections::BTreeSet;
use std::time::Duration;

use base_agent::cache::PodCache;
use base_agent::pods_view::PodsView;
use model::PodUid;
use tokio::sync::watch;

use super::Claims;

const PERIOD: Duration = Duration::from_secs(60);

/// What says whether a pod is gone.
#[derive(Clone, Debug)]
pub struct KnownPods {
    pub cache: PodCache,
    pub pods: PodsView,
    /// Every source of pods has reported.
    pub sources_ready: watch::Receiver<bool>,
}

impl KnownPods {
    /// Those that no source, no worker and no container runtime has; none as long as the runtime has not been seen.
    fn gone(&self, mut pods: BTreeSet<PodUid>) -> BTreeSet<PodUid> {
        let Some(in_runtime) = self.cache.presence() else { return BTreeSet::new() };
        let with_worker = self.cache.subscribed();
        pods.retain(|pod| {
            !self.pods.contains(pod) && !with_worker.contains(pod) && !in_runtime.contains_key(pod)
        });
        pods
    }
}

impl Claims {
    /// Never returns.
    pub(super) async fn reconcile(self, mut known: KnownPods) {
        if known.sources_ready.wait_for(|ready| *ready).await.is_err() {
            return;
        }
        let clock = self.shared.ctx.clock;
        let mut ended = self.shared.ended.subscribe();
        loop {
            // Without claims there is nothing to do until an operation on one ends.
            if self.read(|table| table.is_empty()) && self.is_saved().await {
                if ended.changed().await.is_err() {
                    return;
                }
                continue;
            }
            clock.sleep_until(clock.mono() + PERIOD).await;
            for pod in known.gone(self.read(|table| table.pods())) {
                self.unprepare_gone(&pod).await;
            }
            if !self.is_saved().await
                && let Err(error) = self.save("state").await
            {
                tracing::error!(err = %error, "Failed to write the state of ResourceClaims, retrying");
            }
        }
    }

    async fn unprepare_gone(&self, pod: &PodUid) {
        match self.unprepare(pod).await {
            Ok(()) => tracing::info!(podUID = %pod, "Unprepared ResourceClaims of a pod that is gone"),
            Err(error) => {
                tracing::error!(podUID = %pod, err = %error, "Failed to unprepare ResourceClaims of a pod that is gone, retrying");
            }
        }
    }
}
