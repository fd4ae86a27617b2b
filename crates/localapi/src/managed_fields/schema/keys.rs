//! The keys of lists whose elements are found by their keys.

use super::{Absent, Keys};

pub(super) const BY_CONTAINER_PORT_PROTOCOL: Keys =
    &[("containerPort", Absent::Number(0)), ("protocol", Absent::Text("TCP"))];
pub(super) const BY_DEVICE_PATH: Keys = &[("devicePath", Absent::Text(""))];
pub(super) const BY_DRIVER_DEVICE_POOL_SHARE_ID_OR_NONE: Keys = &[
    ("driver", Absent::Text("")),
    ("device", Absent::Text("")),
    ("pool", Absent::Text("")),
    ("shareID", Absent::None),
];
pub(super) const BY_IP: Keys = &[("ip", Absent::Text(""))];
pub(super) const BY_MOUNT_PATH: Keys = &[("mountPath", Absent::Text(""))];
pub(super) const BY_NAME: Keys = &[("name", Absent::Text(""))];
pub(super) const BY_NAME_OR_NONE: Keys = &[("name", Absent::None)];
pub(super) const BY_PORT_PROTOCOL: Keys = &[("port", Absent::Number(0)), ("protocol", Absent::Text("TCP"))];
pub(super) const BY_RESOURCE_CLAIM_NAME: Keys = &[("resourceClaimName", Absent::Text(""))];
pub(super) const BY_STATUS_REASON: Keys = &[("status", Absent::Text("")), ("reason", Absent::Text(""))];
pub(super) const BY_TOPOLOGY_KEY_WHEN_UNSATISFIABLE: Keys =
    &[("topologyKey", Absent::Text("")), ("whenUnsatisfiable", Absent::Text(""))];
pub(super) const BY_TYPE: Keys = &[("type", Absent::Text(""))];
pub(super) const BY_UID: Keys = &[("uid", Absent::Text(""))];
