//! Dynamic resource allocation: `resource.k8s.io`.

use super::Fields;
use super::Type::{Keyed, Set, Struct};
use super::keys::{BY_DRIVER_DEVICE_POOL_SHARE_ID_OR_NONE, BY_TYPE, BY_UID};
use super::meta::{CONDITION, OBJECT_META};

pub(super) static DEVICE_CLAIM: Fields = Fields::leaves("config constraints requests");

pub(super) static RESOURCE_CLAIM_SPEC: Fields =
    Fields { leaves: "", nested: &[("devices", Struct(&DEVICE_CLAIM))] };

pub(super) static DEVICE_ALLOCATION_RESULT: Fields = Fields::leaves("config results");

pub(super) static ALLOCATION_RESULT: Fields = Fields {
    leaves: "allocationTimestamp nodeSelector",
    nested: &[("devices", Struct(&DEVICE_ALLOCATION_RESULT))],
};

pub(super) static NETWORK_DEVICE_DATA: Fields = Fields::leaves("hardwareAddress interfaceName ips");

pub(super) static ALLOCATED_DEVICE_STATUS: Fields = Fields {
    leaves: "data device driver pool shareID",
    nested: &[
        ("conditions", Keyed(BY_TYPE, &Struct(&CONDITION))),
        ("networkData", Struct(&NETWORK_DEVICE_DATA)),
    ],
};

pub(super) static RESOURCE_CLAIM_CONSUMER_REFERENCE: Fields = Fields::leaves("apiGroup name resource uid");

pub(super) static RESOURCE_CLAIM_STATUS: Fields = Fields {
    leaves: "",
    nested: &[
        ("allocation", Struct(&ALLOCATION_RESULT)),
        ("devices", Keyed(BY_DRIVER_DEVICE_POOL_SHARE_ID_OR_NONE, &Struct(&ALLOCATED_DEVICE_STATUS))),
        ("reservedFor", Keyed(BY_UID, &Struct(&RESOURCE_CLAIM_CONSUMER_REFERENCE))),
    ],
};

pub(super) static RESOURCE_RESOURCE_CLAIM: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[
        ("metadata", Struct(&OBJECT_META)),
        ("spec", Struct(&RESOURCE_CLAIM_SPEC)),
        ("status", Struct(&RESOURCE_CLAIM_STATUS)),
    ],
};

pub(super) static RESOURCE_CLAIM_TEMPLATE_SPEC: Fields = Fields {
    leaves: "",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&RESOURCE_CLAIM_SPEC))],
};

pub(super) static RESOURCE_CLAIM_TEMPLATE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&RESOURCE_CLAIM_TEMPLATE_SPEC))],
};

pub(super) static RESOURCE_POOL: Fields = Fields::leaves("generation name resourceSliceCount");

pub(super) static RESOURCE_SLICE_SPEC: Fields = Fields {
    leaves: "allNodes devices driver nodeName nodeSelector partitionTypeAttribute \
        perDeviceNodeSelection sharedCounters",
    nested: &[("pool", Struct(&RESOURCE_POOL)), ("skipNodeOperations", Set)],
};

pub(super) static RESOURCE_SLICE: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&RESOURCE_SLICE_SPEC))],
};

pub(super) static DEVICE_CLASS_SPEC: Fields = Fields::leaves("config extendedResourceName selectors");

pub(super) static DEVICE_CLASS: Fields = Fields {
    leaves: "apiVersion kind",
    nested: &[("metadata", Struct(&OBJECT_META)), ("spec", Struct(&DEVICE_CLASS_SPEC))],
};
