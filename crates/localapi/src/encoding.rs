//! The JSON encoding of the real server, which decodes every object to a Go type and encodes that type.
//!
//! Owns the effect on a tree: fields that are always written (`lastState: {}`, `lastProbeTime: null`), empty fields that are
//! omitted, quantities in canonical form, times in whole seconds. Unknown fields stay, unlike on the real server.
//! Idempotent.

mod quantity;
#[cfg(test)]
mod tests;
mod time;

use serde_json::{Map, Value, json};

use self::quantity::canonical;

/// The value of an unset field that is always written.
#[derive(Clone, Copy, Debug)]
enum Empty {
    Struct,
    Null,
    False,
    Zero,
    Text,
}

impl Empty {
    fn value(self) -> Value {
        match self {
            Self::Struct => json!({}),
            Self::Null => Value::Null,
            Self::False => json!(false),
            Self::Zero => json!(0),
            Self::Text => json!(""),
        }
    }
}

/// The fields of a type that are always written, with the paths of that type in the kind (`status.conditions[]`).
type Rule = (&'static [&'static str], &'static [(&'static str, Empty)]);

const SPEC_AND_STATUS: Rule = (&[""], &[("spec", Empty::Struct), ("status", Empty::Struct)]);

const POD: &[Rule] = &[
    SPEC_AND_STATUS,
    (
        &["spec.containers[]", "spec.initContainers[]", "spec.ephemeralContainers[]"],
        &[("resources", Empty::Struct)],
    ),
    (&["status.conditions[]"], &[("lastProbeTime", Empty::Null), ("lastTransitionTime", Empty::Null)]),
    (
        &[
            "status.containerStatuses[]",
            "status.initContainerStatuses[]",
            "status.ephemeralContainerStatuses[]",
        ],
        &[
            ("state", Empty::Struct),
            ("lastState", Empty::Struct),
            ("ready", Empty::False),
            ("restartCount", Empty::Zero),
            ("image", Empty::Text),
            ("imageID", Empty::Text),
        ],
    ),
    (
        &[
            "status.containerStatuses[].state.running",
            "status.initContainerStatuses[].state.running",
            "status.ephemeralContainerStatuses[].state.running",
            "status.containerStatuses[].lastState.running",
            "status.initContainerStatuses[].lastState.running",
            "status.ephemeralContainerStatuses[].lastState.running",
        ],
        &[("startedAt", Empty::Null)],
    ),
    (
        &[
            "status.containerStatuses[].state.terminated",
            "status.initContainerStatuses[].state.terminated",
            "status.ephemeralContainerStatuses[].state.terminated",
            "status.containerStatuses[].lastState.terminated",
            "status.initContainerStatuses[].lastState.terminated",
            "status.ephemeralContainerStatuses[].lastState.terminated",
        ],
        &[("exitCode", Empty::Zero), ("startedAt", Empty::Null), ("finishedAt", Empty::Null)],
    ),
];

const NODE: &[Rule] = &[
    SPEC_AND_STATUS,
    (&["status"], &[("daemonEndpoints", Empty::Struct), ("nodeInfo", Empty::Struct)]),
    (&["status.daemonEndpoints"], &[("kubeletEndpoint", Empty::Struct)]),
    (&["status.daemonEndpoints.kubeletEndpoint"], &[("Port", Empty::Zero)]),
    (
        &["status.nodeInfo"],
        &[
            ("machineID", Empty::Text),
            ("systemUUID", Empty::Text),
            ("bootID", Empty::Text),
            ("kernelVersion", Empty::Text),
            ("osImage", Empty::Text),
            ("containerRuntimeVersion", Empty::Text),
            ("kubeletVersion", Empty::Text),
            ("kubeProxyVersion", Empty::Text),
            ("operatingSystem", Empty::Text),
            ("architecture", Empty::Text),
        ],
    ),
    (&["status.conditions[]"], &[("lastHeartbeatTime", Empty::Null), ("lastTransitionTime", Empty::Null)]),
    (&["status.images[]"], &[("names", Empty::Null)]),
];

const EVENT: &[Rule] = &[(
    &[""],
    &[
        ("involvedObject", Empty::Struct),
        ("source", Empty::Struct),
        ("firstTimestamp", Empty::Null),
        ("lastTimestamp", Empty::Null),
        ("eventTime", Empty::Null),
        ("reportingComponent", Empty::Text),
        ("reportingInstance", Empty::Text),
    ],
)];

const SERVICE: &[Rule] = &[SPEC_AND_STATUS, (&["status"], &[("loadBalancer", Empty::Struct)])];
const ROLE: &[Rule] = &[(&[""], &[("rules", Empty::Null)]), (&["rules[]"], &[("verbs", Empty::Null)])];
const ROLE_BINDING: &[Rule] = &[
    (&[""], &[("roleRef", Empty::Struct)]),
    (&["roleRef"], &[("apiGroup", Empty::Text), ("kind", Empty::Text), ("name", Empty::Text)]),
    (&["subjects[]"], &[("kind", Empty::Text), ("name", Empty::Text)]),
];
const CLAIM: &[Rule] = &[SPEC_AND_STATUS, (&["spec"], &[("resources", Empty::Struct)])];

