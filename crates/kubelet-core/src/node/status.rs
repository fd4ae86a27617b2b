//! The status of a Node, set in the order of the Go kubelet, Ready after all other conditions
//! (docs/behaviour/node-status.md): each part from its facts, over the previous Node.

use std::collections::BTreeMap;

use base_core::node_labels::{ARCH_LABEL, OS_LABEL};
use config::KUBERNETES_VERSION;
use model::k8s::{
    DaemonEndpoint, Node, NodeAddress, NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler, NodeStatus,
    NodeSwapStatus, NodeSystemInfo,
};

use super::addresses::{AddressError, compute_addresses};
use super::conditions::set_conditions;
use super::images::compute_images;
use super::resources::{compute_allocatable, compute_capacity, missing_capacity, reserved_amounts};
use super::{NodeEvent, NodeInputs, PROVIDED_IP};

/// The new Node, and the events to emit.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOutcome {
    pub node: Node,
    pub events: Vec<NodeEvent>,
    /// Why the addresses could not be set; the previous ones stay.
    pub address_error: Option<AddressError>,
}

/// Computes the Node over the one that the API has. `was_unschedulable` is the last observed value of its spec.
#[must_use]
pub fn compute_node_status(existing: &Node, inputs: &NodeInputs<'_>, was_unschedulable: bool) -> NodeOutcome {
    let mut node = existing.clone();
    let mut status = node.status.take().unwrap_or_default();
    let mut events = Vec::new();
    let address_error = set_addresses(&mut node, &mut status, inputs).err();
    set_labels(&mut node, inputs);
    set_machine(&mut status, inputs, &mut events);
    let port = inputs.config.port;
    status.daemon_endpoints = Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port }) });
    status.images = not_empty(compute_images(inputs.images, inputs.config.node_status_max_images));
    status.runtime_handlers = not_empty(sorted_handlers(inputs.runtime_handlers));
    status.features = inputs
        .supplemental_groups_policy
        .map(|policy| NodeFeatures { supplemental_groups_policy: Some(policy) });
    let missing = missing_capacity(status.capacity.as_ref().unwrap_or(&BTreeMap::new()), inputs.config);
    set_conditions(status.conditions.get_or_insert_default(), inputs, &missing, &mut events);
    set_volumes_in_use(&mut status, inputs);
    let is_unschedulable = existing.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    if is_unschedulable != was_unschedulable {
        let reason = if is_unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
        events.push(NodeEvent::status(inputs.name, reason));
    }
    status.declared_features = not_empty(sorted(inputs.declared_features));
    node.status = Some(status);
    NodeOutcome { node, events, address_error }
}

fn set_addresses(
    node: &mut Node,
    status: &mut NodeStatus,
    inputs: &NodeInputs<'_>,
) -> Result<(), AddressError> {
    let existing: &[NodeAddress] = status.addresses.as_deref().unwrap_or_default();
    let computed = compute_addresses(inputs, existing)?;
    status.addresses = not_empty(computed.addresses);
    match (computed.provided_ip, &mut node.metadata.annotations) {
        (Some(ip), annotations) => {
            annotations.get_or_insert_default().insert(PROVIDED_IP.to_owned(), ip);
        }
        (None, Some(annotations)) => drop(annotations.remove(PROVIDED_IP)),
        (None, None) => {}
    }
    Ok(())
}

/// Corrects the labels that the scheduler needs if they are missing or wrong.
fn set_labels(node: &mut Node, inputs: &NodeInputs<'_>) {
    let labels = node.metadata.labels.get_or_insert_default();
    for (label, value) in [(OS_LABEL, "linux"), (ARCH_LABEL, &*inputs.machine.architecture)] {
        labels.insert(label.to_owned(), value.to_owned());
    }
}

fn set_machine(status: &mut NodeStatus, inputs: &NodeInputs<'_>, events: &mut Vec<NodeEvent>) {
    let machine = inputs.machine;
    let existing = status.capacity.take().unwrap_or_default();
    let capacity = compute_capacity(inputs.config, machine, inputs.devices, &existing);
    let ignores_eviction = inputs.flags.experimental_allocatable_ignore_eviction;
    let reserved = reserved_amounts(inputs.config, &capacity, ignores_eviction);
    status.allocatable = Some(compute_allocatable(&capacity, &reserved, inputs.devices));
    status.capacity = Some(capacity);
    let old_boot = status.node_info.as_ref().map(|info| info.boot_id.as_str()).unwrap_or_default();
    if !old_boot.is_empty() && old_boot != machine.boot_id {
        let message = format!("Node {} has been rebooted, boot id: {}", inputs.name, machine.boot_id);
        events.push(NodeEvent { is_warning: true, reason: "Rebooted", message });
    }
    status.node_info = Some(NodeSystemInfo {
        architecture: machine.architecture.clone(),
        boot_id: machine.boot_id.clone(),
        container_runtime_version: inputs.runtime_version.to_owned(),
        kernel_version: machine.kernel_version.clone(),
        // Long deprecated, and empty for every node since 1.33.
        kube_proxy_version: String::new(),
        kubelet_version: KUBERNETES_VERSION.to_owned(),
        machine_id: machine.machine_id.clone(),
        operating_system: "linux".to_owned(),
        os_image: machine.os_image.clone(),
        swap: (machine.swap_bytes > 0)
            .then(|| NodeSwapStatus { capacity: i64::try_from(machine.swap_bytes).ok() }),
        system_uuid: machine.system_uuid.clone(),
    });
}

/// `volumesAttached` belongs to the attach/detach controller.
fn set_volumes_in_use(status: &mut NodeStatus, inputs: &NodeInputs<'_>) {
    let mut names = inputs.volumes_in_use.clone();
    if !inputs.knows_volumes_in_use {
        names.extend(status.volumes_in_use.take().unwrap_or_default());
    }
    status.volumes_in_use = not_empty(names.into_iter().collect());
}

/// Sorted by name: a runtime lists them in any order, which must not count as a change.
fn sorted_handlers(handlers: &[NodeRuntimeHandler]) -> Vec<NodeRuntimeHandler> {
    let mut handlers = handlers.to_vec();
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    handlers
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

fn not_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
