//! The paths of an object that its writer owns.

use serde_json::Value;

use super::schema::Type;
use super::set::{FieldSet, Node};

/// All paths with a value. A map has a path of its own if it is empty, or an element of a map or list.
pub(super) fn owned(kind: Type, object: &Value) -> FieldSet {
    node(kind, object).below
}

fn node(kind: Type, value: &Value) -> Node {
    match (kind.fitting(value), value) {
        (Type::Struct(_) | Type::Map(_) | Type::Deduced, Value::Object(fields)) => {
            let mut node = Node::default();
            for (name, value) in fields {
                node.below.insert_field(name, field(kind, name, value));
            }
            node
        }
        (Type::Set | Type::Keyed(..), Value::Array(items)) => list(kind, items),
        (Type::Leaf | Type::Deduced, _) => Node::leaf(),
        (Type::Struct(_) | Type::Map(_) | Type::Set | Type::Keyed(..), _) => Node::default(),
    }
}

fn field(kind: Type, name: &str, value: &Value) -> Node {
    let mut below = node(kind.field(name).unwrap_or(Type::Leaf), value);
    let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    below.member |= is_empty || !matches!(kind, Type::Struct(_));
    below
}

/// Elements with the same keys are one path, without paths below.
fn list(kind: Type, items: &[Value]) -> Node {
    let mut list = Node::default();
    for item in items {
        let element = kind.stored_element(item);
        let is_duplicate = list.below.at(&element).is_some();
        let node = if is_duplicate {
            list.below.remove(&element);
            Node::leaf()
        } else {
            Node { member: true, ..node(kind.item(), item) }
        };
        list.below.insert(element, node);
    }
    list
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(plural: &str, object: Value) -> Value {
        owned(Type::of_resource(plural), &object).to_value()
    }

    #[test]
    fn paths_of_a_pod_are_those_of_its_values() {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {"app": "a"}, "finalizers": ["b", "a"]},
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "a"}],
                "containers": [{
                    "name": "c",
                    "args": ["1", "2"],
                    "env": [{"name": "A", "value": "1"}],
                    "ports": [{"containerPort": 80}],
                    "resources": {},
                }],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        });
        let expected = json!({
            "f:apiVersion": {},
            "f:kind": {},
            "f:metadata": {
                "f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}},
                "f:labels": {"f:app": {}},
                "f:name": {},
            },
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {},
                    "f:args": {},
                    "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
                    "f:name": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                    "f:resources": {},
                }},
                "f:nodeSelector": {},
                "f:tolerations": {},
                "f:volumes": {"k:{\"name\":\"v\"}": {".": {}, "f:emptyDir": {}, "f:name": {}}},
            },
        });
        assert_eq!(set("pods", pod), expected);
    }

    #[test]
    fn nulls_and_empty_maps_are_paths_but_empty_lists_are_not() {
        let map = json!({"data": {"a": null}, "binaryData": {}, "metadata": {"finalizers": []}});
        assert_eq!(set("configmaps", map), json!({"f:binaryData": {}, "f:data": {"f:a": {}}}));
        assert_eq!(set("configmaps", json!({"data": null})), json!({"f:data": {}}));
    }

    #[test]
    fn duplicate_elements_are_one_path() {
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "a"}, {"name": "c", "image": "b"}, {"name": "d"}]}});
        let expected = json!({"f:spec": {"f:containers": {
            "k:{\"name\":\"c\"}": {},
            "k:{\"name\":\"d\"}": {".": {}, "f:name": {}},
        }}});
        assert_eq!(set("pods", pod), expected);
    }

    #[test]
    fn any_json_has_the_paths_of_its_maps() {
        let object = json!({"spec": {"a": {"b": [1, 2]}, "c": {}}});
        assert_eq!(
            set("widgets", object),
            json!({"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:c": {}}})
        );
    }
}
