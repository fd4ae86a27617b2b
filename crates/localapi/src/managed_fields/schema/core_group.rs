//! The other kinds of the core group.

use super::Fields;
use super::Type::{Keyed, Leaf, Map, Set, Struct};
use super::keys::{BY_NAME_OR_NONE, BY_PORT_PROTOCOL, BY_TYPE};
use super::meta::{CONDITION, OBJECT_META};

pub(super) static CONFIG_MAP: Fields = Fields {
    leaves: "apiVersion immutable kind",
    nested: &[("binaryData", Map(&Leaf)), ("data", Map(&Leaf)), ("metadata", Struct(&OBJECT_META))],
};

pub(super) static ENDPOINTS: Fields =
    Fields { leaves: "apiVersion kind subsets", nested: &[("metadata", Struct(&OBJECT_META))] };

pub(super) static EVENT_SERIES: Fields = Fields::leaves("count lastObservedTime");

pub(super) static EVENT_SOURCE: Fields = Fields::leaves("component host");

pub(super) static EVENT: Fields = Fields {
    leaves: "action apiVersion count eventTime firstTimestamp involvedObject kind lastTimestamp \
        message reason related reportingComponent reportingInstance type",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("series", Struct(&EVENT_SERIES)),
        ("source", Struct(&EVENT_SOURCE)),
    ],
};

pub(super) static NAMESPACE_SPEC: Fields = Fields::leaves("finalizers");

pub(super) static NAMESPACE_CONDITION: Fields =
    Fields::leaves("lastTransitionTime message reason status type");

pub(super) static NAMESPACE_STATUS: Fields =
    Fields { leaves: "phase", nested: &[("conditions", Keyed(BY_TYPE, &Struct(&NAMESPACE_CONDITION)))] };

pub(super) static NAMESPACE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&NAMESPACE_SPEC)),
        ("status", Struct(&NAMESPACE_STATUS)),
    ],
};

pub(super) static CONFIG_MAP_NODE_CONFIG_SOURCE: Fields =
    Fields::leaves("kubeletConfigKey name namespace resourceVersion uid");

pub(super) static NODE_CONFIG_SOURCE: Fields =
    Fields { leaves: "", nested: &[("configMap", Struct(&CONFIG_MAP_NODE_CONFIG_SOURCE))] };

pub(super) static NODE_POD_PREEMPTION_POLICY: Fields =
    Fields { leaves: "", nested: &[("disableResizePreemption", Set)] };

pub(super) static NODE_SPEC: Fields = Fields {
    leaves: "externalID podCIDR providerID taints unschedulable",
    nested: &[
        ("configSource", Struct(&NODE_CONFIG_SOURCE)),
        ("podCIDRs", Set),
        ("podPreemptionPolicy", Struct(&NODE_POD_PREEMPTION_POLICY)),
    ],
};

pub(super) static NODE_ADDRESS: Fields = Fields::leaves("address type");

pub(super) static NODE_CONDITION: Fields =
    Fields::leaves("lastHeartbeatTime lastTransitionTime message reason status type");

pub(super) static NODE_CONFIG_STATUS: Fields = Fields {
    leaves: "error",
    nested: &[
        ("active", Struct(&NODE_CONFIG_SOURCE)),
        ("assigned", Struct(&NODE_CONFIG_SOURCE)),
        ("lastKnownGood", Struct(&NODE_CONFIG_SOURCE)),
    ],
};

pub(super) static DAEMON_ENDPOINT: Fields = Fields::leaves("Port");

pub(super) static NODE_DAEMON_ENDPOINTS: Fields =
    Fields { leaves: "", nested: &[("kubeletEndpoint", Struct(&DAEMON_ENDPOINT))] };

pub(super) static NODE_FEATURES: Fields = Fields::leaves("supplementalGroupsPolicy");

pub(super) static NODE_SWAP_STATUS: Fields = Fields::leaves("capacity");

