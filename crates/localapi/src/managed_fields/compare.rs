//! The paths at which two objects differ.
//!
//! Linear in the size of the objects; equal parts allocate nothing, except lists of which another part differs.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::Element;
use super::schema::Type;
use super::set::{FieldSet, Node};

/// The paths that only the old object has, those whose value differs, and those that only the new object has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    /// The paths that the writer of the new object wrote.
    pub(super) fn written(self) -> FieldSet {
        let mut written = self.modified;
        written.extend(self.added);
        written
    }
}

/// The same at one path.
#[derive(Debug, Default)]
struct Difference {
    removed: Node,
    modified: Node,
    added: Node,
}

pub(super) fn compare(kind: Type, old: &Value, new: &Value) -> Comparison {
    let difference = difference(kind, Some(old), Some(new));
    Comparison {
        removed: difference.removed.below,
        modified: difference.modified.below,
        added: difference.added.below,
    }
}

fn difference(kind: Type, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let kind = [old, new].into_iter().flatten().fold(kind, |kind, value| kind.fitting(value));
    // The difference between null, empty and missing is kept.
    if matches!(kind, Type::Leaf) || (is_empty(old) && is_empty(new)) {
        return leaf(old, new);
    }
    let mut difference = Difference::default();
    if kind.is_map() {
        compare_maps(kind, old.and_then(Value::as_object), new.and_then(Value::as_object), &mut difference);
    } else {
        let (old, new) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
        compare_lists(kind, old, new, &mut difference);
    }
    difference.added.member |= old.is_none();
    difference.removed.member |= new.is_none();
    difference
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Difference {
    let mut difference = Difference::default();
    match (old, new) {
        (None, Some(_)) => difference.added.member = true,
        (Some(_), None) => difference.removed.member = true,
        (old, new) => difference.modified.member = old != new,
    }
    difference
}

fn compare_maps(
    kind: Type,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    whole: &mut Difference,
) {
    let of = |name: &str| kind.field(name).unwrap_or(Type::Leaf);
    for (name, value) in old.into_iter().flatten() {
        let other = new.and_then(|new| new.get(name));
        whole.add(|| Element::Field(name.clone()), difference(of(name), Some(value), other));
    }
    for (name, value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            whole.add(|| Element::Field(name.clone()), difference(of(name), None, Some(value)));
        }
    }
}

fn compare_lists(kind: Type, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, whole: &mut Difference) {
    if old == new {
        return;
    }
    let (old, mut new) = (by_element(kind, old), by_element(kind, new));
    for (element, before) in old {
        let after = new.remove(&element).unwrap_or_default();
        whole.add(|| element, compare_elements(kind.item(), &before, &after));
    }
    for (element, after) in new {
        whole.add(|| element, compare_elements(kind.item(), &[], &after));
    }
}

fn by_element(kind: Type, items: Option<&Vec<Value>>) -> BTreeMap<Element, Vec<&Value>> {
    let mut elements: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items.into_iter().flatten() {
        elements.entry(kind.stored_element(item)).or_default().push(item);
    }
    elements
}

/// Compares the elements of one key. Several with the same key are like one atomic value.
fn compare_elements(kind: Type, old: &[&Value], new: &[&Value]) -> Difference {
    match (old, new) {
        ([] | [_], [] | [_]) => difference(kind, old.first().copied(), new.first().copied()),
        ([_, _, ..], [_, _, ..]) => {
            let mut changed = Difference::default();
            changed.modified.member = old != new;
            changed
        }
        ([_, _, ..], _) => {
            let mut changed = new.first().map(|new| difference(kind, None, Some(new))).unwrap_or_default();
            changed.removed.member = true;
            changed
        }
        (_, [_, _, ..]) => {
            let mut changed = old.first().map(|old| difference(kind, Some(old), None)).unwrap_or_default();
            changed.added.member = true;
            changed
        }
    }
}

