//! Expands volumes of CSI drivers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use model::Amount;
use model::csi::ExpandRequest;
use model::k8s::PersistentVolumeClaim;
use ports::plugins::PluginError;
use tokio::sync::OwnedSemaphorePermit;
use volumes_core::csi::expansion::{FailureKind, Known, failure_kind};
use volumes_core::csi::plan::CsiPlan;
use volumes_core::csi::requests::{CallFacts, capability};
use volumes_core::csi::staging::StagedVolume;

use super::super::csi::{CsiObjects, staging_path};
use super::super::mount_context::MountContext;
use super::expansion::{Expander, Failure};

/// A volume of a driver.
#[derive(Clone, Copy)]
pub(super) struct CsiExpander<'a> {
    pub(super) mount_context: &'a MountContext<'a>,
    pub objects: &'a CsiObjects,
    pub plan: &'a CsiPlan,
    pub volume: &'a StagedVolume,
    /// Where it is published.
    pub target: &'a Path,
}

#[async_trait]
impl Expander for CsiExpander<'_> {
    fn known(&self, claim: &PersistentVolumeClaim) -> Known {
        self.mount_context.shared.csi.expansions.known(self.volume, claim)
    }

    fn change(&self, change: &dyn Fn(&mut Known)) {
        self.mount_context.shared.csi.expansions.change(self.volume, change);
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.mount_context.shared.csi.staged.acquire(self.volume).await.ok()
    }

    async fn expand(&self, size: Amount, _old_size: Amount) -> Result<(), Failure> {
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
            required_bytes: size.units(),
            staging_target_path: self.staging(capabilities.stage_unstage_volume),
            capability: capability(&facts),
            secrets,
        };
        let expanded = driver.calls.expand(&request).await;
        expanded.map(|_| ()).map_err(|error| failed(&error))
    }
}

impl CsiExpander<'_> {
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
