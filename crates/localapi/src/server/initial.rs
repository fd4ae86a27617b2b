//! The objects that exist before the first request: the namespaces with their default objects, the roles and bindings of
//! every cluster, the `kubernetes` Service, and the Secrets of bootstrap tokens.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::roles;
use crate::admission::services::API_ADDRESS;
use crate::api::Api;
use crate::controllers::volumes;
use crate::registry::namespaces::{INITIAL, ensure, populate};
use crate::status::ApiError;
use crate::store::{Key, NotStored, Write};
use crate::validation::SYSTEM_CLASSES;

/// The port of the Service in a cluster.
const HTTPS: u16 = 443;
const SYSTEM_CLASS: &str = "Used for pods without which the node or the cluster does not work.";

pub(super) fn create(api: &Api, listen: SocketAddr, bootstrap_secrets: Vec<Value>) -> Result<(), ApiError> {
    for name in INITIAL {
        ensure(api, "namespaces", "", json!({"metadata": {"name": name}}))?;
    }
    for name in api.store.list("namespaces", None).objects.iter().map(|(key, _)| key.name.clone()) {
        populate(api, &name)?;
    }
    for (name, value) in SYSTEM_CLASSES {
        let class = json!({"metadata": {"name": name}, "value": value, "description": SYSTEM_CLASS});
        ensure(api, "priorityclasses", "", class)?;
    }
    if api.behaviour.local_volumes.is_some() {
        ensure(api, "storageclasses", "", volumes::class())?;
    }
    let (address, port) = match api.behaviour.refuse_services {
        true => (listen.ip(), listen.port()),
        false => (IpAddr::V4(API_ADDRESS), HTTPS),
    };
    roles::reconcile(api)?;
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "ports": [{"name": "https", "port": port, "protocol": "TCP", "targetPort": listen.port()}],
            "type": "ClusterIP",
        },
    });
    let spec = service["spec"].clone();
    ensure(api, "services", "default", service)?;
    keep_address(api, &spec)?;
    for secret in bootstrap_secrets {
        ensure(api, "secrets", "kube-system", secret)?;
    }
    Ok(())
}

/// A database may be from a server that listened elsewhere.
fn keep_address(api: &Api, spec: &Value) -> Result<(), NotStored> {
    api.store.write(&Key::new("services", "default", "kubernetes"), |_, current| {
        let mut service = match current {
            Some(current)
                if current["spec"]["clusterIP"] != spec["clusterIP"]
                    || current["spec"]["ports"] != spec["ports"] =>
            {
                (**current).clone()
            }
            Some(_) | None => return Ok::<_, NotStored>(Write::Keep),
        };
        for field in ["clusterIP", "clusterIPs", "ports"] {
            service["spec"][field] = spec[field].clone();
        }
        Ok(Write::Put(service))
    })?;
    Ok(())
}
