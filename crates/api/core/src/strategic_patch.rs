//! Strategic merge patches: only what changed, so that fields written by other clients, or by a newer API, stay
//! (docs/behaviour/api-server.md).
//!
//! Owns: the comparison of two JSON trees. Never: which fields belong to the kubelet; the caller keeps the others equal in
//! both trees.
//!
//! The API server writes out unset structs and times (`lastState: {}`, `lastProbeTime: null`). Such a value equals a
//! missing field, so that it never causes a patch by itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::Amount;
use serde_json::{Map, Value, json};

/// How the API merges a list that it does not replace, by the name of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedList {
    pub field: &'static str,
    /// The field that identifies an element.
    pub key: &'static str,
    pub how: ListMerge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMerge {
    /// Changed elements are sent, the others stay.
    ByKey,
    /// The whole list is sent, with the directive to replace the old one.
    Replaced,
}

/// Maps of quantities, which the API server writes in their canonical form: `0.5` comes back as `500m`.
const QUANTITY_MAPS: [&str; 5] = ["allocatable", "allocatedResources", "capacity", "limits", "requests"];

/// Members of a union whose presence alone is the information: a container with `running: {}` runs.
const UNION_MEMBERS: [&str; 3] = ["running", "terminated", "waiting"];

/// The patch that turns `old` into `new`; `None` if they are equal.
#[must_use]
pub fn compute_strategic_patch(old: &Value, new: &Value, lists: &[MergedList]) -> Option<Value> {
    let empty = Map::new();
    let patch = object_patch(old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty), lists);
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn object_patch(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    lists: &[MergedList],
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (field, value) in new {
        let before = old.get(field);
        if is_same(field, before, Some(value)) {
            continue;
        }
        if let Some(change) = field_patch(field, before, value, lists) {
            patch.insert(field.clone(), change);
        }
    }
    let removed = |(field, before): &(&String, &Value)| {
        !new.contains_key(*field) && !is_same(field, Some(before), None)
    };
    for (field, before) in old.iter().filter(removed) {
        // Elements of a merged list are removed only if they were in `old`; other clients may have added elements.
        let is_keyed = lists.iter().any(|list| list.field == field && list.how == ListMerge::ByKey);
        let change =
            if is_keyed { field_patch(field, Some(before), &json!([]), lists) } else { Some(Value::Null) };
        patch.extend(change.map(|change| (field.clone(), change)));
    }
    patch
}

/// The two values of a field are equal for a client of the API, or differ only in empty values.
fn is_same(field: &str, old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) if QUANTITY_MAPS.contains(&field) => {
            old.len() == new.len()
                && old
                    .iter()
                    .all(|(name, value)| new.get(name).is_some_and(|new| is_same_quantity(value, new)))
        }
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            new.iter().all(|(field, value)| is_same(field, old.get(field), Some(value)))
                && old
                    .iter()
                    .all(|(field, value)| new.contains_key(field) || is_same(field, Some(value), None))
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same("", Some(old), Some(new)))
        }
        (Some(value), None) | (None, Some(value)) => is_empty(field, value),
        (Some(old), Some(new)) => old == new || (is_empty(field, old) && is_empty(field, new)),
        (None, None) => true,
    }
}

fn is_same_quantity(old: &Value, new: &Value) -> bool {
    let amount = |value: &Value| value.as_str().and_then(|text| Amount::parse(text).ok());
    old == new || amount(old).is_some_and(|old| amount(new) == Some(old))
}

/// The value is equivalent to a missing field.
fn is_empty(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => {
            !UNION_MEMBERS.contains(&field) && fields.iter().all(|(field, value)| is_empty(field, value))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The change of one field whose values differ.
fn field_patch(field: &str, old: Option<&Value>, new: &Value, lists: &[MergedList]) -> Option<Value> {
    match (old, new) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            Some(Value::Object(object_patch(old, new, lists))).filter(|patch| *patch != json!({}))
        }
        (old, Value::Array(new)) => {
            let old = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            match lists.iter().find(|list| list.field == field) {
                Some(list) => match list.how {
                    ListMerge::ByKey => keyed_patch(list.key, old, new, lists),
                    ListMerge::Replaced => Some(replaced(new)),
                },
                None => Some(Value::Array(new.clone())),
            }
        }
        (_, new) => Some(new.clone()),
    }
}

fn replaced(new: &[Value]) -> Value {
    let mut list = new.to_vec();
    list.push(json!({"$patch": "replace"}));
    Value::Array(list)
}

