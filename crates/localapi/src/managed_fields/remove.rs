//! The removal of paths from an object.

use serde_json::{Map, Value};

use super::element::Element;
use super::schema::Type;
use super::set::FieldSet;

/// The object without the members of the set. A map or list that loses its last value is removed, too.
pub(super) fn remove(kind: Type, object: &Value, unwanted: &FieldSet) -> Value {
    remaining(kind, object, unwanted).unwrap_or_else(|| Value::Object(Map::new()))
}

fn remaining(kind: Type, value: &Value, unwanted: &FieldSet) -> Option<Value> {
    if unwanted.is_empty() {
        return Some(value.clone());
    }
    let kind = kind.fitting(value);
    let keep = |element: &Element, below: Type, value: &Value| match unwanted.at(element) {
        Some(node) if node.member => None,
        Some(node) => remaining(below, value, &node.below),
        None => Some(value.clone()),
    };
    match (kind, value) {
        (Type::Struct(_) | Type::Map(_) | Type::Deduced, Value::Object(fields)) => {
            let field = |(name, value): (&String, &Value)| {
                let below = kind.field(name).unwrap_or(Type::Leaf);
                Some((name.clone(), keep(&Element::Field(name.clone()), below, value)?))
            };
            let kept: Map<String, Value> = fields.iter().filter_map(field).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        (Type::Set | Type::Keyed(..), Value::Array(items)) => {
            let item = |item: &Value| keep(&kind.stored_element(item), kind.item(), item);
            let kept: Vec<Value> = items.iter().filter_map(item).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => Some(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn without(plural: &str, object: Value, unwanted: Value) -> Value {
        remove(Type::of_resource(plural), &object, &FieldSet::parse(&unwanted).unwrap())
    }

    #[test]
    fn members_are_removed_with_everything_below_them() {
        let pod = json!({
            "metadata": {"labels": {"a": "1", "b": "1"}, "finalizers": ["x", "y"]},
            "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]},
        });
        let unwanted = json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"y\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {}, "k:{\"name\":\"b\"}": {"f:image": {}}}},
        });
        let expected = json!({
            "metadata": {"labels": {"b": "1"}, "finalizers": ["x"]},
            "spec": {"containers": [{"name": "b"}]},
        });
        assert_eq!(without("pods", pod.clone(), unwanted), expected);
        assert_eq!(without("pods", pod.clone(), json!({})), pod);
    }

    #[test]
    fn empty_remains_are_removed() {
        let map = json!({"data": {"a": "1"}, "immutable": true});
        assert_eq!(without("configmaps", map, json!({"f:data": {"f:a": {}}})), json!({"immutable": true}));
        assert_eq!(without("configmaps", json!({"data": {"a": "1"}}), json!({"f:data": {}})), json!({}));
    }
}
