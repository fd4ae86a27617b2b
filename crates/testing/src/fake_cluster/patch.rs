//! The three kinds of patches over JSON trees.

use ports::cluster::Patch;
use serde_json::{Map, Value};

/// Lists that merge, by the name of their field, with the key of their items; `""` for plain values. Where two kinds
/// disagree on a field, no kind of this port is one of them.
const MERGED: &[(&str, &str)] = &[
    ("addresses", "type"),
    ("conditions", "type"),
    ("containers", "name"),
    ("env", "name"),
    ("ephemeralContainers", "name"),
    ("finalizers", ""),
    ("hostAliases", "ip"),
    ("hostIPs", "ip"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("ownerReferences", "uid"),
    ("podCIDRs", ""),
    ("podIPs", "ip"),
    ("secrets", "name"),
    ("volumeDevices", "devicePath"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];

/// # Errors
/// What is wrong with the patch.
pub(super) fn apply(object: &mut Value, patch: &Patch) -> Result<(), String> {
    match patch {
        Patch::Merge(patch) => merge(object, patch),
        Patch::Strategic(patch) => strategic(object, patch),
        Patch::Json(operations) => {
            for operation in operations.as_array().ok_or("a JSON patch is a list of operations")? {
                operate(object, operation)?;
            }
        }
    }
    Ok(())
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    let target = as_object(target);
    for (key, value) in fields {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("it was just made one")
        }
    }
}

fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if patch["$patch"] == "replace" {
        *target = patch.clone();
        as_object(target).remove("$patch");
        return;
    }
    let target = as_object(target);
    if let Some(kept) = patch["$retainKeys"].as_array() {
        target.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    for (key, value) in fields {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (target.get_mut(list), value) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        // The order of items is not kept here.
        if key.starts_with('$') {
            continue;
        }
        let key_of_items = MERGED.iter().find(|(name, _)| name == key).map(|(_, key)| *key);
        match (key_of_items, value) {
            (_, Value::Null) => drop(target.remove(key)),
            (Some(by), Value::Array(items)) => {
                let slot = target.entry(key.clone()).or_insert(Value::Null);
                if !slot.is_array() {
                    *slot = Value::Array(Vec::new());
                }
                if let Value::Array(existing) = slot {
                    merge_list(existing, items, by);
                }
            }
            (_, value) => strategic(target.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

fn merge_list(existing: &mut Vec<Value>, items: &[Value], by: &str) {
    if by.is_empty() {
        for item in items {
            if !existing.contains(item) {
                existing.push(item.clone());
            }
        }
        return;
    }
    if items.iter().any(|item| item["$patch"] == "replace") {
        existing.clear();
    }
    for item in items {
        let place = existing.iter().position(|one| one[by] == item[by]);
        match (item["$patch"].as_str(), place) {
            (Some("replace"), _) | (Some("delete"), None) => {}
            (Some("delete"), Some(place)) => drop(existing.remove(place)),
            (_, Some(place)) => strategic(&mut existing[place], item),
            (_, None) => {
                let mut new = Value::Object(Map::new());
                strategic(&mut new, item);
                existing.push(new);
            }
        }
    }
}

fn operate(object: &mut Value, operation: &Value) -> Result<(), String> {
    let path = operation["path"].as_str().ok_or("an operation needs a path")?;
    let from = operation["from"].as_str().unwrap_or_default();
    let value = operation["value"].clone();
    match operation["op"].as_str().unwrap_or_default() {
        "test" if object.pointer(path) == Some(&value) => Ok(()),
        "test" => Err(format!("the value at {path} is not {value}")),
        "add" => put(object, path, value),
        "replace" => match object.pointer_mut(path) {
            Some(slot) => {
                *slot = value;
                Ok(())
            }
            None => Err(format!("there is nothing at {path}")),
        },
        "remove" => take(object, path).map(drop),
        "move" => take(object, from).and_then(|value| put(object, path, value)),
        "copy" => match object.pointer(from).cloned() {
            Some(value) => put(object, path, value),
            None => Err(format!("there is nothing at {from}")),
        },
        other => Err(format!("no operation {other:?}")),
    }
}

/// What holds the value at `path`, and the value's key in it.
fn holder<'a>(object: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (holder, key) = path.rsplit_once('/').ok_or_else(|| format!("{path:?} is no path"))?;
    let found = object.pointer_mut(holder).ok_or_else(|| format!("there is nothing at {holder}"))?;
    Ok((found, key.replace("~1", "/").replace("~0", "~")))
}

fn put(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (holder, key) = holder(object, path)?;
    match holder {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let place = if key == "-" { items.len() } else { key.parse().unwrap_or(usize::MAX) };
            if place > items.len() {
                return Err(format!("there is no place {path}"));
            }
            items.insert(place, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(format!("{path} is below a plain value"));
        }
    }
    Ok(())
}

fn take(object: &mut Value, path: &str) -> Result<Value, String> {
    let (holder, key) = holder(object, path)?;
    let taken = match holder {
        Value::Object(fields) => fields.remove(&key),
        Value::Array(items) => {
            key.parse().ok().filter(|place: &usize| *place < items.len()).map(|place| items.remove(place))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    taken.ok_or_else(|| format!("there is nothing at {path}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut object: Value, patch: Patch) -> Value {
        apply(&mut object, &patch).unwrap();
        object
    }

    #[test]
    fn a_merge_patch_replaces_lists_and_removes_nulls() {
        let object = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        let patch = json!({"a": {"b": null, "d": 3}, "l": [3]});
        assert_eq!(patched(object, Patch::Merge(patch)), json!({"a": {"c": 2, "d": 3}, "l": [3]}));
    }

    #[test]
    fn a_strategic_patch_merges_lists_by_their_keys() {
        let object = json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}],
            "containerStatuses": [{"name": "x"}]}, "metadata": {"finalizers": ["f", "g"]}});
        let patch = json!({"status": {
            "$setElementOrder/conditions": [{"type": "A"}, {"type": "C"}],
            "conditions": [{"type": "A", "status": "False"}, {"type": "B", "$patch": "delete"}, {"type": "C"}],
            "containerStatuses": [{"name": "y"}]},
            "metadata": {"$deleteFromPrimitiveList/finalizers": ["f"], "finalizers": ["h"]}});
        let expected = json!({"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "C"}],
            "containerStatuses": [{"name": "y"}]}, "metadata": {"finalizers": ["g", "h"]}});
        assert_eq!(patched(object, Patch::Strategic(patch)), expected);
    }

    #[test]
    fn a_json_patch_does_its_operations_in_order_or_fails() {
        let object = json!({"a": {"x/y": 1}, "l": [1, 2]});
        let patch = json!([
            {"op": "test", "path": "/a/x~1y", "value": 1},
            {"op": "add", "path": "/l/-", "value": 3},
            {"op": "remove", "path": "/l/0"},
            {"op": "move", "from": "/a/x~1y", "path": "/b"},
            {"op": "replace", "path": "/b", "value": 5},
        ]);
        assert_eq!(patched(object, Patch::Json(patch)), json!({"a": {}, "l": [2, 3], "b": 5}));
        for patch in [
            json!([{"op": "test", "path": "/a", "value": 2}]),
            json!([{"op": "remove", "path": "/none"}]),
            json!([{"op": "add", "path": "/l/9", "value": 1}]),
            json!([{"op": "shuffle", "path": "/l"}]),
            json!({}),
        ] {
            assert!(apply(&mut json!({"a": 1, "l": []}), &Patch::Json(patch.clone())).is_err(), "{patch}");
        }
    }
}
