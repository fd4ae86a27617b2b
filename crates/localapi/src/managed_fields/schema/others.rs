//! The kinds of all other groups.

use super::Fields;
use super::Type::{Keyed, Leaf, Map, Set, Struct};
use super::keys::{BY_NAME, BY_TYPE};
use super::meta::{CONDITION, OBJECT_META};
use super::volumes::PERSISTENT_VOLUME_SPEC;

pub(super) static CERTIFICATE_SIGNING_REQUEST_SPEC: Fields = Fields {
    leaves: "expirationSeconds groups request signerName uid usages username",
    nested: &[("extra", Map(&Leaf))],
};

pub(super) static CERTIFICATE_SIGNING_REQUEST_CONDITION: Fields =
    Fields::leaves("lastTransitionTime lastUpdateTime message reason status type");

pub(super) static CERTIFICATE_SIGNING_REQUEST_STATUS: Fields = Fields {
    leaves: "certificate",
    nested: &[("conditions", Keyed(BY_TYPE, &Struct(&CERTIFICATE_SIGNING_REQUEST_CONDITION)))],
};

pub(super) static CERTIFICATE_SIGNING_REQUEST: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&CERTIFICATE_SIGNING_REQUEST_SPEC)),
        ("status", Struct(&CERTIFICATE_SIGNING_REQUEST_STATUS)),
    ],
};

pub(super) static CLUSTER_TRUST_BUNDLE_SPEC: Fields = Fields::leaves("signerName trustBundle");

pub(super) static CLUSTER_TRUST_BUNDLE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&CLUSTER_TRUST_BUNDLE_SPEC))],
};

pub(super) static POD_CERTIFICATE_REQUEST_SPEC: Fields = Fields {
    leaves: "maxExpirationSeconds nodeName nodeUID pkixPublicKey podName podUID proofOfPossession \
        serviceAccountName serviceAccountUID signerName stubPKCS10Request",
    nested: &[("unverifiedUserAnnotations", Map(&Leaf))],
};

pub(super) static POD_CERTIFICATE_REQUEST_STATUS: Fields = Fields {
    leaves: "beginRefreshAt certificateChain notAfter notBefore",
    nested: &[("conditions", Keyed(BY_TYPE, &Struct(&CONDITION)))],
};

pub(super) static POD_CERTIFICATE_REQUEST: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&POD_CERTIFICATE_REQUEST_SPEC)),
        ("status", Struct(&POD_CERTIFICATE_REQUEST_STATUS)),
    ],
};

pub(super) static LEASE_SPEC: Fields = Fields::leaves(
    "acquireTime holderIdentity leaseDurationSeconds leaseTransitions preferredHolder \
    renewTime strategy",
);

pub(super) static LEASE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&LEASE_SPEC))],
};

pub(super) static ENDPOINT_SLICE: Fields = Fields {
    leaves: "addressType apiVersion endpoints kind ports",
    nested: &[("metadata", Struct(&OBJECT_META))],
};

pub(super) static OVERHEAD: Fields = Fields { leaves: "", nested: &[("podFixed", Map(&Leaf))] };

pub(super) static SCHEDULING: Fields = Fields::leaves("nodeSelector tolerations");

pub(super) static RUNTIME_CLASS: Fields = Fields {
    leaves: "apiVersion handler kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("overhead", Struct(&OVERHEAD)),
        ("scheduling", Struct(&SCHEDULING)),
    ],
};

pub(super) static CSI_DRIVER_SPEC: Fields = Fields {
    leaves: "attachRequired fsGroupPolicy nodeAllocatableUpdatePeriodSeconds podInfoOnMount \
        preventPodSchedulingIfMissing requiresRepublish seLinuxMount \
        serviceAccountTokenInSecrets storageCapacity tokenRequests",
    nested: &[("volumeLifecycleModes", Set)],
};

pub(super) static CSI_DRIVER: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&CSI_DRIVER_SPEC))],
};

pub(super) static VOLUME_NODE_RESOURCES: Fields = Fields::leaves("count");

pub(super) static CSI_NODE_DRIVER: Fields =
    Fields { leaves: "name nodeID topologyKeys", nested: &[("allocatable", Struct(&VOLUME_NODE_RESOURCES))] };

pub(super) static CSI_NODE_SPEC: Fields =
    Fields { leaves: "", nested: &[("drivers", Keyed(BY_NAME, &Struct(&CSI_NODE_DRIVER)))] };

pub(super) static STORAGE_HEALTH: Fields = Fields::leaves("healthConditions name");

pub(super) static CSI_NODE_STATUS: Fields =
    Fields { leaves: "", nested: &[("storageHealth", Keyed(BY_NAME, &Struct(&STORAGE_HEALTH)))] };

pub(super) static CSI_NODE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&CSI_NODE_SPEC)),
        ("status", Struct(&CSI_NODE_STATUS)),
    ],
};

pub(super) static VOLUME_ATTACHMENT_SOURCE: Fields = Fields {
    leaves: "persistentVolumeName",
    nested: &[("inlineVolumeSpec", Struct(&PERSISTENT_VOLUME_SPEC))],
};

pub(super) static VOLUME_ATTACHMENT_SPEC: Fields =
    Fields { leaves: "attacher nodeName", nested: &[("source", Struct(&VOLUME_ATTACHMENT_SOURCE))] };

pub(super) static VOLUME_ERROR: Fields = Fields::leaves("errorCode message time");

pub(super) static VOLUME_ATTACHMENT_STATUS: Fields = Fields {
    leaves: "attached",
    nested: &[
        ("attachError", Struct(&VOLUME_ERROR)),
        ("attachmentMetadata", Map(&Leaf)),
        ("detachError", Struct(&VOLUME_ERROR)),
    ],
};

pub(super) static VOLUME_ATTACHMENT: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&VOLUME_ATTACHMENT_SPEC)),
        ("status", Struct(&VOLUME_ATTACHMENT_STATUS)),
    ],
};

pub(super) static STORAGE_CLASS: Fields = Fields {
    leaves: "allowVolumeExpansion allowedTopologies apiVersion kind mountOptions provisioner \
        reclaimPolicy volumeBindingMode",
    nested: &[("metadata", Struct(&OBJECT_META)), ("parameters", Map(&Leaf))],
};

pub(super) static PRIORITY_CLASS: Fields = Fields {
    leaves: "apiVersion description globalDefault kind preemptionPolicy value",
    nested: &[("metadata", Struct(&OBJECT_META))],
};

pub(super) static ROLE: Fields =
    Fields { leaves: "apiVersion kind rules", nested: &[("metadata", Struct(&OBJECT_META))] };

pub(super) static AGGREGATION_RULE: Fields = Fields::leaves("clusterRoleSelectors");

pub(super) static CLUSTER_ROLE: Fields = Fields {
    leaves: "apiVersion kind rules",
    nested: &[("aggregationRule", Struct(&AGGREGATION_RULE)), ("metadata", Struct(&OBJECT_META))],
};

pub(super) static ROLE_BINDING: Fields =
    Fields { leaves: "apiVersion kind roleRef subjects", nested: &[("metadata", Struct(&OBJECT_META))] };

pub(super) static CLUSTER_ROLE_BINDING: Fields =
    Fields { leaves: "apiVersion kind roleRef subjects", nested: &[("metadata", Struct(&OBJECT_META))] };
