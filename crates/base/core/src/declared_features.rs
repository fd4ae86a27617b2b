//! Features that the Node declares (`status.declaredFeatures`, KEP-5328), and which of them a pod or a change of it requires.
//!
//! A feature is declared if its gate is enabled and, for `UserNamespacesHostNetworkSupport`, the container runtime has it.

use config::Features;
use model::k8s::{Container, ContainerRestartRule, Pod, ResourceRequirements};

const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";
const POD_LEVEL_RESIZE: &str = "InPlacePodLevelResourcesVerticalScaling";
const RESIZE_INIT_CONTAINERS: &str = "InPlacePodVerticalScalingInitContainers";
const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
const USER_NAMESPACES_HOST_NETWORK: &str = "UserNamespacesHostNetworkSupport";

/// The action of the rule that requires [`RESTART_ALL`].
const RESTART_ALL_ACTION: &str = "RestartAllContainers";
/// The reason of a rejected pod.
pub const UNSUPPORTED: &str = "PodFeatureUnsupported";
/// The reason of the event about a change.
pub const CHECK_FAILED: &str = "FailedNodeDeclaredFeaturesCheck";

/// The declared features, sorted; none without the gate `NodeDeclaredFeatures`. `has_host_network` is what the runtime reports: user
/// namespaces of pods in the network of the node.
#[must_use]
pub fn compute_declared_features(features: Features, has_host_network: bool) -> Vec<&'static str> {
    let by_gate = [
        (features.extend_websockets, WEBSOCKETS),
        (features.pod_level_resize, POD_LEVEL_RESIZE),
        (features.resize_init_containers, RESIZE_INIT_CONTAINERS),
        (features.restart_all_containers, RESTART_ALL),
        (features.user_namespaces_host_network && has_host_network, USER_NAMESPACES_HOST_NETWORK),
    ];
    let declared = by_gate.into_iter().filter_map(|(is_on, name)| is_on.then_some(name));
    declared.filter(|_| features.node_declared_features).collect()
}

/// Why the node rejects a pod that requires features that it does not declare.
#[must_use]
pub fn compute_undeclared(pod: &Pod, features: Features, has_host_network: bool) -> Option<String> {
    missing_features(&required_by_pod(pod), features, has_host_network)
}

/// Why the node may not carry out the change of a pod: the message of an event. The pod goes on.
#[must_use]
pub fn compute_undeclared_update(old: &Pod, new: &Pod, features: Features) -> Option<String> {
    // No change of a running pod requires the support of the runtime.
    missing_features(&required_by_update(old, new), features, false)
}

fn missing_features(required: &[&str], features: Features, has_host_network: bool) -> Option<String> {
    if !features.node_declared_features {
        return None;
    }
    let declared = compute_declared_features(features, has_host_network);
    let missing: Vec<&str> = required.iter().copied().filter(|name| !declared.contains(name)).collect();
    (!missing.is_empty())
        .then(|| format!("Pod requires node features that are not available: {}", missing.join(", ")))
}

/// Sorted.
fn required_by_pod(pod: &Pod) -> Vec<&'static str> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let restarts_all = |rule: &ContainerRestartRule| rule.action == RESTART_ALL_ACTION;
    let restarts_all = containers.any(|c| c.restart_policy_rules.iter().flatten().any(restarts_all));
    let has_user_namespace = spec.host_network == Some(true) && spec.host_users == Some(false);
    let by_need = [(restarts_all, RESTART_ALL), (has_user_namespace, USER_NAMESPACES_HOST_NETWORK)];
    by_need.into_iter().filter_map(|(is_needed, name)| is_needed.then_some(name)).collect()
}

/// Sorted.
fn required_by_update(old: &Pod, new: &Pod) -> Vec<&'static str> {
    let (Some(old), Some(new)) = (&old.spec, &new.spec) else { return Vec::new() };
    let is_sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let init = |containers: &Option<Vec<Container>>| containers.clone().unwrap_or_default();
    let mut pairs = init(&old.init_containers).into_iter().zip(init(&new.init_containers));
    let resizes_init =
        pairs.any(|(old, new)| !is_sidecar(&old) && set(&old.resources) != set(&new.resources));
    let resizes_pod = old.resources != new.resources;
    let by_need = [(resizes_pod, POD_LEVEL_RESIZE), (resizes_init, RESIZE_INIT_CONTAINERS)];
    by_need.into_iter().filter_map(|(is_needed, name)| is_needed.then_some(name)).collect()
}

/// Absent resources are those of an empty object.
fn set(resources: &Option<ResourceRequirements>) -> ResourceRequirements {
    resources.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
