//! What changes between two configurations, and what a restart with the new one does. Pure.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::origins::shown;
use crate::{KubeletConfiguration, tree};

/// What a restart with the new value does to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Pods run on.
    Harmless,
    /// Pods run on, and those that are made later differ.
    NewPods,
    /// Clients of the kubelet have to know.
    Clients,
    /// The kubelet may end or restart pods.
    Pods,
    /// The node has to be drained first.
    Drain,
}

/// One setting that changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    pub setting: String,
    pub before: Value,
    pub after: Value,
    pub effect: Effect,
    /// What a restart does, in words.
    pub what: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}\n    {}", self.setting, self.before, self.after, self.what)
    }
}

/// Settings whose change does more than a restart of the kubelet; a name includes all fields below it.
const EFFECTS: &[(&str, Effect, &str)] = &[
    (
        "cgroupDriver",
        Effect::Drain,
        "Drain the node first: cgroups of running pods have names of the old driver. Change the container runtime, too.",
    ),
    ("cgroupRoot", Effect::Drain, "Drain the node first: pods that run are in cgroups below the old one."),
    ("cgroupsPerQOS", Effect::Drain, "Drain the node first: pods that run are in other cgroups."),
    (
        "podLogsDir",
        Effect::Drain,
        "Drain the node first: logs of running containers stay in the old directory.",
    ),
    (
        "containerRuntimeEndpoint",
        Effect::Drain,
        "Drain the node first: the pods of the other container runtime would not be seen and run on.",
    ),
    (
        "imageServiceEndpoint",
        Effect::Drain,
        "Drain the node first if it is another container runtime: its images are others.",
    ),
    (
        "cpuManagerPolicy",
        Effect::Drain,
        "Drain the node first, and remove cpu_manager_state from the root directory: the kubelet does not start with the state of another policy.",
    ),
    (
        "memoryManagerPolicy",
        Effect::Drain,
        "Drain the node first, and remove memory_manager_state from the root directory: the kubelet does not start with the state of another policy.",
    ),
    (
        "reservedSystemCPUs",
        Effect::Drain,
        "Drain the node first if cpuManagerPolicy is static, and remove cpu_manager_state from the root directory.",
    ),
    (
        "reservedMemory",
        Effect::Drain,
        "Drain the node first if memoryManagerPolicy is Static, and remove memory_manager_state from the root directory.",
    ),
    (
        "cpuManagerPolicyOptions",
        Effect::Drain,
        "Drain the node first if cpuManagerPolicy is static: running pods keep the CPUs that the old options gave them.",
    ),
    (
        "topologyManagerPolicy",
        Effect::NewPods,
        "Pods that run stay where they are; pods that start later may be refused.",
    ),
    (
        "topologyManagerScope",
        Effect::NewPods,
        "Pods that run stay where they are; pods that start later may be placed differently.",
    ),
    ("staticPodPath", Effect::Pods, "Pods of manifests that the new directory does not have end."),
    ("staticPodURL", Effect::Pods, "Pods of the old URL end, unless the new one has them."),
    (
        "maxPods",
        Effect::NewPods,
        "Pods that run stay; if there are more than the new number, the next one is refused.",
    ),
    (
        "podsPerCore",
        Effect::NewPods,
        "Pods that run stay; if there are more than the new number, the next one is refused.",
    ),
    ("podPidsLimit", Effect::NewPods, "Pods that start later have the new limit."),
    (
        "clusterDNS",
        Effect::NewPods,
        "Containers that run keep their resolv.conf; pods that start later have the new one.",
    ),
    (
        "clusterDomain",
        Effect::NewPods,
        "Containers that run keep their resolv.conf; pods that start later have the new one.",
    ),
    (
        "resolvConf",
        Effect::NewPods,
        "Containers that run keep their resolv.conf; pods that start later have the new one.",
    ),
    ("seccompDefault", Effect::NewPods, "Containers that start later have the new profile."),
    ("cpuCFSQuota", Effect::NewPods, "Containers that start later have the new limits."),
    ("cpuCFSQuotaPeriod", Effect::NewPods, "Containers that start later have the new limits."),
    ("memorySwap", Effect::NewPods, "Containers that start later have the new limit of swap."),
    (
        "userNamespaces",
        Effect::NewPods,
        "Pods that run keep their user ids; if idsPerPod changes, drain pods with a user namespace first.",
    ),
    (
        "systemReserved",
        Effect::NewPods,
        "The allocatable resources of the node change: if pods request more than is left, the next one is refused.",
    ),
    (
        "kubeReserved",
        Effect::NewPods,
        "The allocatable resources of the node change: if pods request more than is left, the next one is refused.",
    ),
    (
        "enforceNodeAllocatable",
        Effect::Pods,
        "The limits of the cgroup of all pods change at once; pods that use more memory than the new limit are killed.",
    ),
    ("evictionHard", Effect::Pods, "Pods are evicted as soon as a new threshold is met."),
    ("evictionSoft", Effect::Pods, "Pods are evicted when a new threshold is met for its grace period."),
    ("mergeDefaultEvictionSettings", Effect::Pods, "Pods are evicted as soon as a new threshold is met."),
    (
        "imageGCHighThresholdPercent",
        Effect::Harmless,
        "Unused images are removed when the disk is fuller than that.",
    ),
    ("imageGCLowThresholdPercent", Effect::Harmless, "Unused images are removed down to that."),
    (
        "address",
        Effect::Clients,
        "Clients of the kubelet (API server, metrics) need to reach the new address.",
    ),
    ("port", Effect::Clients, "The node reports the new port; firewalls and monitoring have to know."),
    ("readOnlyPort", Effect::Clients, "Monitoring that uses the port has to know."),
    ("healthzPort", Effect::Clients, "Health checks that use the port have to know."),
    ("healthzBindAddress", Effect::Clients, "Health checks that use the address have to know."),
    (
        "authentication",
        Effect::Clients,
        "Requests to the kubelet are authenticated differently: check the API server and monitoring.",
    ),
    (
        "authorization",
        Effect::Clients,
        "Requests to the kubelet are authorized differently: check the API server and monitoring.",
    ),
    ("tlsCertFile", Effect::Clients, "The kubelet serves another certificate: clients have to trust it."),
    (
        "tlsPrivateKeyFile",
        Effect::Clients,
        "The kubelet serves another certificate: clients have to trust it.",
    ),
    ("tlsMinVersion", Effect::Clients, "Clients with an older TLS version cannot connect."),
    ("tlsCipherSuites", Effect::Clients, "Clients without these cipher suites cannot connect."),
    (
        "serverTLSBootstrap",
        Effect::Clients,
        "The kubelet requests a serving certificate, which has to be approved.",
    ),
    (
        "registerWithTaints",
        Effect::Harmless,
        "Taints are set only when the node registers for the first time: kubectl taint changes them later.",
    ),
    (
        "volumePluginDir",
        Effect::Drain,
        "Drain pods with FlexVolumes first: their drivers are looked for in the new directory.",
    ),
    ("featureGates", Effect::NewPods, "What the features do changes; read about each one that is switched."),
];

