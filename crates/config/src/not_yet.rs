//! What the configuration can ask for and this build does not do yet. One table, to shrink as rooms are added.

use serde_json::Value;

use crate::gates::{FeatureGates, find};
use crate::tree;

/// Fields of the configuration, as dotted wire names; a name stands for everything below it. Their defaults ask for
/// nothing that we do not do.
const FIELDS: &[&str] = &[
    "contentType",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "enableContentionProfiling",
    "enableControllerAttachDetach",
    "logging.options",
    "memoryManagerPolicy",
    "reservedMemory",
    "showHiddenMetricsForVersion",
    "topologyManagerPolicy",
    "topologyManagerPolicyOptions",
    "topologyManagerScope",
    "volumePluginDir",
];

/// Flags without a field, by name.
const FLAGS: &[&str] = &["experimental-mounter-path", "housekeeping-interval", "max-housekeeping-interval"];

/// Feature gates whose feature this build does not have, so that switching them changes nothing here. What matters to
/// other components only is not listed.
const GATES: &[&str] = &[
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "CRIListStreaming",
    "CSIVolumeHealth",
    "DRAConsumableCapacity",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRANodeAllocatableResources",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "DRAResourceClaimDeviceStatus",
    "DRAWorkloadResourceClaims",
    "DisableCPUQuotaWithExclusiveCPUs",
    "GenericWorkload",
    "ImageVolumeWithDigest",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingAllocatedStatus",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "InPlacePodVerticalScalingInitContainers",
    "KubeletInUserNamespace",
    "NativeHistograms",
    "NodeDeclaredFeatures",
    "PodAndContainerStatsFromCRI",
    "PodCertificateRequest",
    "PodLevelResourceManagers",
    "PodsAPI",
    "ResourceHealthStatus",
    "ResourceHealthStatusMessage",
    "RuntimeClassInImageCriAPI",
    "SELinuxMount",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
    "UserNamespacesHostNetworkSupport",
    "WatchListClient",
];

/// Gates of [`GATES`] that the user switched, as `featureGates.<name>`.
pub(crate) fn gates(gates: &FeatureGates) -> impl Iterator<Item = String> {
    let is_switched = |name: &&&str| find(name).is_some_and(|gate| gates.enabled(name) != gate.default);
    GATES.iter().filter(is_switched).map(|name| format!("featureGates.{name}"))
}

/// Names of what the user set and does not get. `set`: the tree of what was set; `defaults`: the tree of defaults.
pub(crate) fn fields(set: &Value, defaults: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for name in FIELDS {
        let Some(part) = tree::get(set, name) else { continue };
        let nothing = Value::Null;
        let shape = tree::get(defaults, name).unwrap_or(&nothing);
        for (below, value) in tree::leaves(part, shape) {
            let path = if below.is_empty() { (*name).to_owned() } else { format!("{name}.{below}") };
            let is_default = tree::get(defaults, &path) == Some(value) || is_empty(value);
            if !is_default {
                found.push(path);
            }
        }
    }
    found
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether a flag without a field is one whose feature is missing.
pub(crate) fn flag(name: &str) -> bool {
    FLAGS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Features, KubeletConfiguration, flags};

    #[test]
    fn the_table_names_only_what_exists() {
        for name in FIELDS {
            assert!(tree::get(&KubeletConfiguration::shape(), name).is_some(), "{name}");
        }
        for name in FLAGS {
            assert!(flags::find(name).is_some_and(|flag| flag.field().is_none()), "{name}");
        }
        for name in GATES {
            assert!(find(name).is_some_and(|gate| !gate.locked), "{name}");
        }
    }

    #[test]
    fn a_gate_either_works_or_is_named() {
        for name in Features::GATES {
            assert!(find(name).is_some_and(|gate| !gate.locked), "{name}");
            assert!(!GATES.contains(name), "{name}");
        }
    }
}