/// The rules of a kind; `None` if it is not built in.
fn rules(resource: &str) -> Option<&'static [Rule]> {
    match resource {
        "pods" => Some(POD),
        "nodes" => Some(NODE),
        "events" => Some(EVENT),
        "services" => Some(SERVICE),
        "persistentvolumeclaims" => Some(CLAIM),
        "namespaces" | "persistentvolumes" | "certificatesigningrequests" | "podcertificaterequests" => {
            Some(&[SPEC_AND_STATUS])
        }
        "roles" | "clusterroles" => Some(ROLE),
        "rolebindings" | "clusterrolebindings" => Some(ROLE_BINDING),
        "leases" => Some(&[(&[""], &[("spec", Empty::Struct)])]),
        "csidrivers" => Some(&[(&[""], &[("spec", Empty::Struct)])]),
        "volumeattachments" => Some(&[SPEC_AND_STATUS, (&["status"], &[("attached", Empty::False)])]),
        "csinodes" => Some(&[(&["spec"], &[("drivers", Empty::Null)])]),
        "resourcequotas" => Some(&[SPEC_AND_STATUS]),
        "limitranges" => {
            Some(&[(&[""], &[("spec", Empty::Struct)]), (&["spec"], &[("limits", Empty::Null)])])
        }
        "priorityclasses" => Some(&[(&[""], &[("value", Empty::Zero)])]),
        "storageclasses" => Some(&[(&[""], &[("provisioner", Empty::Text)])]),
        "configmaps" | "secrets" | "serviceaccounts" | "runtimeclasses" => Some(&[]),
        _ => None,
    }
}

/// Maps that are omitted if they are empty. Users or nodes choose their keys. Other empty maps may be structs, whose presence
/// has a meaning.
pub(crate) const OMITEMPTY_MAPS: [&str; 12] = [
    "allocatable",
    "allocatedResources",
    "annotations",
    "binaryData",
    "capacity",
    "data",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "overhead",
    "requests",
];
/// Maps of quantities.
const QUANTITIES: [&str; 8] =
    ["allocatable", "allocatedResources", "capacity", "hard", "limits", "overhead", "requests", "used"];
const SINGLE_QUANTITIES: [&str; 2] = ["divisor", "sizeLimit"];
/// Times with microseconds; all others are whole seconds.
const MICRO_TIMES: [&str; 4] = ["acquireTime", "eventTime", "lastObservedTime", "renewTime"];
/// Strings that are omitted if they are empty.
const OMITEMPTY_STRINGS: [&str; 7] =
    ["containerID", "generateName", "hostIP", "message", "nominatedNodeName", "podIP", "reason"];

/// Encodes `object`, of the kind with this plural name, as the real server does. Unknown kinds stay unchanged.
pub fn complete(resource: &str, object: &mut Value) {
    let Some(rules) = rules(resource) else { return };
    if let Value::Object(fields) = object {
        for (field, value) in fields.iter_mut() {
            // The content of these maps belongs to users.
            if !["data", "binaryData", "stringData"].contains(&field.as_str()) {
                normalize(field, value);
            }
        }
        fields.retain(|field, value| !is_omitted(field, value));
    }
    for (paths, fields) in rules {
        for path in *paths {
            fill(object, path, fields);
        }
    }
}

fn normalize(field: &str, value: &mut Value) {
    match value {
        Value::Object(fields) if ["annotations", "labels"].contains(&field) => {
            fields.retain(|_, value| !value.is_null());
        }
        // Any JSON.
        Value::Object(_) if field == "fieldsV1" => {}
        Value::Object(fields) => {
            for (name, inner) in fields.iter_mut() {
                if is_quantity(field, name) {
                    canonical(inner);
                } else {
                    normalize(name, inner);
                }
            }
            fields.retain(|name, inner| !is_omitted(name, inner));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| normalize("", item)),
        Value::String(_) if SINGLE_QUANTITIES.contains(&field) => canonical(value),
        Value::String(text) if is_time(field) => {
            if let Some(canonical) = time::canonical(text) {
                *text = canonical;
            }
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

fn is_quantity(list: &str, name: &str) -> bool {
    // What a driver of a CSINode can allocate is a number of volumes.
    QUANTITIES.contains(&list) && (list, name) != ("allocatable", "count")
}

/// Whether the value is empty and its field is optional, or one that [`fill`] adds.
fn is_omitted(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty() && OMITEMPTY_MAPS.contains(&field),
        Value::String(text) => text.is_empty() && OMITEMPTY_STRINGS.contains(&field),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_time(field: &str) -> bool {
    let names_a_time =
        field == "time" || ["Time", "Timestamp", "At"].iter().any(|ending| field.ends_with(ending));
    names_a_time && !MICRO_TIMES.contains(&field)
}

/// Adds the missing fields at a path such as `status.conditions[]`.
fn fill(value: &mut Value, path: &str, fields: &[(&str, Empty)]) {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    match step.strip_suffix("[]") {
        _ if step.is_empty() => {
            if let Value::Object(map) = value {
                fill_here(map, fields);
            }
        }
        Some(list) => {
            for item in value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                fill(item, rest, fields);
            }
        }
        None => {
            if let Some(inner) = value.get_mut(step) {
                fill(inner, rest, fields);
            }
        }
    }
}

fn fill_here(map: &mut Map<String, Value>, fields: &[(&str, Empty)]) {
    for (field, empty) in fields {
        map.entry(*field).or_insert_with(|| empty.value());
    }
}
