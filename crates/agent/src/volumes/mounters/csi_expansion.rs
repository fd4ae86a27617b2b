//! Expands volumes of CSI drivers that have grown: calls their drivers and reports to their claims. What is done when is decided in
//! `kubelet_core::volumes::csi::expansion`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kubelet_core::volumes::csi::expansion::{
    AfterFailure, Expansion, FailureKind, Known, Step, Then, VolumeUse, compute_step, failure_kind,
};
use kubelet_core::volumes::csi::plan::CsiPlan;
use kubelet_core::volumes::csi::requests::{CallFacts, capability};
use kubelet_core::volumes::csi::staging::StagedVolume;
use model::containers::spec_of;
use model::csi::ExpandRequest;
use model::k8s::PersistentVolumeClaim;
use ports::cluster::Patch;
use ports::plugins::PluginError;
use serde_json::Value;

use super::super::claims::BoundClaim;
use super::super::csi::{CsiObjects, Expansions, staging_path};
use super::super::mount_context::MountContext;
use crate::events::EventType;

/// A volume of a pod that may have to be expanded.
#[derive(Clone, Copy)]
pub(super) struct Expandable<'a> {
    pub(super) mount_context: &'a MountContext<'a>,
    pub(super) objects: &'a CsiObjects,
    pub(super) plan: &'a CsiPlan,
    pub(super) volume: &'a StagedVolume,
    /// Where it is published.
    pub(super) target: &'a Path,
}

/// Why the driver did not expand the volume.
struct Failure {
    kind: FailureKind,
    message: String,
}

