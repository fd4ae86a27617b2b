//! What is there before anybody asks: the namespaces, the `kubernetes` Service, the Secrets of bootstrap tokens; and in
//! every namespace what controllers of a real cluster would put there.

use http::StatusCode;
use serde_json::{Value, json};

use crate::admission::services::API_ADDRESS;
use crate::api::Api;
use crate::auth::tokens::bootstrap_secret;
use crate::auth::{MASTERS, User};
use crate::http::store_new;
use crate::namespaces::INITIAL;
use crate::resources;
use crate::running::StartError;
use crate::status::ApiError;

pub(crate) fn create(api: &Api, port: u16, bootstrap_tokens: &[String]) -> Result<(), StartError> {
    for name in INITIAL {
        put(api, "namespaces", "", json!({"metadata": {"name": name}})).map_err(failed)?;
    }
    for name in api.store.list("namespaces", None).objects.iter().map(|(key, _)| key.name.clone()) {
        furnish(api, &name).map_err(failed)?;
    }
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": API_ADDRESS.to_string(),
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "type": "ClusterIP",
        },
    });
    put(api, "services", "default", service).map_err(failed)?;
    for token in bootstrap_tokens {
        let secret = bootstrap_secret(token).ok_or_else(|| StartError::BootstrapToken(token.clone()))?;
        put(api, "secrets", "kube-system", secret).map_err(failed)?;
    }
    Ok(())
}

fn failed(error: ApiError) -> StartError {
    StartError::Initial(error.message)
}

/// Puts the default ServiceAccount and the authority's certificate into a namespace.
pub(crate) fn furnish(api: &Api, namespace: &str) -> Result<(), ApiError> {
    if !api.behaviour.service_accounts {
        return Ok(());
    }
    put(api, "serviceaccounts", namespace, json!({"metadata": {"name": "default"}}))?;
    let authority = json!({
        "metadata": {"name": "kube-root-ca.crt"},
        "data": {"ca.crt": api.authority.pem().certificate},
    });
    put(api, "configmaps", namespace, authority)
}

/// Stores an object unless it is there already.
fn put(api: &Api, resource: &str, namespace: &str, mut object: Value) -> Result<(), ApiError> {
    let resource = resources::stored(resource).ok_or_else(ApiError::no_such_path)?;
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    let server = User::new("system:apiserver", [MASTERS.to_owned()]);
    match store_new(api, &server, resource, namespace, object, false) {
        Err(error) if error.code == StatusCode::CONFLICT => Ok(()),
        // A namespace on its way out gets nothing new.
        Err(error) if error.code == StatusCode::FORBIDDEN => Ok(()),
        done => done.map(drop),
    }
}
