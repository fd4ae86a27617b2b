//! Lists as tables, for `kubectl get`.
//!
//! Owns the columns of each resource and their cells. Never selects or orders objects.

mod age;
mod columns;
mod kinds;
mod pod;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

/// A `meta.k8s.io/v1` Table of these objects of `resource` (the plural name), one row each and in their order.
///
/// Each row contains the metadata of its object. Ages are relative to `now`. The caller sets the metadata of the list.
#[must_use]
pub fn render(resource: &str, objects: &[Value], now: Timestamp) -> Value {
    let definitions: Vec<Value> = columns::of(resource).iter().map(columns::Column::definition).collect();
    let rows: Vec<Value> = objects.iter().map(|object| row(resource, object, now)).collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn row(resource: &str, object: &Value, now: Timestamp) -> Value {
    let view = View { object, now };
    let cells = match resource {
        "pods" => pod::cells(view),
        "nodes" => kinds::node(view),
        "events" => kinds::event(view),
        "services" => kinds::service(view),
        "persistentvolumes" => kinds::persistent_volume(view),
        "persistentvolumeclaims" => kinds::persistent_volume_claim(view),
        "certificatesigningrequests" => kinds::certificate_signing_request(view),
        "csidrivers" => kinds::csi_driver(view),
        "leases" => vec![view.name(), view.text("/spec/holderIdentity").into(), view.age()],
        "namespaces" => vec![view.name(), view.text("/status/phase").into(), view.age()],
        "configmaps" => {
            vec![view.name(), (view.count("/data") + view.count("/binaryData")).into(), view.age()]
        }
        "secrets" => {
            vec![view.name(), view.text("/type").into(), view.count("/data").into(), view.age()]
        }
        "runtimeclasses" => vec![view.name(), view.text("/handler").into(), view.age()],
        "csinodes" => vec![view.name(), view.count("/spec/drivers").into(), view.age()],
        "volumeattachments" => kinds::volume_attachment(view),
        "limitranges" => vec![view.name(), view.text("/metadata/creationTimestamp").into()],
        "resourceclaims" => kinds::resource_claim(view),
        "resourceslices" => kinds::resource_slice(view),
        "resourcequotas" => kinds::resource_quota(view),
        "priorityclasses" => kinds::priority_class(view),
        "storageclasses" => kinds::storage_class(view),
        "rolebindings" | "clusterrolebindings" => kinds::role_binding(view),
        "roles" | "clusterroles" => vec![view.name(), view.text("/metadata/creationTimestamp").into()],
        _ => vec![view.name(), view.age()],
    };
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let mut row = json!({
        "cells": cells,
        "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata},
    });
    if resource == "pods"
        && let Some(condition) = pod::completed(view)
    {
        row["conditions"] = json!([condition]);
    }
    row
}

/// An object and the current time.
#[derive(Clone, Copy)]
struct View<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl<'a> View<'a> {
    /// The string at a JSON pointer, or an empty one.
    fn text(self, pointer: &str) -> &'a str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The string, or `none` if it is empty.
    fn text_or(self, pointer: &str, none: &'a str) -> &'a str {
        match self.text(pointer) {
            "" => none,
            text => text,
        }
    }

    fn flag(self, pointer: &str) -> bool {
        self.object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    /// The elements of a list.
    fn list(self, pointer: &str) -> &'a [Value] {
        self.object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The number of entries of a map or list.
    fn count(self, pointer: &str) -> usize {
        let value = self.object.pointer(pointer);
        let map = value.and_then(Value::as_object).map(serde_json::Map::len);
        map.unwrap_or_else(|| self.list(pointer).len())
    }

    fn name(self) -> Value {
        self.text("/metadata/name").into()
    }

    fn age(self) -> Value {
        self.since("/metadata/creationTimestamp").into()
    }

    /// How long ago the time at a JSON pointer was.
    fn since(self, pointer: &str) -> String {
        age::since(self.text(pointer), self.now)
    }

    fn is_terminating(self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }
}

/// The string in a field, or an empty one.
fn text_of<'a>(part: &'a Value, field: &str) -> &'a str {
    part.get(field).and_then(Value::as_str).unwrap_or_default()
}
