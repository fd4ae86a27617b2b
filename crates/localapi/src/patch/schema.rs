//! The patch strategies of the built-in types: which lists are merged, and by which key.
//!
//! All other lists are replaced.

/// The type of a value in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A value without merged lists.
    Plain,
    /// An object whose only merged lists are those of its metadata.
    Object,
    Pod,
    PodTemplate,
    PodTemplateHolder,
    PodSpec,
    PodStatus,
    Container,
    Node,
    NodeSpec,
    NodeStatus,
    Service,
    ServiceSpec,
    ServiceAccount,
    WithConditions,
    Conditions,
    CsiNode,
    CsiNodeSpec,
    ResourceClaim,
    ResourceClaimStatus,
    Metadata,
}

/// How a list is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListMerge {
    Replace,
    /// Elements are maps with this merge key.
    ByKey(&'static str),
    /// Elements are scalars.
    Set,
}

/// Resources whose type has no merged list outside of the metadata.
const PLAIN_RESOURCES: [&str; 13] = [
    "certificatesigningrequests",
    "clustertrustbundles",
    "configmaps",
    "csidrivers",
    "endpoints",
    "endpointslices",
    "events",
    "leases",
    "persistentvolumes",
    "resourceslices",
    "runtimeclasses",
    "secrets",
    "volumeattachments",
];

impl Shape {
    /// `None` if the type is not built in: such objects have no patch strategy.
    pub(super) fn of_resource(resource: &str) -> Option<Self> {
        let plural = resource.split('/').next().unwrap_or_default();
        match plural {
            "pods" => Some(Self::Pod),
            "podtemplates" => Some(Self::PodTemplateHolder),
            "nodes" => Some(Self::Node),
            "services" => Some(Self::Service),
            "serviceaccounts" => Some(Self::ServiceAccount),
            "csinodes" => Some(Self::CsiNode),
            "resourceclaims" => Some(Self::ResourceClaim),
            "namespaces" | "persistentvolumeclaims" | "podcertificaterequests" => Some(Self::WithConditions),
            _ if PLAIN_RESOURCES.contains(&plural) => Some(Self::Object),
            _ => None,
        }
    }

    /// The type of a map in this field.
    pub(super) fn map(self, field: &str) -> Self {
        match (self, field) {
            (Self::Plain, _) => Self::Plain,
            (_, "metadata") => Self::Metadata,
            (Self::Pod | Self::PodTemplate, "spec") => Self::PodSpec,
            (Self::Pod, "status") => Self::PodStatus,
            (Self::PodTemplateHolder, "template") => Self::PodTemplate,
            (Self::Node, "spec") => Self::NodeSpec,
            (Self::Node, "status") => Self::NodeStatus,
            (Self::Service, "spec") => Self::ServiceSpec,
            (Self::Service | Self::WithConditions, "status") => Self::Conditions,
            (Self::CsiNode, "spec") => Self::CsiNodeSpec,
            (Self::ResourceClaim, "status") => Self::ResourceClaimStatus,
            _ => Self::Plain,
        }
    }

    /// How the list in this field is patched, and the type of its elements.
    pub(super) fn list(self, field: &str) -> (ListMerge, Self) {
        let by_key = |key| (ListMerge::ByKey(key), Self::Plain);
        match (self, field) {
            (Self::Metadata, "ownerReferences") | (Self::ResourceClaimStatus, "reservedFor") => by_key("uid"),
            (Self::Metadata, "finalizers") | (Self::NodeSpec, "podCIDRs") => (ListMerge::Set, Self::Plain),
            (Self::PodSpec, "containers" | "initContainers" | "ephemeralContainers") => {
                (ListMerge::ByKey("name"), Self::Container)
            }
            (Self::PodSpec, "volumes" | "imagePullSecrets" | "schedulingGates" | "resourceClaims")
            | (Self::PodStatus, "resourceClaimStatuses")
            | (Self::Container, "env")
            | (Self::ServiceAccount, "secrets")
            | (Self::CsiNodeSpec, "drivers") => by_key("name"),
            (Self::PodSpec, "hostAliases") | (Self::PodStatus, "podIPs" | "hostIPs") => by_key("ip"),
            (Self::PodSpec, "topologySpreadConstraints") => by_key("topologyKey"),
            (Self::Container, "ports") => by_key("containerPort"),
            (Self::Container, "volumeMounts") => by_key("mountPath"),
            (Self::Container, "volumeDevices") => by_key("devicePath"),
            (Self::PodStatus | Self::NodeStatus | Self::Conditions, "conditions")
            | (Self::NodeStatus, "addresses") => by_key("type"),
            (Self::ServiceSpec, "ports") => by_key("port"),
            _ => (ListMerge::Replace, Self::Plain),
        }
    }
}
