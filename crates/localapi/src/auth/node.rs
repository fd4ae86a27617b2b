//! Permissions of nodes, as the node authorizer and the NodeRestriction admission plugin grant them: a node's own Node,
//! Lease, CSINode and pods, and those Secrets, ConfigMaps, claims and volumes that its pods reference. [`check`] authorizes
//! requests; [`admit`] checks the content of written objects.

use serde_json::Value;

use super::attributes::{Attributes, is_certificate_request};
use crate::object::{self, items, text};
use crate::selector::FieldSelector;
use crate::store::{Key, Objects};

const READ: &[&str] = &["get", "list", "watch"];
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether `node` may perform the request.
pub(crate) fn check(node: &str, attributes: &Attributes, objects: &Objects) -> Result<(), String> {
    let verb = attributes.verb.as_str();
    let is = |verbs: &[&str]| verbs.contains(&verb);
    let selects = |field: &str| {
        FieldSelector::parse(&attributes.field_selector)
            .is_ok_and(|selector| selector.required(field) == Some(node))
    };
    let own = attributes.name == node;
    let resource = (attributes.group.as_str(), attributes.resource.as_str(), attributes.subresource.as_str());
    let allowed = match resource {
        ("", "nodes", "") => {
            (is(&["get", "update", "patch"]) && own) || is(&["create"]) || (is(&["list", "watch"]) && own)
        }
        ("", "nodes", "status") => is(&["get", "update", "patch"]) && own,
        ("", "pods", "") => match verb {
            "create" => true,
            "list" | "watch" => selects("spec.nodeName"),
            "get" | "delete" => {
                is_bound_here(node, attributes, objects) || does_not_exist(attributes, objects)
            }
            _ => false,
        },
        ("", "pods", "status") => is(&["get", "update", "patch"]) && is_bound_here(node, attributes, objects),
        ("", "pods", "eviction") => is(&["create"]) && is_bound_here(node, attributes, objects),
        ("", "events", "") | ("events.k8s.io", "events", "") => is(&["create", "update", "patch"]),
        ("", "services", "")
        | ("node.k8s.io", "runtimeclasses", "")
        | ("certificates.k8s.io", "clustertrustbundles", "")
        | ("storage.k8s.io", "csidrivers", "") => is(READ),
        ("storage.k8s.io", "volumeattachments", "") => is(READ),
        ("coordination.k8s.io", "leases", "") => {
            attributes.namespace == "kube-node-lease"
                && (is(&["create"]) || (own && is(&["get", "update", "patch", "delete"])))
        }
        ("storage.k8s.io", "csinodes", "") => {
            is(&["create"]) || (own && is(&["get", "update", "patch", "delete"]))
        }
        ("", "secrets" | "configmaps" | "persistentvolumeclaims" | "serviceaccounts", "") => {
            is(READ) && is_referenced_by_a_pod(node, attributes, objects)
        }
        ("", "persistentvolumeclaims", "status") => {
            is(&["get", "update", "patch"]) && is_referenced_by_a_pod(node, attributes, objects)
        }
        ("", "serviceaccounts", "token") => {
            is(&["create"]) && is_referenced_by_a_pod(node, attributes, objects)
        }
        ("", "persistentvolumes", "") => is(&["get"]) && is_claimed_by_a_pod(node, &attributes.name, objects),
        ("authentication.k8s.io", "tokenreviews", "")
        | ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews", "") => {
            is(&["create"])
        }
        _ => is_certificate_request(attributes),
    };
    if allowed { Ok(()) } else { Err(format!("no relationship found between node '{node}' and this object")) }
}

fn pod<'a>(attributes: &Attributes, objects: &'a Objects) -> Option<&'a Value> {
    objects.get(&Key::new("pods", &attributes.namespace, &attributes.name)).map(|pod| &**pod)
}

fn is_bound_here(node: &str, attributes: &Attributes, objects: &Objects) -> bool {
    pod(attributes, objects).is_some_and(|pod| text(pod, "/spec/nodeName") == node)
}

/// A node may read a pod that does not exist: the response is "not found" instead of "forbidden".
fn does_not_exist(attributes: &Attributes, objects: &Objects) -> bool {
    !attributes.name.is_empty() && pod(attributes, objects).is_none()
}

fn pods_of<'a>(
    node: &'a str,
    namespace: Option<&str>,
    objects: &'a Objects,
) -> impl Iterator<Item = &'a Value> {
    objects
        .of("pods", namespace)
        .map(|(_, pod)| &**pod)
        .filter(move |pod| text(pod, "/spec/nodeName") == node)
}

fn is_referenced_by_a_pod(node: &str, attributes: &Attributes, objects: &Objects) -> bool {
    !attributes.name.is_empty()
        && pods_of(node, Some(&attributes.namespace), objects)
            .any(|pod| references(pod, &attributes.resource, &attributes.name))
}