const HARMLESS: &str = "Takes effect with the restart; pods run on.";

/// What changes, the settings with the strongest effect first.
#[must_use]
pub fn compute_changes(old: &KubeletConfiguration, new: &KubeletConfiguration) -> Vec<Change> {
    let [old, new] = [old, new].map(|config| serde_json::to_value(config).unwrap_or_default());
    let shape = KubeletConfiguration::shape();
    let mut names: Vec<String> =
        [&old, &new].into_iter().flat_map(|side| tree::leaves(side, &shape)).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let mut changes: Vec<Change> = names.into_iter().filter_map(|name| change(name, &old, &new)).collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.effect));
    changes
}

fn change(setting: String, old: &Value, new: &Value) -> Option<Change> {
    let value = |side| tree::get(side, &setting).unwrap_or(&Value::Null);
    let (before, after) = (value(old), value(new));
    if before == after {
        return None;
    }
    let includes =
        |name: &str| setting.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let row = EFFECTS.iter().find(|(name, ..)| includes(name));
    let (effect, what) = row.map_or((Effect::Harmless, HARMLESS), |(_, effect, what)| (*effect, *what));
    let (before, after) = (shown(&setting, before), shown(&setting, after));
    Some(Change { before, after, effect, what: what.to_owned(), setting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_only_existing_settings() {
        for (name, ..) in EFFECTS {
            assert!(tree::get(&KubeletConfiguration::shape(), name).is_some(), "{name}");
        }
    }
}
