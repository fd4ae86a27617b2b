//! Defaults of all kinds except pods.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Tree;
use super::requests::numbers_to_text;
use super::tree::{child, items, section, set, set_absent, text};

/// The session affinity of a client to one backend, in seconds.
const AFFINITY_SECONDS: i32 = 10_800;
/// The label with the name of a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn service(service: &mut Tree) {
    let Some(spec) = section(service, "spec") else { return };
    set(spec, "type", "ClusterIP");
    set(spec, "sessionAffinity", "None");
    if text(spec, "sessionAffinity") == "ClientIP"
        && let Some(client) =
            section(spec, "sessionAffinityConfig").and_then(|config| section(config, "clientIP"))
    {
        set_absent(client, "timeoutSeconds", AFFINITY_SECONDS);
    }
    for port in items(spec, "ports") {
        set(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            set(port, "targetPort", number);
        }
    }
    let kind = text(spec, "type").to_owned();
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
    if kind != "ExternalName" {
        set(spec, "internalTrafficPolicy", "Cluster");
        addresses(spec);
    }
    if let Some(status) = section(service, "status") {
        set_absent(status, "loadBalancer", json!({}));
    }
}

/// One IP family: that of the cluster IP, if it is set.
fn addresses(spec: &mut Tree) {
    let address = text(spec, "clusterIP").to_owned();
    if !address.is_empty() {
        set_absent(spec, "clusterIPs", json!([address]));
    }
    set_absent(spec, "ipFamilyPolicy", "SingleStack");
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    set_absent(spec, "ipFamilies", json!([family]));
}

pub(super) fn node(node: &mut Tree) {
    set_absent(node, "spec", json!({}));
    let Some(status) = section(node, "status") else { return };
    for amounts in ["capacity", "allocatable"] {
        if let Some(quantities) = child(status, amounts) {
            numbers_to_text(quantities);
        }
    }
    if let Some(capacity) = status.get("capacity").cloned() {
        set_absent(status, "allocatable", capacity);
    }
}

/// `stringData` is write-only: it overwrites entries of `data`.
pub(super) fn secret(secret: &mut Tree) {
    set(secret, "type", "Opaque");
    let plain = match secret.remove("stringData") {
        Some(Value::Object(plain)) => plain,
        // Validation refuses any other type.
        Some(other) if !other.is_null() => {
            secret.insert("stringData".to_owned(), other);
            return;
        }
        Some(_) | None => return,
    };
    let Some(data) = section(secret, "data") else { return };
    for (key, value) in plain {
        data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
    }
}

pub(super) fn namespace(namespace: &mut Tree) {
    let Some(metadata) = section(namespace, "metadata") else { return };
    let name = text(metadata, "name").to_owned();
    if !name.is_empty()
        && let Some(labels) = section(metadata, "labels")
    {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
    // The finalizer of a terminating namespace must not be added again.
    let is_terminating =
        child(namespace, "metadata").is_some_and(|meta| meta.contains_key("deletionTimestamp"));
    if let Some(spec) = section(namespace, "spec")
        && !is_terminating
    {
        set_absent(spec, "finalizers", json!(["kubernetes"]));
    }
    if let Some(status) = section(namespace, "status") {
        set(status, "phase", "Active");
    }
}

pub(super) fn persistent_volume(volume: &mut Tree) {
    if let Some(spec) = section(volume, "spec") {
        set(spec, "persistentVolumeReclaimPolicy", "Retain");
        set(spec, "volumeMode", "Filesystem");
        if let Some(host_path) = child(spec, "hostPath") {
            set_absent(host_path, "type", "");
        }
    }
    pending(volume);
}

pub(super) fn persistent_volume_claim(claim: &mut Tree) {
    if let Some(spec) = section(claim, "spec") {
        set(spec, "volumeMode", "Filesystem");
        set_absent(spec, "resources", json!({}));
    }
    pending(claim);
}

fn pending(object: &mut Tree) {
    if let Some(status) = section(object, "status") {
        set(status, "phase", "Pending");
    }
}

pub(super) fn certificate_signing_request(request: &mut Tree) {
    set_absent(request, "status", json!({}));
}

pub(super) fn pod_certificate_request(request: &mut Tree) {
    set_absent(request, "status", json!({}));
    if let Some(spec) = section(request, "spec") {
        set_absent(spec, "maxExpirationSeconds", 86_400);
    }
}

pub(super) fn csi_driver(driver: &mut Tree) {
    let Some(spec) = section(driver, "spec") else { return };
    set_absent(spec, "attachRequired", true);
    set_absent(spec, "podInfoOnMount", false);
    set_absent(spec, "storageCapacity", false);
    set_absent(spec, "requiresRepublish", false);
    set_absent(spec, "seLinuxMount", false);
    set_absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    set_absent(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

pub(super) fn storage_class(class: &mut Tree) {
    set(class, "reclaimPolicy", "Delete");
    set(class, "volumeBindingMode", "Immediate");
}

/// The default of a limit is the maximum, that of a request is the limit or else the minimum.
pub(super) fn limit_range(range: &mut Tree) {
    let Some(spec) = section(range, "spec") else { return };
    for item in items(spec, "limits").filter(|item| text(item, "type") == "Container") {
        for (field, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let Some(values) = child(item, from).map(|values| values.clone()) else { continue };
            let Some(defaults) = section(item, field) else { continue };
            for (name, value) in values {
                defaults.entry(name).or_insert(value);
            }
        }
    }
}

/// A ServiceAccount belongs to the core group, whose name is empty.
pub(super) fn role_binding(binding: &mut Tree) {
    if let Some(role) = child(binding, "roleRef") {
        set(role, "apiGroup", RBAC_GROUP);
    }
    for subject in items(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set(subject, "apiGroup", RBAC_GROUP);
        }
    }
}
