//! Sets of paths in an object, and their form in `fieldsV1`.
//!
//! Owns the operations on sets. A set does not know the type of its object; it has a path to a map without the paths below it, and the
//! paths below it without the path to the map.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::Element;
use super::schema::Type;

/// The key of a `fieldsV1` map that makes its own path a member.
const SELF: &str = ".";

/// Paths, as a tree of their elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet(BTreeMap<Element, Node>);

/// What a set has at one path, and below it. A set has no empty nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) member: bool,
    pub(super) below: FieldSet,
}

/// A value that is not a `fieldsV1`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidFields(String);

impl Node {
    pub(super) fn leaf() -> Self {
        Self { member: true, below: FieldSet::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    fn extend(&mut self, other: Self) {
        self.member |= other.member;
        self.below.extend(other.below);
    }
}

impl FieldSet {
    /// The set of one path of fields.
    pub(super) fn of_fields(path: &[&str]) -> Self {
        let mut set = Self::default();
        if let Some((first, rest)) = path.split_first() {
            let node = if rest.is_empty() {
                Node::leaf()
            } else {
                Node { member: false, below: Self::of_fields(rest) }
            };
            set.insert(Element::Field((*first).to_owned()), node);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn at(&self, element: &Element) -> Option<&Node> {
        self.0.get(element)
    }

    /// Adds a node below an element.
    pub(super) fn insert(&mut self, element: Element, node: Node) {
        if !node.is_empty() {
            self.0.entry(element).or_default().extend(node);
        }
    }

    pub(super) fn insert_field(&mut self, name: &str, node: Node) {
        if !node.is_empty() {
            self.insert(Element::Field(name.to_owned()), node);
        }
    }

    pub(super) fn remove(&mut self, element: &Element) {
        self.0.remove(element);
    }

    /// Adds all paths of `other`.
    pub(super) fn extend(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (element, node) in other.0 {
            self.insert(element, node);
        }
    }

    /// Removes the paths of `other`; the paths below them stay.
    pub(super) fn subtract(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.0.retain(|element, node| {
            if let Some(unwanted) = other.0.get(element) {
                node.member &= !unwanted.member;
                node.below.subtract(&unwanted.below);
            }
            !node.is_empty()
        });
    }

    /// The paths that are in both sets.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut common = Self::default();
        for (element, own) in &self.0 {
            let Some(theirs) = other.0.get(element) else { continue };
            let node =
                Node { member: own.member && theirs.member, below: own.below.intersection(&theirs.below) };
            if !node.is_empty() {
                common.0.insert(element.clone(), node);
            }
        }
        common
    }

    /// The set with the paths to all declared fields above its members, but not those to elements of maps and lists: with `a.b.c`
    /// it has `a` and `a.b`, too, if these are fields of a struct.
    pub(super) fn with_named_fields(&self, kind: Type) -> Self {
        let node = |(element, node): (&Element, &Node)| {
            let (below, is_declared) = match element {
                Element::Field(name) => (kind.field(name), matches!(kind, Type::Struct(_))),
                Element::Key(_) => (Some(kind.item()), false),
                Element::Value(_) | Element::Index(_) => (None, false),
            };
            let is_declared = is_declared && below.is_some();
            let node = Node {
                member: node.member || (is_declared && !node.below.is_empty()),
                below: node.below.with_named_fields(below.unwrap_or(Type::Leaf)),
            };
            (element.clone(), node)
        };
        Self(self.0.iter().map(node).collect())
    }

    /// The paths as messages show them: those of one level before those below.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.add_paths("", &mut paths);
        paths
    }

    fn add_paths(&self, above: &str, paths: &mut Vec<String>) {
        let members = self.0.iter().filter(|(_, node)| node.member);
        paths.extend(members.map(|(element, _)| format!("{above}{element}")));
        for (element, node) in self.0.iter().filter(|(_, node)| !node.below.is_empty()) {
            node.below.add_paths(&format!("{above}{element}"), paths);
        }
    }

    /// Reads a `fieldsV1`.
    pub(super) fn parse(fields: &Value) -> Result<Self, InvalidFields> {
        Ok(parse(fields)?.below)
    }

    /// As `fieldsV1`. A map of JSON sorts its keys by their text; the real server sorts numbers in keys by value.
    pub(super) fn to_value(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    fn to_map(&self, has_self: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if has_self && !self.is_empty() {
            map.insert(SELF.to_owned(), Value::Object(Map::new()));
        }
        for (element, node) in &self.0 {
            map.insert(element.text(), Value::Object(node.below.to_map(node.member)));
        }
        map
    }
}

/// Reads the map below one element. A map without paths makes the element itself a member.
fn parse(fields: &Value) -> Result<Node, InvalidFields> {
    let mut node = Node::default();
    let fields = match fields {
        Value::Null => return Ok(Node::leaf()),
        Value::Object(fields) => fields,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(InvalidFields(format!("{fields} is not a map of fields")));
        }
    };
    for (key, below) in fields {
        if key == SELF {
            node.member = true;
        } else if let Some(element) = Element::parse(key).map_err(|error| InvalidFields(error.to_string()))? {
            node.below.insert(element, parse(below)?);
        }
    }
    node.member |= node.below.is_empty();
    Ok(node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(fields: Value) -> FieldSet {
        FieldSet::parse(&fields).unwrap()
    }

    /// Two paths, one of them above the other, and the element of a list.
    fn all() -> Value {
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}},
        })
    }

    #[test]
    fn field_sets_round_trip() {
        for fields in [
            json!({}),
            all(),
            json!({"f:a": {}}),
            json!({"f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}}),
            json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}, "i:1": {}}),
        ] {
            assert_eq!(set(fields.clone()).to_value(), fields);
        }
        // The path itself is written only if there are paths below it.
        assert_eq!(set(json!({"f:a": {".": {}}})).to_value(), json!({"f:a": {}}));
        assert_eq!(set(json!({"f:a": {"x:unknown": {}}})).to_value(), json!({"f:a": {}}));
        assert_eq!(set(json!({"f:a": null})).to_value(), json!({"f:a": {}}));
    }

    #[test]
    fn values_that_are_no_field_sets_are_refused() {
        for fields in
            [json!([]), json!("f:a"), json!({"a": {}}), json!({"f:a": 1}), json!({"f:a": {"b": {}}})]
        {
            assert!(FieldSet::parse(&fields).is_err(), "{fields}");
        }
    }

    #[test]
    fn union_adds_paths_and_keeps_members_above_them() {
        let mut one = set(json!({"f:a": {"f:b": {}}, "f:c": {}}));
        one.extend(set(json!({"f:a": {".": {}, "f:d": {}}, "f:c": {"f:e": {}}})));
        assert_eq!(
            one.to_value(),
            json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}, "f:c": {".": {}, "f:e": {}}})
        );
    }

    #[test]
    fn difference_removes_a_path_but_not_those_below_it() {
        let difference = |own: Value, other: Value| {
            let mut own = set(own);
            own.subtract(&set(other));
            own.to_value()
        };
        assert_eq!(
            difference(all(), json!({"f:metadata": {"f:labels": {}}})),
            json!({
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}},
            })
        );
        assert_eq!(difference(all(), all()), json!({}));
        assert_eq!(difference(json!({"f:a": {}}), json!({"f:a": {"f:b": {}}})), json!({"f:a": {}}));
        assert_eq!(difference(json!({"f:a": {"f:b": {}}}), json!({"f:a": {"f:b": {}}})), json!({}));
    }

    #[test]
    fn intersection_has_the_paths_of_both() {
        let other = json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:containers": {}}, "f:x": {}});
        assert_eq!(set(all()).intersection(&set(other)).to_value(), json!({"f:metadata": {"f:labels": {}}}));
        assert_eq!(set(all()).intersection(&set(all())), set(all()));
    }

    #[test]
    fn paths_of_one_level_come_before_those_below() {
        let expected = [
            ".metadata.labels",
            ".metadata.labels.app",
            ".spec.containers[name=\"c\"]",
            ".spec.containers[name=\"c\"].image",
        ];
        assert_eq!(set(all()).paths(), expected);
        assert_eq!(set(json!({"f:a": {"f:b": {}}, "f:c": {}})).paths(), [".c", ".a.b"]);
    }

    #[test]
    fn named_fields_are_added_above_members() {
        let pods = Type::of_resource("pods");
        assert_eq!(
            set(json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:resources": {"f:limits": {"f:cpu": {}}}}}}}))
                .with_named_fields(pods)
                .to_value(),
            json!({"f:spec": {".": {}, "f:containers": {".": {}, "k:{\"name\":\"c\"}": {
                "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}}}}}})
        );
    }
}