fn keyed_patch(key: &str, old: &[Value], new: &[Value], lists: &[MergedList]) -> Option<Value> {
    let mut changes = Vec::new();
    // Of several elements with one key the first counts.
    let old_by_key: BTreeMap<_, _> =
        old.iter().rev().map(|element| (key_of(element, key), element)).collect();
    for element in new {
        let name = element.get(key);
        let before = old_by_key.get(&key_of(element, key)).and_then(|before| before.as_object());
        match (before, element.as_object()) {
            (Some(before), Some(after)) => {
                let mut change = object_patch(before, after, lists);
                if !change.is_empty() {
                    change.insert(key.to_owned(), name.cloned().unwrap_or_default());
                    changes.push(Value::Object(change));
                }
            }
            (None | Some(_), _) => changes.push(element.clone()),
        }
    }
    let new_keys: BTreeSet<_> = new.iter().map(|element| key_of(element, key)).collect();
    for element in old {
        let name = element.get(key);
        if !new_keys.contains(&key_of(element, key)) {
            let mut removal = Map::new();
            removal.insert("$patch".to_owned(), "delete".into());
            removal.insert(key.to_owned(), name.cloned().unwrap_or_default());
            changes.push(Value::Object(removal));
        }
    }
    (!changes.is_empty()).then_some(Value::Array(changes))
}

