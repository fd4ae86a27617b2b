//! The columns of each resource.

use serde_json::{Value, json};

/// One column. Its type is that of its cells.
#[derive(Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    is_name: bool,
    is_wide: bool,
}

impl Column {
    pub(super) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": if self.is_name { "name" } else { "" },
            "description": "",
            // Columns of priority 1 are printed with `-o wide` only.
            "priority": i32::from(self.is_wide),
        })
    }
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: "string", is_name: false, is_wide: false }
}

const fn number(name: &'static str) -> Column {
    Column { kind: "integer", ..text(name) }
}

const fn flag(name: &'static str) -> Column {
    Column { kind: "boolean", ..text(name) }
}

const fn wide(name: &'static str) -> Column {
    Column { is_wide: true, ..text(name) }
}

/// A time, which clients show as it is.
const fn date(name: &'static str) -> Column {
    Column { kind: "date", ..text(name) }
}

const NAME: Column = Column { is_name: true, ..text("Name") };
const AGE: Column = text("Age");

const PODS: &[Column] = &[
    NAME,
    text("Ready"),
    text("Status"),
    text("Restarts"),
    AGE,
    wide("IP"),
    wide("Node"),
    wide("Nominated Node"),
    wide("Readiness Gates"),
];
const NODES: &[Column] = &[
    NAME,
    text("Status"),
    text("Roles"),
    AGE,
    text("Version"),
    wide("Internal-IP"),
    wide("External-IP"),
    wide("OS-Image"),
    wide("Kernel-Version"),
    wide("Container-Runtime"),
];
const EVENTS: &[Column] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    Column { is_wide: true, ..NAME },
];
const SERVICES: &[Column] =
    &[NAME, text("Type"), text("Cluster-IP"), text("External-IP"), text("Port(s)"), AGE, wide("Selector")];
const PERSISTENT_VOLUMES: &[Column] = &[
    NAME,
    text("Capacity"),
    text("Access Modes"),
    text("Reclaim Policy"),
    text("Status"),
    text("Claim"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    text("Reason"),
    AGE,
    wide("VolumeMode"),
];
const PERSISTENT_VOLUME_CLAIMS: &[Column] = &[
    NAME,
    text("Status"),
    text("Volume"),
    text("Capacity"),
    text("Access Modes"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    AGE,
    wide("VolumeMode"),
];
const CERTIFICATE_SIGNING_REQUESTS: &[Column] =
    &[NAME, AGE, text("SignerName"), text("Requestor"), text("RequestedDuration"), text("Condition")];
const VOLUME_ATTACHMENTS: &[Column] =
    &[NAME, Column { is_name: true, ..text("Attacher") }, text("PV"), text("Node"), flag("Attached"), AGE];
const CSI_DRIVERS: &[Column] = &[
    NAME,
    flag("AttachRequired"),
    flag("PodInfoOnMount"),
    flag("StorageCapacity"),
    text("TokenRequests"),
    flag("RequiresRepublish"),
    text("Modes"),
    AGE,
];

const STORAGE_CLASSES: &[Column] = &[
    NAME,
    text("Provisioner"),
    text("ReclaimPolicy"),
    text("VolumeBindingMode"),
    flag("AllowVolumeExpansion"),
    AGE,
];
const ROLE_BINDINGS: &[Column] =
    &[NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")];

pub(super) fn of(resource: &str) -> &'static [Column] {
    match resource {
        "pods" => PODS,
        "nodes" => NODES,
        "events" => EVENTS,
        "services" => SERVICES,
        "persistentvolumes" => PERSISTENT_VOLUMES,
        "persistentvolumeclaims" => PERSISTENT_VOLUME_CLAIMS,
        "certificatesigningrequests" => CERTIFICATE_SIGNING_REQUESTS,
        "volumeattachments" => VOLUME_ATTACHMENTS,
        "resourceclaims" => const { &[NAME, text("State"), AGE] },
        "resourceslices" => const { &[NAME, text("Node"), text("Driver"), text("Pool"), AGE] },
        "csidrivers" => CSI_DRIVERS,
        "limitranges" => const { &[NAME, text("Created At")] },
        "resourcequotas" => const { &[NAME, text("Request"), text("Limit"), AGE] },
        "priorityclasses" => {
            const { &[NAME, number("Value"), flag("Global-Default"), AGE, text("PreemptionPolicy")] }
        }
        "storageclasses" => STORAGE_CLASSES,
        "rolebindings" | "clusterrolebindings" => ROLE_BINDINGS,
        "roles" | "clusterroles" => const { &[NAME, date("Created At")] },
        "leases" => const { &[NAME, text("Holder"), AGE] },
        "namespaces" => const { &[NAME, text("Status"), AGE] },
        "configmaps" => const { &[NAME, text("Data"), AGE] },
        "secrets" => const { &[NAME, text("Type"), text("Data"), AGE] },
        "runtimeclasses" => const { &[NAME, text("Handler"), AGE] },
        "csinodes" => const { &[NAME, number("Drivers"), AGE] },
        _ => const { &[NAME, AGE] },
    }
}
