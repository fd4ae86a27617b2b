//! The objects of the API that say how a driver is called: its CSIDriver, the VolumeAttachment of a volume, Secrets, and tokens of
//! the pod's service account.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_agent::attachments::{AttachError, AttachWait};
use api_agent::csi::CsiApi;
use api_agent::objects::PodObjects;
use base_core::service_account_token::TokenRequirement;
use model::csi::DriverSecrets;
use ports::Cluster;
use tokio_util::sync::CancellationToken;
use volumes_core::csi::paths::unique_name;
use volumes_core::csi::plan::{CsiPlan, SecretName};
use volumes_core::csi::requests::AudienceToken;
use volumes_core::csi::rules::DriverRules;

use super::text;

/// The lifetime of a token whose rule names none.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

/// What CSI volumes need of the API.
#[derive(Clone, Debug)]
pub struct CsiObjects {
    pub(crate) api: CsiApi,
    /// For Secrets.
    pub(crate) cluster: Arc<dyn Cluster>,
}

impl CsiObjects {
    /// What the driver asks for; the defaults if it has no CSIDriver object.
    pub(crate) async fn rules(&self, driver: &str) -> Result<DriverRules, String> {
        self.api.drivers.get(driver).await.map(|object| DriverRules::of(object.as_deref()))
    }

    /// Waits until the volume, which needs an attachment, is attached to this node. Returns what its attacher wants the driver to know
    /// here.
    ///
    /// # Errors
    /// The volume is not attached after a limited time, or cannot be attached now.
    pub(crate) async fn attached(
        &self,
        plan: &CsiPlan,
        attachment_name: String,
        terminating: &CancellationToken,
    ) -> Result<BTreeMap<String, String>, AttachError> {
        let volume_unique_name = unique_name(&plan.driver, &plan.handle);
        self.api.in_use.add(&volume_unique_name).map_err(AttachError::Refused)?;
        tokio::select! {
            () = terminating.cancelled() => return Err(AttachError::Terminating { volume: volume_unique_name }),
            () = self.api.in_use.reported(&volume_unique_name) => {}
        }
        let terminating = terminating.clone();
        self.api.attachments.attached(&AttachWait { volume_unique_name, attachment_name, terminating }).await
    }

    /// The values of a Secret; none if the volume names none.
    pub(crate) async fn secrets(&self, name: Option<&SecretName>) -> Result<DriverSecrets, String> {
        let Some(SecretName { namespace, name }) = name else { return Ok(DriverSecrets::default()) };
        let secret = self.cluster.secrets().get(namespace, name).await.map_err(|error| {
            text(&format!(
                "failed to find the secret {name} in the namespace {namespace} with error: {error}"
            ))
        })?;
        let data = secret.data.unwrap_or_default().into_iter();
        let plain = data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()));
        Ok(DriverSecrets(plain.collect()))
    }
}

/// The tokens that the driver wants with the volume.
pub(crate) async fn tokens(objects: &PodObjects, rules: &DriverRules) -> Result<Vec<AudienceToken>, String> {
    let mut tokens = Vec::with_capacity(rules.tokens.len());
    for rule in &rules.tokens {
        let requirement = TokenRequirement {
            audience: rule.audience.clone(),
            expiration_seconds: rule.expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS),
        };
        let issued = objects.issued_token(&requirement).await.map_err(|error| error.to_string())?;
        tokens.push(AudienceToken {
            audience: rule.audience.clone(),
            token: issued.token,
            expires_at: issued.expires_at,
        });
    }
    Ok(tokens)
}
