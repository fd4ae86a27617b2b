//! Expands volumes that have grown: calls what expands them and reports to their claims. What is done when is decided in
//! `volumes_core::csi::expansion`.

use async_trait::async_trait;
use base_agent::events::EventType;
use model::Amount;
use model::containers::spec_of;
use model::k8s::PersistentVolumeClaim;
use ports::Cluster;
use ports::cluster::Patch;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use volumes_core::csi::expansion::{
    AfterFailure, Expansion, FailureKind, Known, Outcome, Step, VolumeUse, compute_step,
};

use super::super::claims::BoundClaim;
use super::super::mount_context::MountContext;
use crate::metrics::VolumeMetrics;

/// What expands volumes of one type.
#[async_trait]
pub(crate) trait Expander: Send + Sync {
    fn known(&self, claim: &PersistentVolumeClaim) -> Known;
    fn change(&self, change: &dyn Fn(&mut Known));
    /// No other task works on the volume; `None` if the kubelet stops.
    async fn permit(&self) -> Option<OwnedSemaphorePermit>;
    async fn expand(&self, size: Amount, old_size: Amount) -> Result<(), Failure>;
}

/// A volume of a pod that may have to be expanded.
pub(super) struct Expandable<'a, E> {
    pub(super) mount_context: &'a MountContext<'a>,
    pub cluster: &'a dyn Cluster,
    pub(super) expander: E,
}

/// Why the volume was not expanded.
#[derive(Debug)]
pub(crate) struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

