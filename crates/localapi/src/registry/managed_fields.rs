//! `metadata.managedFields` of each request: what a client sent is stored, and the server adds the entry of the writer.

use serde_json::Value;

use crate::api::Api;
use crate::defaults;
use crate::encoding;
use crate::managed_fields::{self, Writer};
use crate::object;
use crate::resources::{self, Resource};

/// Replaces what a client sent in `object` by what is stored, if `current` was stored before.
pub(super) fn store(object: &mut Value, current: Option<&Value>) {
    let stored = current.and_then(|current| current.pointer("/metadata/managedFields")).cloned();
    let metadata = object::metadata(object);
    let sent = metadata.remove("managedFields");
    let entries = sent.as_ref().and_then(Value::as_array).map(Vec::as_slice);
    let new = match entries {
        // The way to remove all of them; the real server takes a single empty entry for none, too.
        Some([]) => None,
        Some([Value::Object(entry)]) if entry.is_empty() => None,
        Some(entries) if entries.iter().all(is_decodable) => sent,
        // The real server ignores them if it cannot decode one of them.
        Some(_) | None => stored,
    };
    if let Some(new) = new {
        metadata.insert("managedFields".to_owned(), new);
    }
}

fn is_decodable(entry: &Value) -> bool {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    ["Apply", "Update"].contains(&text("operation"))
        && text("fieldsType") == "FieldsV1"
        && entry.get("fieldsV1").is_none_or(Value::is_object)
}

/// The entries of a new object. Its creator owns what it sent, with the defaults, but neither the status nor what admission adds.
pub(super) fn of_created(api: &Api, resource: &Resource, object: &Value, manager: &str) -> Option<Value> {
    if manager.is_empty() || !api.behaviour.managed_fields {
        return None;
    }
    let mut sent = object.clone();
    if resource.has_status()
        && let Some(fields) = sent.as_object_mut()
    {
        fields.remove("status");
    }
    defaults::apply(resource.name, &mut sent);
    encoding::complete(resource.name, &mut sent);
    let (version, time) = (stored_version(resource), object::time(api.now()));
    let writer = Writer { manager, api_version: &version, subresource: "", time: &time };
    managed_fields::track(resource.name, None, &sent, &writer)
}

/// Gives what changed to the writer of an update.
pub(super) fn update(
    api: &Api,
    resource: &Resource,
    subresource: &str,
    new: &mut Value,
    current: &Value,
    manager: &str,
) {
    if manager.is_empty() || !is_tracked(api, new) {
        return;
    }
    let (version, time) = (stored_version(resource), object::time(api.now()));
    let writer = Writer { manager, api_version: &version, subresource, time: &time };
    if let Some(entries) = managed_fields::track(resource.name, Some(current), new, &writer) {
        insert(new, entries);
    }
}

/// The version of the paths in entries: events of both groups are stored in one.
fn stored_version(resource: &Resource) -> String {
    resources::stored(resource.name).unwrap_or(resource).api_version()
}

/// An object without entries gets none before it is applied. Without [`Behaviour::managed_fields`](crate::Behaviour::managed_fields),
/// neither do objects that never were applied.
fn is_tracked(api: &Api, object: &Value) -> bool {
    let entries = object::items(object, "/metadata/managedFields");
    let is_applied = |entry: &Value| object::text(entry, "/operation") == "Apply";
    if api.behaviour.managed_fields { !entries.is_empty() } else { entries.iter().any(is_applied) }
}

/// Sets the entries, or removes them if there are none.
pub(super) fn insert(object: &mut Value, entries: Value) {
    let metadata = object::metadata(object);
    if entries.as_array().is_some_and(Vec::is_empty) {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

/// Whether both objects are the same, apart from the times of their entries: a write of only these is ignored.
pub(super) fn is_unchanged(new: &Value, current: &Value) -> bool {
    if new == current {
        return true;
    }
    same_but(new, current, "metadata", |new, current| {
        same_but(new, current, "managedFields", |new, current| match (new.as_array(), current.as_array()) {
            (Some(new), Some(current)) if new.len() == current.len() => {
                let mut pairs = new.iter().zip(current);
                pairs.all(|(new, current)| same_but(new, current, "time", |_, _| true))
            }
            _ => false,
        })
    })
}

/// Whether two maps are the same, apart from one field for which `same` decides.
fn same_but(new: &Value, current: &Value, except: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(new), Some(current)) = (new.as_object(), current.as_object()) else { return new == current };
    new.len() == current.len()
        && new.iter().all(|(field, value)| match current.get(field) {
            Some(other) if field == except => value == other || same(value, other),
            other => other == Some(value),
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str) -> Value {
        json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {}}})
    }

    fn stored(sent: Value, current: Option<Value>) -> Value {
        let object = |fields: Value| json!({"metadata": {"name": "a", "managedFields": fields}});
        let mut new = object(sent);
        store(&mut new, current.map(object).as_ref());
        new["metadata"].get("managedFields").cloned().unwrap_or_default()
    }

    #[test]
    fn sent_entries_are_stored_and_invalid_ones_leave_the_stored_ones() {
        let (one, two) = (json!([entry("one")]), json!([entry("one"), entry("two")]));
        assert_eq!(stored(two.clone(), None), two);
        assert_eq!(stored(two.clone(), Some(one.clone())), two);
        assert_eq!(stored(Value::Null, Some(one.clone())), one);
        assert_eq!(stored(json!([{"operation": "Delete"}]), Some(one.clone())), one);
        assert_eq!(stored(json!([]), Some(one.clone())), Value::Null);
        assert_eq!(stored(json!([{}]), Some(one)), Value::Null);
    }

    #[test]
    fn only_times_of_entries_do_not_count_as_a_change() {
        let object = |time: &str, manager: &str, data: &str| {
            let mut entry = entry(manager);
            entry["time"] = json!(time);
            json!({"metadata": {"name": "a", "managedFields": [entry]}, "data": {"a": data}})
        };
        let current = object("1", "one", "x");
        assert!(is_unchanged(&current, &current));
        assert!(is_unchanged(&object("2", "one", "x"), &current));
        assert!(!is_unchanged(&object("2", "two", "x"), &current));
        assert!(!is_unchanged(&object("1", "one", "y"), &current));
        assert!(!is_unchanged(&json!({"metadata": {"name": "a"}, "data": {"a": "x"}}), &current));
    }
}