/// The value of an element's key in an order: texts as they are, others as JSON.
fn key_of<'v>(element: &'v Value, key: &str) -> Option<(bool, Cow<'v, str>)> {
    element.get(key).map(|value| match value {
        Value::String(text) => (true, Cow::Borrowed(text.as_str())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            (false, Cow::Owned(value.to_string()))
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LISTS: [MergedList; 2] = [
        MergedList { field: "keyed", key: "type", how: ListMerge::ByKey },
        MergedList { field: "whole", key: "type", how: ListMerge::Replaced },
    ];

    #[track_caller]
    fn check(old: &Value, new: &Value, expected: &Value) {
        let patch = compute_strategic_patch(old, new, &LISTS).unwrap_or_default();
        assert_eq!(patch, *expected, "{old} {new}");
    }

    #[test]
    fn only_what_changed_is_sent() {
        check(&json!({"a": 1, "b": {"c": 2, "d": 3}}), &json!({"a": 1, "b": {"c": 2, "d": 3}}), &Value::Null);
        check(
            &json!({"a": 1, "b": {"c": 2, "d": 3}}),
            &json!({"a": 1, "b": {"c": 4, "d": 3}}),
            &json!({"b": {"c": 4}}),
        );
        check(&json!({"a": 1, "b": 2}), &json!({"b": 2, "n": {"x": 1}}), &json!({"a": null, "n": {"x": 1}}));
    }

    #[test]
    fn lists_are_replaced_unless_the_api_merges_them() {
        check(&json!({"plain": [1, 2]}), &json!({"plain": [2]}), &json!({"plain": [2]}));
        check(
            &json!({"keyed": [{"type": "A", "s": 1}, {"type": "B", "s": 1}, {"type": "C"}]}),
            &json!({"keyed": [{"type": "A", "s": 1}, {"type": "B", "s": 2}, {"type": "D"}]}),
            &json!({"keyed": [{"type": "B", "s": 2}, {"type": "D"}, {"type": "C", "$patch": "delete"}]}),
        );
        check(
            &json!({"keyed": [{"type": "A", "s": 1}]}),
            &json!({}),
            &json!({"keyed": [{"type": "A", "$patch": "delete"}]}),
        );
        check(
            &json!({"whole": [{"type": "A", "x": 1}]}),
            &json!({"whole": [{"type": "A", "x": 2}]}),
            &json!({"whole": [{"type": "A", "x": 2}, {"$patch": "replace"}]}),
        );
    }

    #[test]
    fn empty_values_of_the_api_server_make_no_patch() {
        let in_api = json!({"containers": [{"name": "c", "lastState": {}, "resources": {}, "ports": []}],
            "keyed": [{"type": "A", "lastProbeTime": null}], "nominated": {"on": {}}});
        let ours = json!({"containers": [{"name": "c"}], "keyed": [{"type": "A"}]});
        check(&in_api, &ours, &Value::Null);
        check(&ours, &in_api, &Value::Null);
    }

    #[test]
    fn quantities_in_canonical_form_make_no_patch() {
        let of = |cpu: &str, memory: &str| {
            let amounts = json!({"cpu": cpu, "memory": memory});
            json!({"allocatedResources": amounts, "resources": {"requests": amounts},
                "list": [{"resources": {"limits": amounts}}]})
        };
        check(&of("500m", "256Mi"), &of("0.5", "0.25Gi"), &Value::Null);
        check(&of("500m", "256Mi"), &of("500m", "268435456"), &Value::Null);
        let changed = compute_strategic_patch(&of("500m", "256Mi"), &of("0.6", "256Mi"), &LISTS).unwrap();
        assert_eq!(changed["allocatedResources"]["cpu"], "0.6");
    }

    #[test]
    fn an_empty_member_of_a_union_is_a_change() {
        check(
            &json!({"state": {"waiting": {}}}),
            &json!({"state": {"running": {}}}),
            &json!({"state": {"running": {}, "waiting": null}}),
        );
        check(
            &json!({"list": [{"state": {}}]}),
            &json!({"list": [{"state": {"waiting": {}}}]}),
            &json!({"list": [{"state": {"waiting": {}}}]}),
        );
    }

    #[test]
    fn the_order_of_a_keyed_list_is_no_change() {
        let (ab, ba) = (
            json!({"keyed": [{"type": "A"}, {"type": "B"}]}),
            json!({"keyed": [{"type": "B"}, {"type": "A"}]}),
        );
        check(&ab, &ba, &Value::Null);
    }

    /// What a server makes of a patch.
    fn apply(target: &mut Value, patch: &Value) {
        let Some(patch) = patch.as_object() else { return };
        for (field, change) in patch {
            let target = target.as_object_mut().unwrap();
            match (field.as_str(), change) {
                (_, Value::Null) => drop(target.remove(field)),
                ("keyed", Value::Array(changes)) => {
                    apply_keyed(target.entry(field).or_insert(json!([])), changes)
                }
                ("whole", Value::Array(list)) => {
                    target.insert(field.clone(), Value::Array(list[..list.len() - 1].to_vec()));
                }
                (_, Value::Object(_)) if target.get(field).is_some_and(Value::is_object) => {
                    apply(&mut target[field], change);
                }
                (_, other) => drop(target.insert(field.clone(), other.clone())),
            }
        }
    }

    fn apply_keyed(list: &mut Value, changes: &[Value]) {
        let list = list.as_array_mut().unwrap();
        for change in changes {
            let at = list.iter().position(|e| e["type"] == change["type"]);
            match (at, change.get("$patch").is_some()) {
                (Some(at), true) => drop(list.remove(at)),
                (Some(at), false) => apply(&mut list[at], change),
                (None, _) => list.push(change.clone()),
            }
        }
    }

    fn any_tree() -> impl Strategy<Value = Value> {
        let scalar = (0..3_u8).prop_map(|n| json!(n));
        let inner = prop::collection::btree_map("[a-c]", scalar.clone(), 0..3).prop_map(|m| json!(m));
        let keyed = prop::collection::btree_map("[A-C]", 0..3_u8, 0..3)
            .prop_map(|m| m.into_iter().map(|(k, v)| json!({"type": k, "v": v})).collect::<Vec<_>>());
        (prop::collection::btree_map("[a-c]", prop_oneof![scalar, inner], 0..3), keyed.clone(), keyed)
            .prop_map(|(plain, keyed, whole)| {
                let mut tree = json!(plain);
                tree["keyed"] = json!(keyed);
                tree["whole"] = json!(whole);
                tree["list"] = json!([tree["a"].clone()]);
                tree
            })
    }

    fn sorted(mut tree: Value) -> Value {
        if let Some(list) = tree.get_mut("keyed").and_then(Value::as_array_mut) {
            list.sort_by_key(|e| e["type"].to_string());
        }
        tree
    }

    proptest! {
        #[test]
        fn applying_the_patch_gives_the_new_tree(old in any_tree(), new in any_tree()) {
            let mut target = old.clone();
            apply(&mut target, &compute_strategic_patch(&old, &new, &LISTS).unwrap_or_default());
            prop_assert!(is_same("", Some(&sorted(target)), Some(&sorted(new))));
        }

        #[test]
        fn alike_trees_need_no_patch(tree in any_tree()) {
            prop_assert_eq!(compute_strategic_patch(&tree, &tree, &LISTS), None);
        }
    }
}
