//! Whether this node can resize a pod at all. Whether it fits is a matter of admission
//! ([`resources_core::admission`]).

use model::QosClass;
use model::containers::{ContainerRef, ContainersByName, all_containers, spec_of};
use model::k8s::Pod;
use resources_core::amounts::{Amounts, Resource, is_resizable};

use crate::pods::request::resources::may_swap;
use base_core::node_facts::NodeFacts;

/// The reason of the condition `PodResizePending` for a resize that this node never carries out.
pub const INFEASIBLE: &str = "Infeasible";
/// The reason for one that has to wait.
pub const DEFERRED: &str = "Deferred";
/// `resizePolicy` of a container that has to be restarted.
const RESTART: &str = "RestartContainer";

/// Why a resize is never carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infeasible {
    pub message: String,
    /// The label `reason_detail` of the metric.
    pub detail: &'static str,
}

/// The first reason against the resize of a pod from what is allocated to it.
#[must_use]
pub fn compute_infeasible(requested: &Pod, allocated: &Pod, node: &NodeFacts) -> Option<Infeasible> {
    refuse_swap(requested, allocated, node)
        .or_else(|| refuse_pod_level(requested, allocated, node))
        .or_else(|| refuse_exclusive(requested, allocated, node, Resource::Cpu))
        .or_else(|| refuse_exclusive(requested, allocated, node, Resource::Memory))
}

/// The share of swap follows the memory request and cannot be changed while the container runs.
fn refuse_swap(requested: &Pod, allocated: &Pod, node: &NodeFacts) -> Option<Infeasible> {
    let allocated_containers = ContainersByName::of(allocated);
    let is_affected = |container: ContainerRef<'_>| {
        let Some(before) = allocated_containers.get(container.name()) else { return false };
        let request = |of: &ContainerRef<'_>| Amounts::of(of.resources()).memory_request;
        request(&container) != request(&before)
            && !restarts_for(&before, Resource::Memory)
            && (may_swap(requested, &container, node) || may_swap(allocated, &before, node))
    };
    all_containers(requested).any(is_affected).then(|| Infeasible {
        message: "In-place resize of containers with swap is not supported.".to_owned(),
        detail: "swap_limitation",
    })
}

fn refuse_pod_level(requested: &Pod, allocated: &Pod, node: &NodeFacts) -> Option<Infeasible> {
    let is_changed = spec_of(requested).resources != spec_of(allocated).resources;
    (is_changed && !node.features.pod_level_resize).then(|| Infeasible {
        message: "InPlacePodLevelResourcesVerticalScaling is disabled".to_owned(),
        detail: "plr_feature_gate_off",
    })
}

/// Exclusive CPUs and memory of NUMA nodes stay as they were allocated.
fn refuse_exclusive(
    requested: &Pod,
    allocated: &Pod,
    node: &NodeFacts,
    resource: Resource,
) -> Option<Infeasible> {
    let (owner, policy, is_static, is_allowed, detail) = match resource {
        Resource::Cpu => (
            "CPU Manager",
            &node.config.cpu_manager_policy,
            node.config.cpu_manager_policy == "static",
            node.features.resize_exclusive_cpus,
            "guaranteed_pod_cpu_manager_static_policy",
        ),
        Resource::Memory => (
            "Memory Manager",
            &node.config.memory_manager_policy,
            node.config.memory_manager_policy == "Static",
            node.features.resize_exclusive_memory,
            "guaranteed_pod_memory_manager_static_policy",
        ),
    };
    let allocated = ContainersByName::of(allocated);
    let is_changed = |container: ContainerRef<'_>| {
        let before = allocated.get(container.name());
        let before = before.map(|before| Amounts::of(before.resources())).unwrap_or_default();
        is_resizable(container.kind, node.features)
            && Amounts::of(container.resources()).differs_in(&before, resource)
    };
    let is_refused = !is_allowed
        && is_static
        && QosClass::of(requested) == QosClass::Guaranteed
        && all_containers(requested).any(is_changed);
    is_refused.then(|| Infeasible {
        message: format!("Resize is infeasible for Guaranteed Pods alongside {owner} policy \"{policy}\""),
        detail,
    })
}

/// The container has to be restarted for another amount of this resource.
#[must_use]
pub fn restarts_for(container: &ContainerRef<'_>, resource: Resource) -> bool {
    let policy = container.resize_policy().iter().find(|policy| policy.resource_name == resource.name());
    policy.is_some_and(|policy| policy.restart_policy == RESTART)
}

#[cfg(test)]
mod tests;
