//! Configuration as a tree of JSON values, before it becomes typed: dotted paths, merge patch, leaves.
//! Knows no field names.

use serde_json::{Map, Value};

pub(crate) fn empty() -> Value {
    Value::Object(Map::new())
}

/// The value at a dotted path, if every step exists.
pub(crate) fn get<'a>(tree: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(tree, |at, step| at.get(step))
}

/// Sets the value at a dotted path. Values on the way that are no objects are replaced by objects.
pub(crate) fn set(tree: &mut Value, path: &str, value: Value) {
    let mut at = tree;
    for step in path.split('.') {
        if !at.is_object() {
            *at = empty();
        }
        let Value::Object(fields) = at else { return };
        at = fields.entry(step).or_insert(Value::Null);
    }
    *at = value;
}

/// Removes the value at a dotted path.
pub(crate) fn remove(tree: &mut Value, path: &str) {
    let (parents, last) = path.rsplit_once('.').map_or((None, path), |(up, last)| (Some(up), last));
    let steps = parents.into_iter().flat_map(|up| up.split('.'));
    let mut at = Some(tree);
    for step in steps {
        at = at.and_then(|value| value.get_mut(step));
    }
    if let Some(Value::Object(fields)) = at {
        fields.remove(last);
    }
}

/// RFC 7396: objects merge key by key, `null` removes, anything else replaces.
pub(crate) fn merge_patch(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = empty();
    }
    let Value::Object(fields) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(&key);
        } else {
            merge_patch(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Removes every `null` field: in the API, null and absent are the same.
pub(crate) fn drop_nulls(tree: &mut Value) {
    match tree {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Every path of `tree` that goes as deep as `shape` has fields. Free-form maps and lists are one leaf.
pub(crate) fn leaves<'a>(tree: &'a Value, shape: &Value) -> Vec<(String, &'a Value)> {
    let mut found = Vec::new();
    collect_leaves(tree, shape, String::new(), &mut found);
    found
}

fn collect_leaves<'a>(tree: &'a Value, shape: &Value, prefix: String, found: &mut Vec<(String, &'a Value)>) {
    match (tree, shape) {
        (Value::Object(fields), Value::Object(known)) if !known.is_empty() => {
            for (key, value) in fields {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                collect_leaves(value, known.get(key).unwrap_or(&Value::Null), path, found);
            }
        }
        _ => found.push((prefix, tree)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patch_merges_objects_replaces_lists_and_removes_nulls() {
        let mut tree = json!({"a": {"b": 1, "c": 2}, "l": [1, 2], "gone": true});
        merge_patch(&mut tree, json!({"a": {"c": 3, "d": 4}, "l": [9], "gone": null}));
        assert_eq!(tree, json!({"a": {"b": 1, "c": 3, "d": 4}, "l": [9]}));
    }

    #[test]
    fn dotted_path_is_set_found_and_removed() {
        let mut tree = empty();
        set(&mut tree, "a.b.c", json!(1));
        assert_eq!(get(&tree, "a.b.c"), Some(&json!(1)));
        remove(&mut tree, "a.b.c");
        assert_eq!(tree, json!({"a": {"b": {}}}));
        remove(&mut tree, "x.y");
        assert_eq!(get(&tree, "a.b.c"), None);
    }

    #[test]
    fn leaves_stop_where_the_shape_has_no_fields() {
        let tree = json!({"a": {"x": 1}, "map": {"k": "v"}, "new": 1});
        let shape = json!({"a": {"x": 0}, "map": {}});
        let paths: Vec<String> = leaves(&tree, &shape).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["a.x", "map", "new"]);
    }
}