impl Difference {
    fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    fn add(&mut self, element: impl FnOnce() -> Element, below: Self) {
        if below.is_empty() {
            return;
        }
        let element = element();
        self.removed.below.insert(element.clone(), below.removed);
        self.modified.below.insert(element.clone(), below.modified);
        self.added.below.insert(element, below.added);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Removed, modified and added.
    fn compared(plural: &str, old: Value, new: Value) -> [Value; 3] {
        let Comparison { removed, modified, added } = compare(Type::of_resource(plural), &old, &new);
        [removed, modified, added].map(|set| set.to_value())
    }

    #[test]
    fn maps_are_compared_by_key() {
        let old = json!({"data": {"a": "1", "b": "1", "c": "1"}});
        let new = json!({"data": {"a": "1", "b": "2", "d": "1"}, "metadata": {"labels": {"x": "y"}}});
        let expected = [
            json!({"f:data": {"f:c": {}}}),
            json!({"f:data": {"f:b": {}}}),
            // A new map has a path of its own.
            json!({"f:data": {"f:d": {}}, "f:metadata": {".": {}, "f:labels": {".": {}, "f:x": {}}}}),
        ];
        assert_eq!(compared("configmaps", old.clone(), new), expected);
        assert_eq!(compared("configmaps", old.clone(), old), [json!({}), json!({}), json!({})]);
    }

    #[test]
    fn null_empty_and_missing_maps_differ() {
        let empty = || json!({});
        let data = |value: Value| json!({"data": value});
        let path = || json!({"f:data": {}});
        assert_eq!(compared("configmaps", json!({}), data(empty())), [empty(), empty(), path()]);
        assert_eq!(compared("configmaps", data(empty()), json!({})), [path(), empty(), empty()]);
        assert_eq!(compared("configmaps", data(Value::Null), data(empty())), [empty(), path(), empty()]);
        assert_eq!(
            compared("configmaps", data(Value::Null), data(json!({"a": "1"}))),
            [empty(), empty(), json!({"f:data": {"f:a": {}}})]
        );
    }

    #[test]
    fn keyed_lists_are_compared_by_key_and_not_by_order() {
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        let old = pod(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]));
        let new = pod(json!([{"name": "b", "image": "2"}, {"name": "c", "args": ["x"]}]));
        let containers = |fields: Value| json!({"f:spec": {"f:containers": fields}});
        let expected = [
            containers(json!({"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:name": {}}})),
            containers(json!({"k:{\"name\":\"b\"}": {"f:image": {}}})),
            containers(json!({"k:{\"name\":\"c\"}": {".": {}, "f:args": {}, "f:name": {}}})),
        ];
        assert_eq!(compared("pods", old, new), expected);
        let order = |first: &str, second: &str| pod(json!([{"name": first}, {"name": second}]));
        assert_eq!(compared("pods", order("a", "b"), order("b", "a")), [json!({}), json!({}), json!({})]);
    }

    #[test]
    fn sets_are_compared_by_value_and_atomic_lists_as_a_whole() {
        let object = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        let value = |text: &str| json!({"f:metadata": {"f:finalizers": {text: {}}}});
        assert_eq!(
            compared("pods", object(json!(["a", "b"])), object(json!(["b", "c"]))),
            [value("v:\"a\""), json!({}), value("v:\"c\"")]
        );
        let tolerations = |key: &str| json!({"spec": {"tolerations": [{"key": key}]}});
        assert_eq!(
            compared("pods", tolerations("a"), tolerations("b")),
            [json!({}), json!({"f:spec": {"f:tolerations": {}}}), json!({})]
        );
    }

    #[test]
    fn elements_with_the_same_key_are_compared_as_one() {
        let pod = |values: &[&str]| {
            let env: Vec<Value> = values.iter().map(|value| json!({"name": "A", "value": value})).collect();
            json!({"spec": {"containers": [{"name": "c", "env": env}]}})
        };
        let env = |fields: Value| json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:env": {"k:{\"name\":\"A\"}": fields}}}}});
        let whole = || json!({".": {}, "f:name": {}, "f:value": {}});
        let empty = || json!({});
        assert_eq!(compared("pods", pod(&["1", "2"]), pod(&["1", "3"])), [empty(), env(empty()), empty()]);
        assert_eq!(compared("pods", pod(&["1", "2"]), pod(&["1", "2"])), [empty(), empty(), empty()]);
        assert_eq!(compared("pods", pod(&["1", "2"]), pod(&["1"])), [env(empty()), empty(), env(whole())]);
        assert_eq!(compared("pods", pod(&["1"]), pod(&["1", "2"])), [env(whole()), empty(), env(empty())]);
    }
}
