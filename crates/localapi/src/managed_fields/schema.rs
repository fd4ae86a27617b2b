//! How the fields of the served kinds are merged by server-side apply, from the table of `schema`. It differs from the patch strategies in
//! `patch::schema`: ports are merged by two keys here, for example.

use serde_json::{Map, Value};

use super::element::{Element, Scalar};
use crate::resources;
use crate::schema::{self, Field, Merge, Schema, Shape};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type {
    /// A value that has one owner: a scalar, or a map or list that is atomic.
    Leaf,
    /// A map with declared fields, each with owners of its own.
    Struct(&'static schema::Type),
    /// A map with any keys, each with owners of its own.
    Map(&'static Shape),
    /// A list of different scalars, each with owners of its own.
    Set,
    /// A list of maps that are found by their keys.
    Keyed(&'static [&'static str], &'static Shape),
    /// Any JSON: maps as [`Type::Map`], anything else as [`Type::Leaf`].
    Deduced,
}

/// The value of a key that an element does not have, for the only key with a default.
const DEFAULT_PROTOCOL: (&str, &str) = ("protocol", "TCP");

impl Type {
    /// The type of the objects of a resource, by its plural. An unknown one is any JSON.
    pub(super) fn of_resource(plural: &str) -> Self {
        resources::stored(plural).and_then(Schema::of).map_or(Self::Deduced, Self::Struct)
    }

    fn of_field(field: &'static Field) -> Self {
        match (&field.merge, &field.shape) {
            (Merge::Granular, shape) => Self::of_shape(shape),
            (Merge::Set, _) => Self::Set,
            (Merge::ByKeys(keys), Shape::List(item)) => Self::Keyed(keys, item),
            (Merge::Atomic | Merge::ByKeys(_), _) => Self::Leaf,
        }
    }

    fn of_shape(shape: &'static Shape) -> Self {
        match shape {
            Shape::Struct(section, name) => match Schema::find(section, name) {
                Some(of) if !of.atomic => Self::Struct(of),
                Some(_) | None => Self::Leaf,
            },
            Shape::Map(value) => Self::Map(value),
            Shape::Scalar(_) | Shape::List(_) | Shape::Any => Self::Leaf,
        }
    }

    /// The type of a field. `None` if it is not declared.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Struct(of) => of.field(name).map(Self::of_field),
            Self::Map(value) => Some(Self::of_shape(value)),
            Self::Deduced => Some(Self::Deduced),
            Self::Leaf | Self::Set | Self::Keyed(..) => None,
        }
    }

    /// The type of the elements of a list.
    pub(super) fn item(self) -> Self {
        match self {
            Self::Keyed(_, item) => Self::of_shape(item),
            Self::Leaf | Self::Struct(_) | Self::Map(_) | Self::Set | Self::Deduced => Self::Leaf,
        }
    }

    pub(super) fn is_map(self) -> bool {
        matches!(self, Self::Struct(_) | Self::Map(_) | Self::Deduced)
    }

    /// The type, or [`Type::Leaf`] if the value has another form, which validation refuses.
    pub(super) fn fitting(self, value: &Value) -> Self {
        let fits = match self {
            Self::Leaf => true,
            Self::Struct(_) | Self::Map(_) => value.is_object() || value.is_null(),
            Self::Set | Self::Keyed(..) => value.is_array() || value.is_null(),
            Self::Deduced => value.is_object(),
        };
        if fits { self } else { Self::Leaf }
    }

    /// The step from a list to one of its elements. The error is the reason why it has none.
    pub(super) fn element(self, item: &Value) -> Result<Element, String> {
        match (self, item) {
            (Self::Keyed(keys, _), Value::Object(fields)) => key(keys, fields),
            (Self::Keyed(..), _) => Err("the elements of this list are maps".to_owned()),
            (_, Value::Null | Value::Array(_) | Value::Object(_)) => {
                Err("the elements of this list are scalars".to_owned())
            }
            (_, Value::Bool(_) | Value::Number(_) | Value::String(_)) => Ok(Element::Value(Scalar::of(item))),
        }
    }

    /// As [`Type::element`], for a list that is stored already: an element without keys is found by its whole value.
    pub(super) fn stored_element(self, item: &Value) -> Element {
        self.element(item).unwrap_or_else(|_| Element::Value(Scalar::of(item)))
    }
}

