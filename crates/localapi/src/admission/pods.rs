//! New pods: the service account and the RuntimeClass must exist, and the token of the account is mounted.

use serde_json::{Value, json};

use super::{Context, priority};
use crate::object::{self, items, text};
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::Key;
use crate::taints;

/// Where the token, the authority's certificate and the namespace are mounted.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

pub(super) fn create(context: &Context<'_>, resource: &Resource, pod: &mut Value) -> Result<(), ApiError> {
    priority::set(context, resource, pod)?;
    raise_negative_grace_period(pod);
    if context.api.behaviour.service_accounts && pod.pointer(MIRROR).is_none() {
        set_service_account(context, resource, pod)?;
    }
    check_runtime_class(context, resource, pod)?;
    if let Some(node) = &context.api.behaviour.bind_to {
        bind(context, pod, node);
    }
    Ok(())
}

/// A negative period means one second.
fn raise_negative_grace_period(pod: &mut Value) {
    let seconds = pod.pointer_mut("/spec/terminationGracePeriodSeconds");
    if let Some(seconds) = seconds.filter(|seconds| seconds.as_i64().is_some_and(|seconds| seconds < 0)) {
        *seconds = json!(1);
    }
}

/// A pod of an unknown class would never start.
fn check_runtime_class(context: &Context<'_>, resource: &Resource, pod: &Value) -> Result<(), ApiError> {
    let class = text(pod, "/spec/runtimeClassName");
    if class.is_empty() || context.objects.get(&Key::new("runtimeclasses", "", class)).is_some() {
        return Ok(());
    }
    let why = format!("pod rejected: RuntimeClass {class:?} not found");
    Err(ApiError::forbidden_object(resource, object::name(pod), &why))
}

/// Pods with scheduling gates wait until those are gone, as they would for a scheduler, pods with ResourceClaims until these are
/// allocated, and those that the node does not take now until it does (`controllers::scheduling`).
fn bind(context: &Context<'_>, pod: &mut Value, node: &str) {
    let waits = ["/spec/schedulingGates", "/spec/resourceClaims"].iter().any(|at| !items(pod, at).is_empty());
    let object = context.objects.get(&Key::new("nodes", "", node));
    let is_refused = object.is_some_and(|object| taints::refusal(object, pod).is_some());
    if text(pod, "/spec/nodeName").is_empty() && !waits && !is_refused {
        object::map_at(pod, "spec").insert("nodeName".to_owned(), json!(node));
    }
}

fn set_service_account(context: &Context<'_>, resource: &Resource, pod: &mut Value) -> Result<(), ApiError> {
    let given = text(pod, "/spec/serviceAccountName");
    let account = if given.is_empty() { "default" } else { given }.to_owned();
    let (name, namespace) = (object::name(pod).to_owned(), object::namespace(pod).to_owned());
    let found = context.objects.get(&Key::new("serviceaccounts", &namespace, &account));
    let Some(found) = found else {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
        );
        return Err(ApiError::forbidden_object(resource, &name, &why));
    };
    let spec = object::map_at(pod, "spec");
    spec.insert("serviceAccountName".to_owned(), json!(account));
    spec.insert("serviceAccount".to_owned(), json!(account));
    let pull_secrets = items(found, "/imagePullSecrets");
    if !pull_secrets.is_empty() && spec.get("imagePullSecrets").is_none() {
        spec.insert("imagePullSecrets".to_owned(), json!(pull_secrets));
    }
    let account_default = found.get("automountServiceAccountToken").and_then(Value::as_bool);
    let pod_setting = spec.get("automountServiceAccountToken").and_then(Value::as_bool);
    if pod_setting.or(account_default).unwrap_or(true) {
        mount_token(pod, &format!("kube-api-access-{}", context.api.rng.suffix()));
    }
    Ok(())
}

/// Adds the volume with token, certificate and namespace, and mounts it in each container without a mount at that path.
fn mount_token(pod: &mut Value, volume: &str) {
    let mut used = false;
    for list in ["containers", "initContainers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        let containers = containers.map(Vec::as_mut_slice).unwrap_or_default();
        for container in containers {
            let is_mounted = |mount: &Value| text(mount, "/mountPath") == TOKEN_PATH;
            if items(container, "/volumeMounts").iter().any(is_mounted) || !container.is_object() {
                continue;
            }
            used = true;
            let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
            append(container, "volumeMounts", mount);
        }
    }
    if used {
        let volume = token_volume(volume);
        append(&mut pod["spec"], "volumes", volume);
    }
}

fn append(object: &mut Value, field: &str, item: Value) {
    match object[field].as_array_mut() {
        Some(list) => list.push(item),
        None => object[field] = json!([item]),
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    })
}
