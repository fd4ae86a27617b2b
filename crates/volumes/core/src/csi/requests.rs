//! The requests to a driver, from a volume, its pod and what the driver asks for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use model::containers::spec_of;
use model::csi::{
    AccessMode, AccessType, DriverSecrets, NodeCapabilities, PublishRequest, StageRequest, VolumeCapability,
    VolumeContext,
};
use model::k8s::Pod;

use super::Lifecycle;
use super::plan::CsiPlan;
use super::rules::DriverRules;

/// The access mode of a volume that names none.
const DEFAULT_ACCESS_MODE: &str = "ReadWriteOnce";
/// Of the pod's tokens in a volume's context or secrets.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// A token of the pod's service account, for one audience.
#[derive(Clone, PartialEq, Eq)]
pub struct AudienceToken {
    pub audience: String,
    pub token: String,
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for AudienceToken {
    /// Without the token: this ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AudienceToken").field("audience", &self.audience).finish_non_exhaustive()
    }
}

/// What both requests need.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    pub plan: &'a CsiPlan,
    pub capabilities: NodeCapabilities,
    /// `attachmentMetadata` of the VolumeAttachment; empty if the volume is not attached.
    pub publish_context: &'a BTreeMap<String, String>,
    /// The pod's `fsGroup`.
    pub group: Option<u32>,
    /// Given to the driver as a mount option, if it can mount with one.
    pub selinux_context: Option<&'a str>,
}

/// What only publishing needs.
#[derive(Clone, Copy, Debug)]
pub struct PublishFacts<'a> {
    pub pod: &'a Pod,
    pub rules: &'a DriverRules,
    pub read_only: bool,
    pub tokens: &'a [AudienceToken],
}

/// The access mode as the driver knows it. Only some drivers distinguish several writers on one node from one.
#[must_use]
pub fn access_mode(access_modes: &[String], distinguishes_writers: bool) -> AccessMode {
    let mode = access_modes.first().map_or(DEFAULT_ACCESS_MODE, String::as_str);
    match (mode, distinguishes_writers) {
        ("ReadWriteOnce" | "ReadWriteOncePod", false) => AccessMode::SingleNodeWriter,
        ("ReadWriteOnce", true) => AccessMode::SingleNodeMultiWriter,
        ("ReadWriteOncePod", true) => AccessMode::SingleNodeSingleWriter,
        ("ReadOnlyMany", _) => AccessMode::MultiNodeReaderOnly,
        ("ReadWriteMany", _) => AccessMode::MultiNodeMultiWriter,
        _ => AccessMode::Unknown,
    }
}

/// What the volume is to be able to do.
#[must_use]
pub fn capability(facts: &CallFacts<'_>) -> VolumeCapability {
    let CallFacts { plan, capabilities, group, .. } = *facts;
    let mode = access_mode(&plan.access_modes, capabilities.single_node_multi_writer);
    let access_type = match plan.is_device {
        true => AccessType::Block,
        false => AccessType::Mount {
            fs_type: plan.fs_type.clone(),
            mount_flags: mount_flags(&plan.mount_options, facts.selinux_context),
            volume_mount_group: match group.filter(|_| capabilities.volume_mount_group) {
                Some(group) => group.to_string(),
                None => String::new(),
            },
        },
    };
    VolumeCapability { access_type, access_mode: mode }
}

fn mount_flags(options: &[String], selinux_context: Option<&str>) -> Vec<String> {
    let context = selinux_context.map(|context| format!("context=\"{context}\""));
    options.iter().cloned().chain(context).collect()
}

/// `NodeStageVolume`.
#[must_use]
pub fn stage_request(facts: &CallFacts<'_>, target: PathBuf, secrets: DriverSecrets) -> StageRequest {
    StageRequest {
        volume_id: facts.plan.handle.clone(),
        publish_context: facts.publish_context.clone(),
        staging_target_path: target,
        capability: capability(facts),
        secrets,
        volume_context: facts.plan.attributes.clone(),
    }
}

/// `NodePublishVolume`.
#[must_use]
pub fn publish_request(
    facts: &CallFacts<'_>,
    publish: &PublishFacts<'_>,
    staging: Option<PathBuf>,
    target: PathBuf,
    mut secrets: DriverSecrets,
) -> PublishRequest {
    let mut context = facts.plan.attributes.clone();
    if publish.rules.pod_info_on_mount {
        context.extend(pod_info(publish.pod, facts.plan.lifecycle));
    }
    if !publish.tokens.is_empty() {
        let tokens = (TOKENS.to_owned(), tokens_json(publish.tokens));
        match publish.rules.tokens_in_secrets {
            true => secrets.0.extend([tokens]),
            false => context.extend([tokens]),
        }
    }
    PublishRequest {
        volume_id: facts.plan.handle.clone(),
        publish_context: facts.publish_context.clone(),
        staging_target_path: staging,
        target_path: target,
        capability: capability(facts),
        read_only: publish.read_only,
        secrets,
        volume_context: VolumeContext(context),
    }
}

/// What a driver with `podInfoOnMount` is to know about the pod.
fn pod_info(pod: &Pod, lifecycle: Lifecycle) -> [(String, String); 5] {
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let is_ephemeral = lifecycle == Lifecycle::Ephemeral;
    [
        ("pod.name", text(pod.metadata.name.as_ref())),
        ("pod.namespace", text(pod.metadata.namespace.as_ref())),
        ("pod.uid", text(pod.metadata.uid.as_ref())),
        ("serviceAccount.name", text(spec_of(pod).service_account_name.as_ref())),
        ("ephemeral", is_ephemeral.to_string()),
    ]
    .map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value))
}

/// The tokens by audience, each with the fields of a TokenRequest's status in the API's order.
fn tokens_json(tokens: &[AudienceToken]) -> String {
    let text = |value: &str| serde_json::Value::from(value).to_string();
    let by_audience: BTreeMap<&str, &AudienceToken> =
        tokens.iter().map(|token| (&*token.audience, token)).collect();
    let entries: Vec<String> = by_audience
        .into_iter()
        .map(|(audience, token)| {
            let expires_at = token.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            format!(
                "{}:{{\"token\":{},\"expirationTimestamp\":{}}}",
                text(audience),
                text(&token.token),
                text(&expires_at)
            )
        })
        .collect();
    format!("{{{}}}", entries.join(","))
}

#[cfg(test)]
mod tests;
