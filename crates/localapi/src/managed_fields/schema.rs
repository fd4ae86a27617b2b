//! The types of the served kinds: which fields are declared, which maps and lists are merged, and by which keys.
//!
//! The facts are those of the `x-kubernetes-list-type`, `x-kubernetes-list-map-keys` and `x-kubernetes-map-type` of the API. They differ
//! from the patch strategies in `patch::schema`: ports are merged by two keys here, for example.

mod core_group;
mod devices;
mod keys;
mod meta;
mod others;
mod pod;
mod volumes;

use serde_json::{Map, Value};

use super::element::{Element, Scalar};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type {
    /// A value that has one owner: a scalar, or a map or list that is atomic.
    Leaf,
    /// A map with declared fields, each with owners of its own.
    Struct(&'static Fields),
    /// A map with any keys, each with owners of its own.
    Map(&'static Type),
    /// A list of different scalars, each with owners of its own.
    Set,
    /// A list of maps that are found by their keys.
    Keyed(Keys, &'static Type),
    /// Any JSON: maps as [`Type::Map`], anything else as [`Type::Leaf`].
    Deduced,
}

/// The declared fields of a type.
#[derive(Debug)]
pub(super) struct Fields {
    /// The names of those that are a [`Type::Leaf`], with spaces between them.
    leaves: &'static str,
    nested: &'static [(&'static str, Type)],
}

impl Fields {
    const fn leaves(leaves: &'static str) -> Self {
        Self { leaves, nested: &[] }
    }
}

/// The names of keys, and the value of a key that an element does not have.
pub(super) type Keys = &'static [(&'static str, Absent)];

/// The default of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// The key is left out.
    None,
    Number(i64),
    Text(&'static str),
}

impl Type {
    /// The type of the objects of a resource, by its plural. An unknown one is any JSON.
    pub(super) fn of_resource(plural: &str) -> Self {
        fields_of(plural).map_or(Self::Deduced, Self::Struct)
    }

    /// The type of a field. `None` if it is not declared.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Struct(fields) => {
                let nested = fields.nested.iter().find(|(own, _)| *own == name).map(|(_, kind)| *kind);
                let is_leaf = || !name.is_empty() && fields.leaves.split(' ').any(|own| own == name);
                nested.or_else(|| is_leaf().then_some(Self::Leaf))
            }
            Self::Map(kind) => Some(*kind),
            Self::Deduced => Some(Self::Deduced),
            Self::Leaf | Self::Set | Self::Keyed(..) => None,
        }
    }

    /// The type of the elements of a list.
    pub(super) fn item(self) -> Self {
        match self {
            Self::Keyed(_, kind) => *kind,
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

fn key(keys: Keys, fields: &Map<String, Value>) -> Result<Element, String> {
    let field = |(name, absent): &(&str, Absent)| {
        let value = match (fields.get(*name), absent) {
            (Some(value), _) => Scalar::of(value),
            (None, Absent::Number(number)) => Scalar::Number(*number),
            (None, Absent::Text(text)) => Scalar::Text((*text).to_owned()),
            (None, Absent::None) => return None,
        };
        Some(((*name).to_owned(), value))
    };
    let mut key: Vec<(String, Scalar)> = keys.iter().filter_map(field).collect();
    if key.is_empty() {
        let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
        return Err(format!("an element of this list has no {}", names.join(", ")));
    }
    key.sort();
    Ok(Element::Key(key))
}

fn fields_of(plural: &str) -> Option<&'static Fields> {
    Some(match plural {
        "configmaps" => &core_group::CONFIG_MAP,
        "endpoints" => &core_group::ENDPOINTS,
        "events" => &core_group::EVENT,
        "namespaces" => &core_group::NAMESPACE,
        "nodes" => &core_group::NODE,
        "persistentvolumeclaims" => &volumes::PERSISTENT_VOLUME_CLAIM,
        "persistentvolumes" => &volumes::PERSISTENT_VOLUME,
        "pods" => &pod::POD,
        "podtemplates" => &pod::POD_TEMPLATE,
        "secrets" => &core_group::SECRET,
        "serviceaccounts" => &core_group::SERVICE_ACCOUNT,
        "services" => &core_group::SERVICE,
        "limitranges" => &core_group::LIMIT_RANGE,
        "resourcequotas" => &core_group::RESOURCE_QUOTA,
        "certificatesigningrequests" => &others::CERTIFICATE_SIGNING_REQUEST,
        "clustertrustbundles" => &others::CLUSTER_TRUST_BUNDLE,
        "podcertificaterequests" => &others::POD_CERTIFICATE_REQUEST,
        "leases" => &others::LEASE,
        "endpointslices" => &others::ENDPOINT_SLICE,
        "runtimeclasses" => &others::RUNTIME_CLASS,
        "resourceclaims" => &devices::RESOURCE_RESOURCE_CLAIM,
        "resourceclaimtemplates" => &devices::RESOURCE_CLAIM_TEMPLATE,
        "resourceslices" => &devices::RESOURCE_SLICE,
        "deviceclasses" => &devices::DEVICE_CLASS,
        "csidrivers" => &others::CSI_DRIVER,
        "csinodes" => &others::CSI_NODE,
        "volumeattachments" => &others::VOLUME_ATTACHMENT,
        "storageclasses" => &others::STORAGE_CLASS,
        "priorityclasses" => &others::PRIORITY_CLASS,
        "roles" => &others::ROLE,
        "clusterroles" => &others::CLUSTER_ROLE,
        "rolebindings" => &others::ROLE_BINDING,
        "clusterrolebindings" => &others::CLUSTER_ROLE_BINDING,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn every_stored_kind_has_a_type_with_metadata() {
        for resource in RESOURCES.iter().filter(|resource| !resource.review) {
            let kind = Type::of_resource(resource.name);
            let metadata = kind.field("metadata").unwrap();
            assert!(matches!(metadata.field("finalizers"), Some(Type::Set)), "{}", resource.name);
            assert_eq!(kind.field("status").is_some(), resource.has_status() || resource.name == "csinodes");
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
