//! The objects that exist before the first request: the namespaces with their default objects, the `kubernetes` Service,
//! and the Secrets of bootstrap tokens.

use serde_json::{Value, json};

use crate::admission::services::API_ADDRESS;
use crate::api::Api;
use crate::registry::namespaces::{INITIAL, ensure, populate};
use crate::status::ApiError;

pub(super) fn create(api: &Api, port: u16, bootstrap_secrets: Vec<Value>) -> Result<(), ApiError> {
    for name in INITIAL {
        ensure(api, "namespaces", "", json!({"metadata": {"name": name}}))?;
    }
    for name in api.store.list("namespaces", None).objects.iter().map(|(key, _)| key.name.clone()) {
        populate(api, &name)?;
    }
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": API_ADDRESS.to_string(),
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "type": "ClusterIP",
        },
    });
    ensure(api, "services", "default", service)?;
    for secret in bootstrap_secrets {
        ensure(api, "secrets", "kube-system", secret)?;
    }
    Ok(())
}
