//! The values of the Go kubelet's tables of `kubelet_node_status_test.go` (1.36).

use model::k8s::Node;
use serde_json::{Value, json};

use super::super::register::compute_reconciliation;
use super::super::report::{compute_node_patch, status_differs};
use super::node;

const DEFAULT_LABELS: [&str; 9] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
];

/// What the patch makes of the existing labels; no label is ever removed.
fn labels_after(initial: &Value, existing: &Value) -> (bool, Value) {
    let of = |labels: &Value| node(&json!({"metadata": {"labels": labels}}));
    let patch = compute_reconciliation(&of(initial), &of(existing), false);
    let mut after = if existing.is_null() { json!({}) } else { existing.clone() };
    for (label, value) in patch.iter().flat_map(|patch| patch["metadata"]["labels"].as_object().unwrap()) {
        after[label] = value.clone();
    }
    (patch.is_some(), after)
}

#[test]
fn update_default_labels_table() {
    let all = |value: &str| {
        let mut labels = json!({});
        for label in DEFAULT_LABELS {
            labels[label] = value.into();
        }
        labels
    };
    let (new, old) = (all("new"), all("old"));
    let mut with_own = new.clone();
    with_own["please-persist"] = "foo".into();
    let mut partly = json!({});
    for label in [DEFAULT_LABELS[0], DEFAULT_LABELS[3], DEFAULT_LABELS[4], "beta.kubernetes.io/instance-type"]
    {
        partly[label] = "new".into();
    }
    for (name, initial, existing, needs_update, expected) in [
        ("default labels exist", &new, json!({}), true, &new),
        ("default labels are up to date", &new, old, true, &new),
        ("existing labels do not get deleted", &new, with_own.clone(), false, &with_own),
        ("initial node has no opinion", &json!({}), with_own.clone(), false, &with_own),
        ("no update needed", &new, new.clone(), false, &new),
        ("existing node has nil labels", &new, Value::Null, true, &new),
        ("backfill for new stable labels", &new, partly, true, &new),
    ] {
        assert_eq!(labels_after(initial, &existing), (needs_update, expected.clone()), "{name}");
    }
}

/// Capacity and allocatable of the existing node after the patch; `null` is a removed amount.
fn resources_after(initial: &Value, existing: &Value, resets: bool) -> (bool, Value) {
    let of = |status: &Value| node(&json!({"metadata": {"name": "n"}, "status": status}));
    let patch = compute_reconciliation(&of(initial), &of(existing), resets);
    let mut after = json!({"capacity": {}, "allocatable": {}});
    for list in ["capacity", "allocatable"] {
        let patched = patch.as_ref().and_then(|patch| patch["status"][list].as_object());
        for (name, amount) in existing[list].as_object().into_iter().chain(patched).flatten() {
            if amount.is_null() {
                after[list].as_object_mut().unwrap().remove(name);
            } else {
                after[list][name] = amount.clone();
            }
        }
    }
    (patch.is_some(), after)
}

fn both(extra: &Value) -> Value {
    let mut amounts = json!({"cpu": "2", "memory": "10G", "ephemeral-storage": "5k"});
    for (name, amount) in extra.as_object().unwrap() {
        amounts[name] = amount.clone();
    }
    json!({"capacity": amounts, "allocatable": amounts})
}

#[test]
fn update_default_resources_table() {
    let full = both(&json!({}));
    let only = |list: &str| json!({list: full[list]});
    let empty = json!({"capacity": {}, "allocatable": {}});
    for (name, initial, existing, needs_update, expected) in [
        ("nothing is nil", full.clone(), full.clone(), false, &full),
        ("initial node without", json!({}), full.clone(), false, &full),
        ("existing node without", full.clone(), json!({}), true, &full),
        ("existing node without capacity", only("capacity"), only("allocatable"), true, &full),
        ("existing node without allocatable", only("allocatable"), only("capacity"), true, &full),
        ("neither has any", json!({}), json!({}), false, &empty),
    ] {
        assert_eq!(resources_after(&initial, &existing, false), (needs_update, expected.clone()), "{name}");
    }
}

#[test]
fn reconcile_huge_page_resource_table() {
    let (two, one) = ("hugepages-2Mi", "hugepages-1Gi");
    let same = json!({two: "100Mi", "hugepages-64Ki": "0"});
    for (name, initial, existing, needs_update) in [
        ("similar", same.clone(), Some(same.clone()), false),
        ("new size is supported", json!({two: "0", one: "2Gi"}), Some(json!({two: "100Mi"})), true),
        ("quantity has changed", json!({one: "4Gi"}), Some(json!({one: "2Gi"})), true),
        ("no longer supported", json!({one: "2Gi"}), Some(json!({two: "0", one: "2Gi"})), true),
        ("existing node has none", same, None, true),
    ] {
        let (initial, existing) = (both(&initial), existing.map_or_else(|| json!({}), |e| both(&e)));
        assert_eq!(resources_after(&initial, &existing, false), (needs_update, initial.clone()), "{name}");
    }
}

