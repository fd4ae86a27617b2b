//! Permissions of nodes, as in the node authorizer: a node's own Node, Lease, CSINode, VolumeAttachments and pods,
//! and those Secrets, ConfigMaps, claims and volumes that its pods reference. What a node may write into them is in
//! `node_restriction`.

use serde_json::Value;

use super::attributes::{Attributes, is_certificate_request};
use crate::object::{self, items, text};
use crate::selector::FieldSelector;
use crate::store::{Key, Objects};

const READ: &[&str] = &["get", "list", "watch"];
/// Authorization and admission deny access to the CSINode of another node with the same words.
pub(super) const OTHER_CSI_NODE: &str = "can only access CSINode with the same name as the requesting node";

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
        // What a new one may ask for is in `pod_certificates`.
        ("certificates.k8s.io", "podcertificaterequests", "") => match verb {
            "create" => true,
            "list" | "watch" => selects("spec.nodeName"),
            "get" => is_certificate_request_of(node, attributes, objects),
            _ => false,
        },
        ("storage.k8s.io", "volumeattachments", "") => {
            is(&["get"]) && is_attachment_of(node, &attributes.name, objects)
        }
        ("coordination.k8s.io", "leases", "") => {
            attributes.namespace == "kube-node-lease"
                && (is(&["create"]) || (own && is(&["get", "update", "patch", "delete"])))
        }
        ("storage.k8s.io", "csinodes", "") => {
            is(&["create"]) || (own && is(&["get", "update", "patch", "delete"]))
        }
        ("", "secrets", "") => {
            is(READ)
                && (is_referenced_by_a_pod(node, attributes, objects)
                    || is_secret_of_a_volume(node, attributes, objects))
        }
        ("", "configmaps", "") => is(READ) && is_referenced_by_a_pod(node, attributes, objects),
        ("", "persistentvolumeclaims" | "serviceaccounts", "")
        | ("resource.k8s.io", "resourceclaims", "") => {
            is(&["get"]) && is_referenced_by_a_pod(node, attributes, objects)
        }
        ("resource.k8s.io", "resourceslices", "") => match verb {
            "create" => true,
            "list" | "watch" | "deletecollection" => selects("spec.nodeName"),
            "get" | "update" | "patch" | "delete" => is_slice_of(node, &attributes.name, objects),
            _ => false,
        },
        ("", "persistentvolumeclaims", "status") => {
            is(&["update", "patch"]) && is_referenced_by_a_pod(node, attributes, objects)
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
    if allowed { Ok(()) } else { Err(denial(node, attributes)) }
}

/// Why the request is denied: because of its form, or because the object does not belong to the node.
fn denial(node: &str, attributes: &Attributes) -> String {
    let Attributes { verb, name, namespace, subresource, .. } = attributes;
    let is_form = |verbs: &[&str]| !verbs.contains(&verb.as_str());
    let resource = (attributes.group.as_str(), attributes.resource.as_str(), subresource.as_str());
    let form = match resource {
        ("", "secrets" | "configmaps", _) if is_form(READ) => "can only read resources of this type",
        ("", "secrets" | "configmaps", "") if namespace.is_empty() => {
            "can only read namespaced object of this type"
        }
        ("", "persistentvolumeclaims", "status") if is_form(&["update", "patch"]) => {
            "can only get/update/patch this type"
        }
        ("", "persistentvolumeclaims", "status") => "",
        ("", "persistentvolumeclaims" | "persistentvolumes", _)
        | ("resource.k8s.io", "resourceclaims", _)
        | ("storage.k8s.io", "volumeattachments", _)
            if is_form(&["get"]) =>
        {
            "can only get individual resources of this type"
        }
        ("", "secrets" | "configmaps", sub) if !sub.is_empty() => "cannot read subresource",
        ("", "persistentvolumeclaims" | "persistentvolumes", sub)
        | ("resource.k8s.io", "resourceclaims", sub)
        | ("storage.k8s.io", "volumeattachments", sub)
            if !sub.is_empty() =>
        {
            "cannot get subresource"
        }
        ("storage.k8s.io", "csinodes", _) if is_form(&["get", "create", "update", "patch", "delete"]) => {
            "can only get, create, update, patch, or delete a CSINode"
        }
        ("storage.k8s.io", "csinodes", "") => OTHER_CSI_NODE,
        ("storage.k8s.io", "csinodes", _) => "cannot authorize CSINode subresources",
        ("", "secrets" | "configmaps" | "persistentvolumeclaims" | "persistentvolumes", _)
        | ("resource.k8s.io", "resourceclaims", _)
        | ("storage.k8s.io", "volumeattachments", _)
            if name.is_empty() =>
        {
            "No Object name found"
        }
        _ => "",
    };
    if form.is_empty() {
        return format!("no relationship found between node '{node}' and this object");
    }
    form.to_owned()
}

fn pod<'a>(attributes: &Attributes, objects: &'a Objects) -> Option<&'a Value> {
    objects.get(&Key::new("pods", &attributes.namespace, &attributes.name)).map(|pod| &**pod)
}

fn is_bound_here(node: &str, attributes: &Attributes, objects: &Objects) -> bool {
    pod(attributes, objects).is_some_and(|pod| text(pod, "/spec/nodeName") == node)
}

fn is_certificate_request_of(node: &str, attributes: &Attributes, objects: &Objects) -> bool {
    let request = objects.get(&Key::new("podcertificaterequests", &attributes.namespace, &attributes.name));
    request.is_some_and(|request| text(request, "/spec/nodeName") == node)
}

fn is_slice_of(node: &str, name: &str, objects: &Objects) -> bool {
    let slice = objects.get(&Key::new("resourceslices", "", name));
    slice.is_some_and(|slice| text(slice, "/spec/nodeName") == node)
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

/// Whether the Secret is one that a volume of a claim of the node's pods needs on the node. The secrets of its controller
/// are not visible to nodes.
fn is_secret_of_a_volume(node: &str, attributes: &Attributes, objects: &Objects) -> bool {
    const FIELDS: [&str; 3] = ["nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];
    let is_that = |secret: &Value| {
        text(secret, "/namespace") == attributes.namespace && text(secret, "/name") == attributes.name
    };
    !attributes.name.is_empty()
        && objects.of("persistentvolumes", None).any(|(key, volume)| {
            volume
                .pointer("/spec/csi")
                .is_some_and(|csi| FIELDS.iter().any(|field| csi.get(field).is_some_and(is_that)))
                && is_claimed_by_a_pod(node, &key.name, objects)
        })
}

fn is_attachment_of(node: &str, name: &str, objects: &Objects) -> bool {
    let attachment = objects.get(&Key::new("volumeattachments", "", name));
    attachment.is_some_and(|attachment| text(attachment, "/spec/nodeName") == node)
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
        "resourceclaims" => {
            items(pod, "/spec/resourceClaims").iter().any(|claim| text(claim, "/resourceClaimName") == name)
                || items(pod, "/status/resourceClaimStatuses")
                    .iter()
                    .any(|claim| text(claim, "/resourceClaimName") == name)
                || text(pod, "/status/extendedResourceClaimStatus/resourceClaimName") == name
        }
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