impl<E: Expander> Expandable<'_, E> {
    /// What is to be done. Reads nothing.
    fn step(&self, bound: &BoundClaim, is_mounting: bool) -> Step {
        let known = self.expander.known(&bound.claim);
        let how = VolumeUse { is_mounting, read_only: self.mount_context.plan.read_only };
        compute_step(&bound.claim, bound.capacity.as_ref(), known, how)
    }

    /// Expands a volume that is mounted already, if it has grown. A failure is an event, and takes nothing away from the pod.
    pub(super) async fn expand_in_use(&self) {
        let Some(bound) = self.mount_context.claim else { return };
        if self.step(bound, false) == Step::None {
            return;
        }
        let mount_context = self.mount_context;
        let Some(_permit) = self.expander.permit().await else { return };
        // Another pod's set-up may have expanded it meanwhile.
        let (began, step) = (mount_context.ctx.clock.mono(), self.step(bound, false));
        let expanded = self.carry_out(step, bound).await;
        let took = mount_context.ctx.clock.mono().saturating_since(began);
        let plugin = mount_context.plan.qualified_plugin_name();
        mount_context.ctx.metrics.get::<VolumeMetrics>().operated(
            "volume_fs_resize",
            &plugin,
            mount_context.plan.is_migrated(),
            expanded.is_ok(),
            took,
        );
        if let Err(why) = expanded {
            let name = &mount_context.plan.name;
            let message = format!("NodeExpandVolume.NodeExpandVolume failed for volume {name:?} : {why}");
            mount_context.ctx.recorder.warning(mount_context.identity(), None, "VolumeResizeFailed", message);
        }
    }

    /// Expands a volume that was published just now. The caller has the permit of the volume.
    ///
    /// # Errors
    /// It could not be expanded, and the pod must wait for it.
    pub(super) async fn expand_while_mounting(&self) -> Result<(), String> {
        match self.mount_context.claim {
            Some(bound) => self.carry_out(self.step(bound, true), bound).await,
            None => Ok(()),
        }
    }

    async fn carry_out(&self, step: Step, bound: &BoundClaim) -> Result<(), String> {
        match step {
            Step::None => Ok(()),
            Step::Done(size) => {
                self.expander.change(&|known| known.size = size);
                Ok(())
            }
            Step::ReadOnly(size) => {
                let name = &self.mount_context.plan.name;
                let message = format!(
                    "MountVolume.NodeExpandVolume failed for volume {name:?} requested read-only file system"
                );
                self.record(&bound.claim, EventType::Warning, "FileSystemResizeFailed", &message);
                self.expander.change(&|known| known.size = size);
                Ok(())
            }
            Step::Expand(expansion) => self.expand(&expansion, &bound.claim).await,
        }
    }

    async fn expand(&self, expansion: &Expansion, claim: &PersistentVolumeClaim) -> Result<(), String> {
        let marked;
        let claim = match expansion.begin_patch(claim) {
            Some(patch) => {
                marked = self.patch(claim, patch).await?;
                &marked
            }
            None => claim,
        };
        if let Err(failure) = self.call(expansion, claim).await {
            return self.handle_failure(expansion, claim, failure).await;
        }
        let (name, pod) = (&self.mount_context.plan.name, self.mount_context.pod.get());
        let node = spec_of(pod).node_name.as_deref().unwrap_or_default();
        let message = format!("MountVolume.NodeExpandVolume succeeded for volume {name:?} {node}");
        self.record(claim, EventType::Normal, "FileSystemResizeSuccessful", &message);
        if let Some(patch) = expansion.finished_patch(claim) {
            let patched = self.patch(claim, patch).await;
            patched
                .map_err(|error| format!("mountVolume.NodeExpandVolume update pvc status failed: {error}"))?;
        }
        self.expander.change(&|known| *known = Known { size: expansion.size, ..Known::default() });
        Ok(())
    }

    /// About the pod and the claim.
    fn record(&self, claim: &PersistentVolumeClaim, kind: EventType, reason: &'static str, message: &str) {
        let pod = self.mount_context.identity();
        self.mount_context.ctx.recorder.with_claim(pod, claim, kind, reason, message);
    }

    async fn handle_failure(
        &self,
        expansion: &Expansion,
        claim: &PersistentVolumeClaim,
        failure: Failure,
    ) -> Result<(), String> {
        let Failure { kind, message } = failure;
        let now = self.mount_context.ctx.clock.now().wall;
        let AfterFailure { patch, outcome } = expansion.after_failure(claim, kind, &message, now);
        if let Some(patch) = patch
            && let Err(err) = self.patch(claim, patch).await
        {
            let volume = &*self.mount_context.plan.name;
            tracing::error!(
                volumeName = volume,
                err,
                "MountVolume.NodeExpandVolume failed to mark node expansion as failed"
            );
        }
        match outcome {
            Outcome::Done => {
                self.expander.change(&|known| known.size = expansion.size);
                Ok(())
            }
            Outcome::RefusedInUse => {
                let volume = &*self.mount_context.plan.name;
                tracing::error!(volumeName = volume, err = message, "MountVolume.NodeExpandVolume failed");
                self.expander.change(&|known| {
                    (known.is_refused_in_use, known.has_failed) = (true, true);
                });
                Ok(())
            }
            Outcome::Failed { is_final } => {
                self.expander.change(&|known| known.has_failed |= is_final);
                Err(message)
            }
        }
    }

    async fn patch(
        &self,
        claim: &PersistentVolumeClaim,
        patch: Value,
    ) -> Result<PersistentVolumeClaim, String> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let patched = self.cluster.patch_claim_status(namespace, name, &Patch::Strategic(patch)).await;
        patched.map_err(|error| format!("patchPVCStatus failed to patch PVC {name:?}: {error}"))
    }

    async fn call(&self, expansion: &Expansion, claim: &PersistentVolumeClaim) -> Result<(), Failure> {
        let old_size = self.expander.known(claim).size;
        let terminating = &self.mount_context.terminating;
        tokio::select! {
            expanded = self.expander.expand(expansion.size, old_size) => expanded,
            () = terminating.cancelled() => {
                let message = "pod deleted while its volume was being expanded".to_owned();
                Err(Failure { kind: FailureKind::Transient, message })
            }
        }
    }
}
