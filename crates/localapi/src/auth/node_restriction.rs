//! What a node may write into the objects that it may access, as the NodeRestriction admission plugin has it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::node::OTHER_CSI_NODE;
use crate::object::{self, items, text};

const MIRROR: &str = "kubernetes.io/config.mirror";
/// The labels in domains of Kubernetes that a kubelet may set on its Node, besides those of [`LABEL_DOMAINS`].
const LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

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
        ("nodes", _) => own_name().and_then(|()| admit_node(node, new, old)),
        ("leases", _) => own_name(),
        ("csinodes", _) if object::name(new) != node => Err(OTHER_CSI_NODE.to_owned()),
        ("pods", None) => admit_mirror(node, new),
        _ => Ok(()),
    }
}

/// Whether a node may write this status.
pub(crate) fn admit_status(node: &str, resource: &str, new: &Value, old: &Value) -> Result<(), String> {
    match resource {
        "nodes" => admit(node, resource, new, Some(old)),
        "persistentvolumeclaims" => admit_claim_status(node, new, old),
        _ => Ok(()),
    }
}

/// A node may not lead pods to itself by its labels and taints.
fn admit_node(node: &str, new: &Value, old: Option<&Value>) -> Result<(), String> {
    let forbidden = forbidden_labels(new, old).join(", ");
    let Some(old) = old else {
        if forbidden.is_empty() {
            return Ok(());
        }
        return Err(format!("node \"{node}\" is not allowed to set the following labels: {forbidden}"));
    };
    for (field, what) in [("/spec/taints", "taints"), ("/metadata/ownerReferences", "ownerReferences")] {
        if items(new, field) != items(old, field) {
            return Err(format!("node \"{node}\" is not allowed to modify {what}"));
        }
    }
    if forbidden.is_empty() { Ok(()) } else { Err(format!("is not allowed to modify labels: {forbidden}")) }
}

/// The labels that were added, changed or removed, and that a kubelet may not set.
fn forbidden_labels<'a>(new: &'a Value, old: Option<&'a Value>) -> Vec<&'a str> {
    let labels = |node: &'a Value| node.pointer("/metadata/labels").and_then(Value::as_object);
    let (new, old) = (labels(new), old.and_then(labels));
    let keys: BTreeSet<&String> = new.into_iter().chain(old).flat_map(serde_json::Map::keys).collect();
    let is_modified =
        |key: &str| new.and_then(|labels| labels.get(key)) != old.and_then(|labels| labels.get(key));
    keys.into_iter().map(String::as_str).filter(|key| is_modified(key) && !may_label(key)).collect()
}

fn may_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let inside = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let is_reserved = inside("kubernetes.io") || inside("k8s.io");
    let is_for_kubelets = LABEL_DOMAINS.into_iter().any(inside) || LABELS.contains(&key);
    !inside("node-restriction.kubernetes.io") && (!is_reserved || is_for_kubelets)
}

/// Of a claim, a node writes how far its expansion is.
fn admit_claim_status(node: &str, new: &Value, old: &Value) -> Result<(), String> {
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        object::metadata(&mut claim).remove("resourceVersion");
        if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
            for field in ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"] {
                status.remove(field);
            }
        }
        claim
    };
    if rest(new) == rest(old) {
        return Ok(());
    }
    Err(format!(
        "node \"{node}\" is not allowed to update fields other than status.quantity and status.conditions"
    ))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: Value) -> Value {
        json!({"metadata": {"name": "n", "labels": labels}, "spec": {}})
    }

    #[test]
    fn node_may_set_labels_of_topology_but_not_of_other_domains_of_kubernetes() {
        for (label, is_allowed) in [
            ("topology.kubernetes.io/zone", true),
            ("topology.hostpath.csi/node", true),
            ("a", true),
            ("x.node.kubernetes.io/a", true),
            ("node-role.kubernetes.io/control-plane", false),
            ("topology.k8s.io/rack", false),
            ("x.node-restriction.kubernetes.io/a", false),
        ] {
            let (plain, labelled) = (node(json!({})), node(json!({label: "x"})));
            assert_eq!(admit_status("n", "nodes", &labelled, &plain).is_ok(), is_allowed, "{label}");
            assert_eq!(admit("n", "nodes", &plain, Some(&labelled)).is_ok(), is_allowed, "{label}");
            assert_eq!(admit("n", "nodes", &labelled, None).is_ok(), is_allowed, "{label}");
            assert!(admit_status("n", "nodes", &labelled, &labelled).is_ok(), "{label}");
        }
        assert_eq!(
            admit("n", "nodes", &node(json!({"k8s.io/b": "", "k8s.io/a": ""})), Some(&node(json!({})))),
            Err("is not allowed to modify labels: k8s.io/a, k8s.io/b".to_owned())
        );
    }

    #[test]
    fn node_may_not_change_its_taints() {
        let mut tainted = node(json!({}));
        tainted["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
        assert!(admit("n", "nodes", &tainted, None).is_ok());
        let error = admit("n", "nodes", &node(json!({})), Some(&tainted));
        assert_eq!(error, Err("node \"n\" is not allowed to modify taints".to_owned()));
    }

    #[test]
    fn node_may_write_only_the_csi_node_of_its_own_name() {
        let of = |name: &str| json!({"metadata": {"name": name}});
        assert!(admit("n", "csinodes", &of("n"), None).is_ok());
        assert_eq!(
            admit("n", "csinodes", &of("m"), None),
            Err("can only access CSINode with the same name as the requesting node".to_owned())
        );
    }

    #[test]
    fn node_may_write_the_expansion_of_a_claim_but_not_its_phase() {
        let claim = |status: Value| json!({"metadata": {"name": "c"}, "spec": {}, "status": status});
        let old = claim(json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
        let expanded = claim(json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "conditions": [],
            "allocatedResourceStatuses": {"storage": "NodeResizePending"}}));
        assert!(admit_status("n", "persistentvolumeclaims", &expanded, &old).is_ok());
        let lost = claim(json!({"phase": "Lost", "capacity": {"storage": "1Gi"}}));
        assert!(admit_status("n", "persistentvolumeclaims", &lost, &old).is_err());
    }
}
