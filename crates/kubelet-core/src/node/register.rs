//! Registration: the Node that is created, and what is changed of one that exists already (docs/behaviour/node-status.md).
//! Labels, taints and annotations of other clients are never removed.

use std::collections::BTreeMap;

use api_core::strategic_patch::compute_strategic_patch;
use base_core::node_labels::{ARCH_LABEL, HOSTNAME_LABEL, OS_LABEL};
use config::{KubeletConfiguration, NodeFlags};
use model::k8s::{Node, NodeSpec, NodeStatus, ObjectMeta, Quantity, Taint};
use resources_core::quantities::{Quantities, is_extended_resource};
use serde_json::{Value, json};

use super::report::NODE_LISTS;
use super::resources::{compute_allocatable, compute_capacity, reserved_amounts};
use super::status::{NodeOutcome, compute_node_status};
use super::{
    BETA_ARCH_LABEL, BETA_OS_LABEL, CONTROLLER_ATTACH, NodeInputs, NodeMachine, UNINITIALIZED_TAINT,
};

/// Labels that are reset to their registered values. All others belong to those who set them.
const DEFAULT_LABELS: [&str; 11] = [
    HOSTNAME_LABEL,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS_LABEL,
    ARCH_LABEL,
    BETA_OS_LABEL,
    BETA_ARCH_LABEL,
];

/// The Node to create, with its first status.
#[must_use]
pub fn compute_initial_node(inputs: &NodeInputs<'_>) -> NodeOutcome {
    let settings = NodeSettings {
        name: inputs.name,
        hostname: inputs.hostname,
        config: inputs.config,
        flags: inputs.flags,
        machine: inputs.machine,
    };
    compute_node_status(&node_without_status(&settings), inputs, false)
}

/// What this kubelet knows of its Node without the API and the runtime.
#[derive(Clone, Copy, Debug)]
pub struct NodeSettings<'a> {
    pub name: &'a str,
    /// The host name in lower case, or the value of `--hostname-override`.
    pub hostname: &'a str,
    pub config: &'a KubeletConfiguration,
    pub flags: &'a NodeFlags,
    pub machine: &'a NodeMachine,
}

/// The Node that pods are admitted to while the API has none: with the labels and taints of this kubelet, and what the machine has to
/// allocate.
#[must_use]
pub fn compute_node_for_admission(settings: &NodeSettings<'_>) -> Node {
    let none = BTreeMap::new();
    let capacity = compute_capacity(settings.config, settings.machine, &none, &Quantities::new());
    let ignores_eviction = settings.flags.experimental_allocatable_ignore_eviction;
    let reserved = reserved_amounts(settings.config, &capacity, ignores_eviction);
    let status = NodeStatus {
        allocatable: Some(compute_allocatable(&capacity, &reserved, &none)),
        capacity: Some(capacity),
        ..NodeStatus::default()
    };
    Node { status: Some(status), ..node_without_status(settings) }
}

fn node_without_status(settings: &NodeSettings<'_>) -> Node {
    let architecture = settings.machine.architecture.as_str();
    let own = [
        (HOSTNAME_LABEL, settings.hostname),
        (OS_LABEL, "linux"),
        (ARCH_LABEL, architecture),
        (BETA_OS_LABEL, "linux"),
        (BETA_ARCH_LABEL, architecture),
    ];
    let mut labels: BTreeMap<String, String> =
        own.into_iter().map(|(label, value)| (label.to_owned(), value.to_owned())).collect();
    labels.extend(settings.flags.node_labels.clone());
    let mut annotations = BTreeMap::new();
    if settings.config.enable_controller_attach_detach {
        annotations.insert(CONTROLLER_ATTACH.to_owned(), "true".to_owned());
    }
    let provider_id = &settings.config.provider_id;
    Node {
        metadata: ObjectMeta {
            name: Some(settings.name.to_owned()),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: (!provider_id.is_empty()).then(|| provider_id.clone()),
            taints: Some(taints(settings)).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: None,
    }
}

/// The configured taints, each key and effect once, and the taint that a cloud provider removes.
fn taints(settings: &NodeSettings<'_>) -> Vec<Taint> {
    let taint = |key: &str, value: &str, effect: &str| Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()).filter(|value| !value.is_empty()),
        effect: effect.to_owned(),
        time_added: None,
    };
    let mut taints: Vec<Taint> = Vec::new();
    for wanted in &settings.config.register_with_taints {
        if !taints.iter().any(|t| t.key == wanted.key && t.effect == wanted.effect) {
            taints.push(taint(&wanted.key, &wanted.value, &wanted.effect));
        }
    }
    if settings.flags.cloud_provider == "external" {
        taints.push(taint(UNINITIALIZED_TAINT, "true", "NoSchedule"));
    }
    taints
}

/// What has to change in an existing Node to match this kubelet: a strategic merge patch of its status subresource, or
/// `None`. `resets_extended` is true if the devices of the previous run are not known any more: their resources count as
/// zero until their plugins register again.
#[must_use]
pub fn compute_reconciliation(initial: &Node, existing: &Node, resets_extended: bool) -> Option<Value> {
    let mut wanted = existing.clone();
    reconcile_annotation(&mut wanted, initial);
    reconcile_labels(&mut wanted, initial);
    reconcile_resources(&mut wanted, initial, resets_extended);
    compute_strategic_patch(&json!(existing), &json!(wanted), &NODE_LISTS)
}

fn reconcile_annotation(wanted: &mut Node, initial: &Node) {
    let value = initial.metadata.annotations.as_ref().and_then(|all| all.get(CONTROLLER_ATTACH));
    match (value, wanted.metadata.annotations.as_mut()) {
        (Some(value), _) => {
            let annotations = wanted.metadata.annotations.get_or_insert_default();
            annotations.insert(CONTROLLER_ATTACH.to_owned(), value.clone());
        }
        (None, Some(annotations)) => drop(annotations.remove(CONTROLLER_ATTACH)),
        (None, None) => {}
    }
}

fn reconcile_labels(wanted: &mut Node, initial: &Node) {
    for (label, value) in initial.metadata.labels.iter().flatten() {
        if DEFAULT_LABELS.contains(&label.as_str()) {
            let labels = wanted.metadata.labels.get_or_insert_default();
            if value.is_empty() {
                labels.remove(label);
            } else {
                labels.insert(label.clone(), value.clone());
            }
        }
    }
}

fn reconcile_resources(wanted: &mut Node, initial: &Node, resets_extended: bool) {
    let fresh = initial.status.clone().unwrap_or_default();
    let status = wanted.status.get_or_insert_default();
    for (list, fresh) in
        [(&mut status.capacity, fresh.capacity), (&mut status.allocatable, fresh.allocatable)]
    {
        let fresh = fresh.unwrap_or_default();
        let list = list.get_or_insert_default();
        list.retain(|name, _| !name.starts_with("hugepages-") || fresh.contains_key(name));
        for (name, quantity) in &fresh {
            if name.starts_with("hugepages-") || !list.contains_key(name) {
                list.insert(name.clone(), quantity.clone());
            }
        }
        if resets_extended {
            for (_, quantity) in list.iter_mut().filter(|(name, _)| is_extended_resource(name)) {
                *quantity = Quantity("0".to_owned());
            }
        }
    }
}
