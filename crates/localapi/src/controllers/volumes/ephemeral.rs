//! Claims of pods themselves: a generic ephemeral volume has a claim that is made for the pod and goes with it.

use serde_json::{Value, json};

use super::super::record;
use super::CLAIMS;
use crate::api::Api;
use crate::object::{self, items, text};
use crate::registry::namespaces::ensure;
use crate::store::{Key, NotStored};

/// The claim of an ephemeral volume.
pub(super) fn claim_name(pod: &Value, volume: &Value) -> String {
    format!("{}-{}", object::name(pod), text(volume, "/name"))
}

pub(super) fn is_used(pod: &Value) -> bool {
    items(pod, "/spec/volumes").iter().any(|volume| volume.get("ephemeral").is_some())
}

/// The claims that a pod needs.
pub(super) fn claims(pod: &Value) -> Vec<Value> {
    let owner = object::pod_as_owner(pod);
    let volumes = items(pod, "/spec/volumes").iter();
    let claim = |volume: &Value| {
        let template = volume.pointer("/ephemeral/volumeClaimTemplate")?;
        let mut metadata =
            template.get("metadata").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        metadata["name"] = json!(claim_name(pod, volume));
        metadata["ownerReferences"] = json!([owner]);
        Some(json!({"metadata": metadata, "spec": template.get("spec")}))
    };
    volumes.filter_map(claim).collect()
}

pub(super) fn create_claims(api: &Api, key: &Key) -> Result<(), NotStored> {
    let Some(pod) = api.store.get(key).filter(|pod| !object::is_terminating(pod)) else { return Ok(()) };
    for claim in claims(&pod) {
        if let Err(error) = ensure(api, CLAIMS, &key.namespace, claim) {
            record(api, &pod, "Warning", "FailedCreate", &format!("failed to create a claim: {error}"));
        }
    }
    Ok(())
}
