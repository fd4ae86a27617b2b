//! `metadata.managedFields` as clients send them. The real server stores what a client sent, and adds an entry of its own; this one
//! adds none, because it does not track which manager owns a field.

use serde_json::Value;

use crate::object;

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
}