fn key(keys: &[&str], fields: &Map<String, Value>) -> Result<Element, String> {
    let field = |name: &&str| {
        let value = match fields.get(*name) {
            Some(value) => Scalar::of(value),
            None if *name == DEFAULT_PROTOCOL.0 => Scalar::Text(DEFAULT_PROTOCOL.1.to_owned()),
            None => return None,
        };
        Some(((*name).to_owned(), value))
    };
    let mut key: Vec<(String, Scalar)> = keys.iter().filter_map(field).collect();
    if !keys.iter().any(|name| fields.contains_key(*name)) {
        return Err(format!("an element of this list has no {}", keys.join(", ")));
    }
    key.sort();
    Ok(Element::Key(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn every_stored_kind_has_a_type_with_metadata() {
        for resource in RESOURCES.iter().filter(|one| !one.review && one.advice.is_none()) {
            let kind = Type::of_resource(resource.name);
            let metadata = kind.field("metadata").unwrap();
            assert!(matches!(metadata.field("finalizers"), Some(Type::Set)), "{}", resource.name);
            assert_eq!(kind.field("status").is_some(), resource.has_status());
        }
    }

    #[test]
    fn keys_have_the_defaults_of_the_api() {
        let ports = |plural: &str, path: &[&str]| {
            path.iter().fold(Type::of_resource(plural), |kind, field| match kind.field(field) {
                Some(kind @ Type::Keyed(..)) if *field == "containers" => kind.item(),
                Some(kind) => kind,
                None => panic!("{plural} {field}"),
            })
        };
        let text = |kind: Type, item: Value| kind.element(&item).map(|element| element.text());
        let container = ports("pods", &["spec", "containers", "ports"]);
        assert_eq!(
            text(container, json!({"containerPort": 80, "name": "web"})).unwrap(),
            r#"k:{"containerPort":80,"protocol":"TCP"}"#
        );
        let service = ports("services", &["spec", "ports"]);
        assert_eq!(
            text(service, json!({"port": 53, "protocol": "UDP"})).unwrap(),
            r#"k:{"port":53,"protocol":"UDP"}"#
        );
        let secrets = ports("serviceaccounts", &["secrets"]);
        assert!(text(secrets, json!({"kind": "Secret"})).is_err());
        assert!(text(secrets, json!("a")).is_err());
        let finalizers = ports("pods", &["metadata", "finalizers"]);
        assert_eq!(text(finalizers, json!("a")).unwrap(), r#"v:"a""#);
        assert!(text(finalizers, json!({})).is_err());
    }

    #[test]
    fn atomic_maps_and_lists_are_leaves() {
        let at = |plural: &str, path: &[&str]| {
            path.iter().try_fold(Type::of_resource(plural), |kind, field| {
                let kind = kind.field(field)?;
                Some(if matches!(kind, Type::Keyed(..)) { kind.item() } else { kind })
            })
        };
        for (plural, path) in [
            ("pods", &["spec", "nodeSelector"][..]),
            ("pods", &["spec", "tolerations"]),
            ("pods", &["spec", "containers", "args"]),
            ("pods", &["spec", "containers", "env", "valueFrom", "fieldRef"]),
            ("pods", &["spec", "containers", "env", "valueFrom", "secretKeyRef"]),
            ("pods", &["spec", "imagePullSecrets"]),
            ("pods", &["spec", "topologySpreadConstraints", "labelSelector"]),
            ("pods", &["metadata", "managedFields"]),
            ("services", &["spec", "selector"]),
            ("persistentvolumes", &["spec", "accessModes"]),
        ] {
            assert!(matches!(at(plural, path), Some(Type::Leaf)), "{plural} {path:?}");
        }
        assert!(matches!(at("pods", &["metadata", "labels"]), Some(Type::Map(_))));
        assert!(at("pods", &["spec", "colour"]).is_none());
        assert!(at("configmaps", &[""]).is_none());
    }
}