fn is_claimed_by_a_pod(node: &str, volume: &str, objects: &Objects) -> bool {
    objects.of("persistentvolumeclaims", None).any(|(key, claim)| {
        text(claim, "/spec/volumeName") == volume
            && pods_of(node, Some(&key.namespace), objects)
                .any(|pod| references(pod, "persistentvolumeclaims", &key.name))
    })
}

/// Whether a pod refers to the object of this kind and name.
fn references(pod: &Value, resource: &str, name: &str) -> bool {
    let volumes = items(pod, "/spec/volumes");
    match resource {
        "serviceaccounts" => {
            let account = text(pod, "/spec/serviceAccountName");
            (if account.is_empty() { "default" } else { account }) == name
        }
        "persistentvolumeclaims" => volumes.iter().any(|volume| {
            let generated = volume.get("ephemeral").is_some()
                && format!("{}-{}", object::name(pod), text(volume, "/name")) == name;
            generated || text(volume, "/persistentVolumeClaim/claimName") == name
        }),
        "secrets" => {
            items(pod, "/spec/imagePullSecrets").iter().any(|secret| text(secret, "/name") == name)
                || volumes.iter().any(|volume| volume_references_secret(volume, name))
                || env_references(pod, "/secretRef/name", "/valueFrom/secretKeyRef/name", name)
        }
        "configmaps" => {
            volumes.iter().any(|volume| {
                text(volume, "/configMap/name") == name
                    || items(volume, "/projected/sources")
                        .iter()
                        .any(|source| text(source, "/configMap/name") == name)
            }) || env_references(pod, "/configMapRef/name", "/valueFrom/configMapKeyRef/name", name)
        }
        _ => false,
    }
}

fn volume_references_secret(volume: &Value, name: &str) -> bool {
    let csi = text(volume, "/csi/nodePublishSecretRef/name") == name;
    let projected = || items(volume, "/projected/sources").iter().any(|s| text(s, "/secret/name") == name);
    csi || text(volume, "/secret/secretName") == name || projected()
}

fn env_references(pod: &Value, from: &str, value_from: &str, name: &str) -> bool {
    ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"]
        .iter()
        .flat_map(|list| items(pod, list))
        .any(|container| {
            items(container, "/envFrom").iter().any(|source| text(source, from) == name)
                || items(container, "/env").iter().any(|variable| text(variable, value_from) == name)
        })
}

/// Whether a node may write this object; the messages are those of the NodeRestriction admission plugin.
pub(crate) fn admit(node: &str, resource: &str, new: &Value, old: Option<&Value>) -> Result<(), String> {
    let own_name = || {
        let name = object::name(new);
        if name == node {
            Ok(())
        } else {
            Err(format!("node \"{node}\" is not allowed to modify {resource} \"{name}\""))
        }
    };
    match (resource, old) {
        ("nodes" | "csinodes" | "leases", _) => own_name(),
        ("pods", None) => admit_mirror(node, new),
        _ => Ok(()),
    }
}

fn admit_mirror(node: &str, pod: &Value) -> Result<(), String> {
    let annotations = pod.pointer("/metadata/annotations");
    if annotations.and_then(|all| all.get(MIRROR)).is_none() {
        return Err(format!(
            "pod does not have \"{MIRROR}\" annotation, node \"{node}\" can only create mirror pods"
        ));
    }
    if text(pod, "/spec/nodeName") != node {
        return Err(format!("node \"{node}\" can only create pods with spec.nodeName set to itself"));
    }
    for resource in ["secrets", "configmaps", "persistentvolumeclaims"] {
        if refers_to_any(pod, resource) {
            return Err(format!("node \"{node}\" can not create pods that reference {resource}"));
        }
    }
    Ok(())
}

fn refers_to_any(pod: &Value, resource: &str) -> bool {
    let volumes = items(pod, "/spec/volumes");
    let containers =
        ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|list| items(pod, list));
    let sources: (&[&str], &str, &str) = match resource {
        "secrets" => (&["/secret"], "/secretRef", "/valueFrom/secretKeyRef"),
        "configmaps" => (&["/configMap"], "/configMapRef", "/valueFrom/configMapKeyRef"),
        _ => (&["/persistentVolumeClaim", "/ephemeral"], "/none", "/none"),
    };
    let (volume_fields, from, value_from) = sources;
    let in_volume = |volume: &Value| {
        volume_fields.iter().any(|field| {
            volume.pointer(field).is_some()
                || items(volume, "/projected/sources").iter().any(|source| source.pointer(field).is_some())
        })
    };
    let mut containers = containers;
    volumes.iter().any(in_volume)
        || containers.any(|container| {
            items(container, "/envFrom").iter().any(|source| source.pointer(from).is_some())
                || items(container, "/env").iter().any(|variable| variable.pointer(value_from).is_some())
        })
}