impl Expandable<'_> {
    /// What is to be done. Reads nothing.
    fn step(&self, bound: &BoundClaim, is_mounting: bool) -> Step {
        let known = self.expansions().known(self.volume, &bound.claim);
        let how = VolumeUse { is_mounting, read_only: self.mount_context.plan.read_only };
        compute_step(&bound.claim, bound.capacity.as_ref(), known, how)
    }

    fn expansions(&self) -> &Expansions {
        &self.mount_context.shared.csi.expansions
    }

    /// Expands a volume that is mounted already, if it has grown. A failure is an event, and takes nothing away from the pod.
    pub(super) async fn expand_in_use(&self) {
        let Some(bound) = self.mount_context.claim else { return };
        if self.step(bound, false) == Step::None {
            return;
        }
        let mount_context = self.mount_context;
        let Ok(_permit) = mount_context.shared.csi.staged.acquire(self.volume).await else { return };
        // Another pod's set-up may have expanded it meanwhile.
        let (began, step) = (mount_context.ctx.clock.mono(), self.step(bound, false));
        let expanded = self.carry_out(step, bound).await;
        let took = mount_context.ctx.clock.mono().saturating_since(began);
        let plugin = mount_context.plan.qualified_plugin_name();
        mount_context.ctx.metrics.volumes.operated(
            "volume_fs_resize",
            (&plugin, mount_context.plan.is_migrated()),
            expanded.is_ok(),
            took,
        );
        if let Err(why) = expanded {
            let name = &mount_context.plan.name;
            let message = format!("NodeExpandVolume.NodeExpandVolume failed for volume {name:?} : {why}");
            mount_context.ctx.recorder.warning(
                &mount_context.identity(),
                None,
                "VolumeResizeFailed",
                message,
            );
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
                self.expansions().change(self.volume, |known| known.size = size);
                Ok(())
            }
            Step::ReadOnly(size) => {
                let name = &self.mount_context.plan.name;
                let message = format!(
                    "MountVolume.NodeExpandVolume failed for volume {name:?} requested read-only file system"
                );
                self.record(&bound.claim, EventType::Warning, "FileSystemResizeFailed", &message);
                self.expansions().change(self.volume, |known| known.size = size);
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
        if let Err(failure) = self.call(expansion).await {
            return self.handle_failure(expansion, claim, failure).await;
        }
        let (name, pod) = (&self.mount_context.plan.name, self.mount_context.pod);
        let node = spec_of(pod).node_name.as_deref().unwrap_or_default();
        let message = format!("MountVolume.NodeExpandVolume succeeded for volume {name:?} {node}");
        self.record(claim, EventType::Normal, "FileSystemResizeSuccessful", &message);
        if let Some(patch) = expansion.finished_patch(claim) {
            let patched = self.patch(claim, patch).await;
            patched
                .map_err(|error| format!("mountVolume.NodeExpandVolume update pvc status failed: {error}"))?;
        }
        self.expansions()
            .change(self.volume, |known| *known = Known { size: expansion.size, ..Known::default() });
        Ok(())
    }

    /// About the pod and the claim.
    fn record(&self, claim: &PersistentVolumeClaim, kind: EventType, reason: &'static str, message: &str) {
        let pod = self.mount_context.identity();
        self.mount_context.ctx.recorder.with_claim(&pod, claim, kind, reason, message);
    }

    async fn handle_failure(
        &self,
        expansion: &Expansion,
        claim: &PersistentVolumeClaim,
        failure: Failure,
    ) -> Result<(), String> {
        let Failure { kind, message } = failure;
        let now = self.mount_context.ctx.clock.now().wall;
        let AfterFailure { patch, then } = expansion.after_failure(claim, (kind, &message), now);
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
        match then {
            Then::Done => {
                self.expansions().change(self.volume, |known| known.size = expansion.size);
                Ok(())
            }
            Then::RefusedInUse => {
                let volume = &*self.mount_context.plan.name;
                tracing::error!(volumeName = volume, err = message, "MountVolume.NodeExpandVolume failed");
                self.expansions().change(self.volume, |known| {
                    (known.is_refused_in_use, known.has_failed) = (true, true);
                });
                Ok(())
            }
            Then::Failed { is_final } => {
                self.expansions().change(self.volume, |known| known.has_failed |= is_final);
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
        let patched =
            self.objects.cluster.patch_claim_status(namespace, name, &Patch::Strategic(patch)).await;
        patched.map_err(|error| format!("patchPVCStatus failed to patch PVC {name:?}: {error}"))
    }

    async fn call(&self, expansion: &Expansion) -> Result<(), Failure> {
        let CsiPlan { driver: name, expand_secret, .. } = self.plan;
        let csi = &self.mount_context.shared.csi;
        let driver = csi.drivers.get(name);
        let driver = driver.map_err(|message| Failure { kind: FailureKind::Transient, message })?;
        let driver = driver.for_volume(self.plan);
        let capabilities = driver.capabilities().await.map_err(|error| {
            let what = "Expander.NodeExpand failed to check if node supports expansion ";
            Failure { kind: failure_kind(None, error.is_final()), message: format!("{what}: {error}") }
        })?;
        if !capabilities.expand_volume {
            let message = format!("NodeExpand is not supported by the CSI driver {name}");
            return Err(Failure { kind: FailureKind::Unsupported, message });
        }
        let secrets = self.objects.secrets(expand_secret.as_ref()).await.map_err(|error| {
            let (of, secret) =
                expand_secret.as_ref().map(|of| (&*of.namespace, &*of.name)).unwrap_or_default();
            let message =
                format!("expander.NodeExpand failed to get NodeExpandSecretRef {of}/{secret}: {error}");
            Failure { kind: FailureKind::Final, message }
        })?;
        let publish_context = BTreeMap::new();
        let facts = CallFacts {
            plan: self.plan,
            capabilities,
            publish_context: &publish_context,
            group: None,
            selinux_context: None,
        };
        let request = ExpandRequest {
            volume_id: self.plan.handle.clone(),
            volume_path: self.target.to_owned(),
            required_bytes: expansion.size.units(),
            staging_target_path: self.staging(capabilities.stage_unstage_volume),
            capability: capability(&facts),
            secrets,
        };
        let leaving = &self.mount_context.leaving;
        let expanded = tokio::select! {
            expanded = driver.calls.expand(&request) => expanded,
            () = leaving.cancelled() => {
                let message = "pod deleted while its volume was being expanded".to_owned();
                return Err(Failure { kind: FailureKind::Transient, message });
            }
        };
        expanded.map(|_| ()).map_err(|error| failed(&error))
    }

    /// Where the driver has staged it, if it stages volumes.
    fn staging(&self, stages: bool) -> Option<PathBuf> {
        stages.then(|| staging_path(self.mount_context.ctx, self.volume))
    }
}

fn failed(error: &PluginError) -> Failure {
    let code = match error {
        PluginError::Failed { code, .. } => Some(&**code),
        PluginError::TimedOut { .. }
        | PluginError::Unreachable { .. }
        | PluginError::Malformed(_)
        | PluginError::Listen { .. } => None,
    };
    let kind = failure_kind(code, error.is_final());
    let colon = if kind == FailureKind::Infeasible { "" } else { ": " };
    Failure { kind, message: format!("Expander.NodeExpand failed to expand the volume {colon}{error}") }
}