#[test]
fn reconcile_extended_resource_table() {
    let (known, gone) = (
        both(&json!({"test.com/resource1": "2", "test.com/resource2": "10"})),
        both(&json!({"test.com/resource1": "0", "test.com/resource2": "0"})),
    );
    let none = both(&json!({}));
    for (name, initial, existing, needs_update, expected) in [
        ("without extended resource", &none, none.clone(), false, &none),
        ("capacity is zeroed", &known, known.clone(), true, &gone),
        ("existing node without allocatable", &known, json!({"capacity": known["capacity"]}), true, &gone),
    ] {
        assert_eq!(resources_after(initial, &existing, true), (needs_update, expected.clone()), "{name}");
    }
}

#[test]
fn node_status_has_changed_table() {
    let condition = |kind: &str, status: &str, heartbeat: u8, transition: u8| {
        json!({"type": kind, "status": status, "lastHeartbeatTime": format!("2015-01-01T12:0{heartbeat}:00Z"),
            "lastTransitionTime": format!("2015-01-01T12:0{transition}:00Z")})
    };
    let ready = condition("Ready", "True", 0, 0);
    let beat = condition("Ready", "True", 1, 0);
    let turned = condition("Ready", "True", 1, 1);
    let not_ready = condition("Ready", "False", 0, 0);
    let memory = condition("MemoryPressure", "False", 0, 0);
    let of = |status: &Value| -> Node { node(&json!({"metadata": {"name": "n"}, "status": status})) };
    let all = |conditions: &[&Value]| json!({"conditions": conditions});
    let running = |phase: &str| json!({"phase": phase, "conditions": [ready]});
    for (name, old, new, has_changed) in [
        ("nil", Value::Null, Value::Null, false),
        ("default", json!({}), json!({}), false),
        ("nil and status", Value::Null, all(&[&ready, &memory]), true),
        ("empty conditions", all(&[]), all(&[]), false),
        ("same", all(&[&ready, &memory]), all(&[&ready, &memory]), false),
        ("heartbeat", all(&[&ready, &memory]), all(&[&beat, &memory]), false),
        ("order of conditions", all(&[&ready, &memory]), all(&[&memory, &beat]), false),
        ("status of a condition", all(&[&ready, &memory]), all(&[&not_ready, &memory]), true),
        ("transition time", all(&[&ready, &memory]), all(&[&turned, &memory]), true),
        ("number of conditions", all(&[&ready]), all(&[&ready, &memory]), true),
        ("phase", running("Pending"), running("Running"), true),
    ] {
        assert_eq!(status_differs(&of(&old), &of(&new)), has_changed, "{name}");
    }
}

/// Merged by type, the API would keep one address of each; the patch therefore replaces the list.
#[test]
fn update_node_addresses_table() {
    let addresses = |text: &str| {
        let internal = text.split_whitespace().map(|ip| json!({"type": "InternalIP", "address": ip}));
        let mut all: Vec<Value> = internal.collect();
        all.push(json!({"type": "Hostname", "address": "n"}));
        Value::Array(all)
    };
    let of =
        |addresses: &Value| node(&json!({"metadata": {"name": "n"}, "status": {"addresses": addresses}}));
    for (name, before, after) in [
        ("nil to populated", Value::Null, addresses("127.0.0.1")),
        ("empty to populated", json!([]), addresses("127.0.0.1")),
        ("populated to nil", addresses("127.0.0.1"), Value::Null),
        ("populated to empty", addresses("127.0.0.1"), json!([])),
        (
            "several, no change",
            addresses("127.0.0.1 127.0.0.2 127.0.0.3"),
            addresses("127.0.0.1 127.0.0.2 127.0.0.3"),
        ),
        ("one to two", addresses("127.0.0.1"), addresses("127.0.0.1 127.0.0.2")),
        ("two to one", addresses("127.0.0.1 127.0.0.2"), addresses("127.0.0.1")),
        ("two to two others", addresses("127.0.0.1 127.0.0.2"), addresses("127.0.0.3 127.0.0.4")),
        ("reversed order", addresses("127.0.0.1 127.0.0.2"), addresses("127.0.0.2 127.0.0.1")),
    ] {
        let patch = compute_node_patch(&of(&before), &of(&after));
        if before == after {
            assert_eq!(patch, None, "{name}");
            continue;
        }
        let patch = patch.unwrap_or_else(|| panic!("{name}: no patch"));
        let sent = patch["status"]["addresses"].as_array().cloned().unwrap_or_default();
        let (directives, values): (Vec<Value>, Vec<Value>) =
            sent.into_iter().partition(|item| item.get("$patch").is_some());
        let expected = after.as_array().cloned().unwrap_or_default();
        assert_eq!(values, expected, "{name}: {patch}");
        let is_replaced = directives == [json!({"$patch": "replace"})];
        assert!(is_replaced || patch["status"]["addresses"].is_null(), "{name}: {patch}");
    }
}
