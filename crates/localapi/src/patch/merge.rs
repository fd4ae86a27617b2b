//! JSON merge patch (RFC 7386): maps are merged, null deletes, anything else replaces.

use serde_json::{Map, Value};

pub(super) fn apply(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut merged: Map<String, Value> = target.as_object().cloned().unwrap_or_default();
    for (key, change) in patch {
        if change.is_null() {
            merged.remove(key);
        } else {
            let before = merged.remove(key).unwrap_or(Value::Null);
            merged.insert(key.clone(), apply(&before, change));
        }
    }
    Value::Object(merged)
}
