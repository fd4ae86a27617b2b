//! Access to the metadata of an object that is a JSON tree. It has no rules of any kind.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The string at a JSON pointer, or the empty string.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// The owner reference of what a controller makes for this pod.
pub(crate) fn pod_as_owner(pod: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "name": name(pod),
        "uid": uid(pod),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Whether all containers of a pod have ended for good: it uses nothing any more.
pub(crate) fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

/// The items of the array at a JSON pointer; empty if it is not an array.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn finalizers(object: &Value) -> &[Value] {
    items(object, "/metadata/finalizers")
}

/// The UIDs of its owners.
pub(crate) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/metadata/ownerReferences").iter().map(|owner| text(owner, "/uid"))
}

/// The object's `metadata`, created if it was missing. An object that is no JSON object becomes one.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    map_at(object, "metadata")
}

pub(crate) fn set_resource_version(object: &mut Value, revision: u64) {
    metadata(object).insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
}

/// The map below `key`, created if it was missing or not a map.
pub(crate) fn map_at<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let child = as_map(object).entry(key).or_insert_with(|| json!({}));
    as_map(child)
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { unreachable!("the line above made it a map") };
    map
}

/// Sets a list of the metadata, or removes it if it is empty.
pub(crate) fn set_list(metadata: &mut Map<String, Value>, field: &str, list: Vec<Value>) {
    match list.is_empty() {
        true => drop(metadata.remove(field)),
        false => drop(metadata.insert(field.to_owned(), Value::Array(list))),
    }
}

/// Copies a top-level field from `from`, or removes it if `from` has none.
pub(crate) fn keep_field(object: &mut Value, from: &Value, field: &str) {
    let map = as_map(object);
    match from.get(field) {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}

/// A time as the API writes it: RFC 3339 in whole seconds.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