pub(super) static NODE_SYSTEM_INFO: Fields = Fields {
    leaves: "architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion \
        kubeletVersion machineID operatingSystem osImage runningInUserNamespace systemUUID",
    nested: &[("swap", Struct(&NODE_SWAP_STATUS))],
};

pub(super) static NODE_STATUS: Fields = Fields {
    leaves: "declaredFeatures images phase runtimeHandlers volumesAttached volumesInUse",
    nested: &[
        ("addresses", Keyed(BY_TYPE, &Struct(&NODE_ADDRESS))),
        ("allocatable", Map(&Leaf)),
        ("capacity", Map(&Leaf)),
        ("conditions", Keyed(BY_TYPE, &Struct(&NODE_CONDITION))),
        ("config", Struct(&NODE_CONFIG_STATUS)),
        ("daemonEndpoints", Struct(&NODE_DAEMON_ENDPOINTS)),
        ("features", Struct(&NODE_FEATURES)),
        ("nodeInfo", Struct(&NODE_SYSTEM_INFO)),
    ],
};

pub(super) static NODE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&NODE_SPEC)),
        ("status", Struct(&NODE_STATUS)),
    ],
};

pub(super) static SECRET: Fields = Fields {
    leaves: "apiVersion immutable kind type",
    nested: &[("data", Map(&Leaf)), ("metadata", Struct(&OBJECT_META)), ("stringData", Map(&Leaf))],
};

pub(super) static SERVICE_ACCOUNT: Fields = Fields {
    leaves: "apiVersion automountServiceAccountToken imagePullSecrets kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("secrets", Keyed(BY_NAME_OR_NONE, &Leaf))],
};

pub(super) static SERVICE_PORT: Fields = Fields::leaves("appProtocol name nodePort port protocol targetPort");

pub(super) static CLIENT_IP_CONFIG: Fields = Fields::leaves("timeoutSeconds");

pub(super) static SESSION_AFFINITY_CONFIG: Fields =
    Fields { leaves: "", nested: &[("clientIP", Struct(&CLIENT_IP_CONFIG))] };

pub(super) static SERVICE_SPEC: Fields = Fields {
    leaves: "allocateLoadBalancerNodePorts clusterIP clusterIPs externalIPs externalName \
        externalTrafficPolicy healthCheckNodePort internalTrafficPolicy ipFamilies \
        ipFamilyPolicy loadBalancerClass loadBalancerIP loadBalancerSourceRanges \
        publishNotReadyAddresses selector sessionAffinity trafficDistribution type",
    nested: &[
        ("ports", Keyed(BY_PORT_PROTOCOL, &Struct(&SERVICE_PORT))),
        ("sessionAffinityConfig", Struct(&SESSION_AFFINITY_CONFIG)),
    ],
};

pub(super) static LOAD_BALANCER_STATUS: Fields = Fields::leaves("ingress");

pub(super) static SERVICE_STATUS: Fields = Fields {
    leaves: "",
    nested: &[
        ("conditions", Keyed(BY_TYPE, &Struct(&CONDITION))),
        ("loadBalancer", Struct(&LOAD_BALANCER_STATUS)),
    ],
};

pub(super) static SERVICE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&SERVICE_SPEC)),
        ("status", Struct(&SERVICE_STATUS)),
    ],
};

pub(super) static LIMIT_RANGE_SPEC: Fields = Fields::leaves("limits");

pub(super) static LIMIT_RANGE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&LIMIT_RANGE_SPEC))],
};

pub(super) static RESOURCE_QUOTA_SPEC: Fields =
    Fields { leaves: "scopeSelector scopes", nested: &[("hard", Map(&Leaf))] };

pub(super) static RESOURCE_QUOTA_STATUS: Fields =
    Fields { leaves: "", nested: &[("hard", Map(&Leaf)), ("used", Map(&Leaf))] };

pub(super) static RESOURCE_QUOTA: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&RESOURCE_QUOTA_SPEC)),
        ("status", Struct(&RESOURCE_QUOTA_STATUS)),
    ],
};
