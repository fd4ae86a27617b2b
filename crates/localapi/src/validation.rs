//! Validation of objects.
//!
//! Owns the rules and their error messages. Never changes an object, and never reads other objects. Expects defaults to be
//! applied. A field with a value of the wrong type counts as unset; [`decode`] reports those.

mod claims;
mod cluster;
mod config;
mod container;
mod field;
mod metadata;
pub(crate) mod names;
mod node;
mod pod;
mod pod_certificates;
pub(crate) mod pod_status;
mod pod_update;
mod rbac;
pub(crate) mod reviews;
mod service;
mod signing;
mod storage;
#[cfg(test)]
mod tests;
mod volume;

use std::fmt;

use model::k8s;
use serde_json::{Map, Value};

pub(crate) use cluster::SYSTEM_CLASSES;
use field::FieldValue;
pub(crate) use rbac::MAX_RULES;

const MANAGED_FIELDS: &str = "managedFields";

/// One field and its error. Its text is `spec.containers[0].image: Required value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `spec.containers[0].image`.
    pub field: String,
    pub reason: Reason,
    /// The message after the field: `Required value`, `Invalid value: "x": must be …`.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for FieldError {}

/// The type of an error, as in the causes of a `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    Forbidden,
    NotFound,
    TooLong,
    TooMany,
}

impl Reason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }
}

/// All errors of an object, in the order of the rules; empty if the object is valid.
///
/// `resource` is the plural name; a subresource may follow (`pods/status`), which has its own rules. `old` is
/// the stored object when this is an update.
#[must_use]
pub fn check(resource: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let root = FieldValue::root(object);
    let before = old.map(FieldValue::root);
    metadata::check(plural, &root, before.as_ref(), &mut errors);
    match plural {
        "pods" if subresource == "status" => {
            if let Some(before) = &before {
                pod_status::check(&root, before, &mut errors);
            }
        }
        "pods" => {
            pod::check(&root, before.is_none(), &mut errors);
            if let Some(before) = before.as_ref().filter(|_| subresource.is_empty()) {
                pod_update::check(&root, before, &mut errors);
            }
        }
        "nodes" => node::check(&root, before.as_ref(), &mut errors),
        "leases" => node::check_lease(&root, &mut errors),
        "secrets" => config::check_secret(&root, before.as_ref(), &mut errors),
        "configmaps" => config::check_config_map(&root, before.as_ref(), &mut errors),
        "certificatesigningrequests" => signing::check(&root, &mut errors),
        "podcertificaterequests" => match before.as_ref().filter(|_| subresource == "status") {
            Some(before) => pod_certificates::check_status(&root, before, &mut errors),
            None => pod_certificates::check(&root, before.as_ref(), &mut errors),
        },
        "services" => service::check(&root, before.as_ref(), &mut errors),
        "csidrivers" => storage::check_driver(&root, before.as_ref(), &mut errors),
        "csinodes" => storage::check_node(&root, before.as_ref(), &mut errors),
        "volumeattachments" => storage::check_attachment(&root, before.as_ref(), &mut errors),
        "persistentvolumeclaims" if subresource.is_empty() => {
            claims::check_claim(&root, before.as_ref(), &mut errors);
        }
        "persistentvolumes" if subresource.is_empty() => {
            claims::check_volume(&root, before.as_ref(), &mut errors);
        }
        "priorityclasses" => cluster::check_priority_class(&root, before.as_ref(), &mut errors),
        "resourcequotas" if subresource.is_empty() => {
            cluster::check_quota(&root, before.as_ref(), &mut errors);
        }
        "limitranges" => cluster::check_limit_range(&root, &mut errors),
        "storageclasses" => cluster::check_storage_class(&root, before.as_ref(), &mut errors),
        "roles" => rbac::check_role(&root, &mut errors),
        "clusterroles" => rbac::check_cluster_role(&root, &mut errors),
        "rolebindings" => rbac::check_role_binding(&root, before.as_ref(), &mut errors),
        "clusterrolebindings" => rbac::check_cluster_role_binding(&root, before.as_ref(), &mut errors),
        _ => {}
    }
    errors.errors
}

/// Checks the types of the fields, for the built-in resources. The error is the message of the 400 response.
pub fn decode(resource: &str, object: &Value) -> Result<(), String> {
    fn as_type<T: serde::de::DeserializeOwned>(object: &Value) -> Result<(), serde_json::Error> {
        T::deserialize(object).map(drop)
    }
    let decoded = match resource {
        "pods" => as_type::<k8s::Pod>(object),
        "nodes" => as_type::<k8s::Node>(object),
        "services" => as_type::<k8s::Service>(object),
        "secrets" => as_type::<k8s::Secret>(object),
        "configmaps" => as_type::<k8s::ConfigMap>(object),
        "serviceaccounts" => as_type::<k8s::ServiceAccount>(object),
        "leases" => as_type::<k8s::Lease>(object),
        "events" => as_type::<k8s::Event>(object),
        "runtimeclasses" => as_type::<k8s::RuntimeClass>(object),
        "csidrivers" => as_type::<k8s::CSIDriver>(object),
        "csinodes" => as_type::<k8s::CSINode>(object),
        "volumeattachments" => as_type::<k8s::VolumeAttachment>(object),
        "certificatesigningrequests" => as_type::<k8s::CertificateSigningRequest>(object),
        "podcertificaterequests" => as_type::<k8s::PodCertificateRequest>(object),
        "roles" | "clusterroles" => as_type::<rbac::RoleTypes>(object),
        "rolebindings" | "clusterrolebindings" => as_type::<rbac::BindingTypes>(object),
        _ => Ok(()),
    };
    decoded.map_err(|error| {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
        let kind = text("kind");
        format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {error}")
    })
}

/// As [`decode`], but for the managed fields: times of the years that only Go has can be in them.
pub(crate) fn decode_without_managed_fields(resource: &str, object: &mut Value) -> Result<(), String> {
    let managed_fields = metadata_of(object).and_then(|metadata| metadata.remove(MANAGED_FIELDS));
    let decoded = decode(resource, object);
    if let (Some(metadata), Some(managed_fields)) = (metadata_of(object), managed_fields) {
        metadata.insert(MANAGED_FIELDS.to_owned(), managed_fields);
    }
    decoded
}

fn metadata_of(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

/// Collects errors, as `field.ErrorList`. Each method adds one type of error.
#[derive(Debug, Default)]
struct ErrorList {
    errors: Vec<FieldError>,
}

impl ErrorList {
    fn add(&mut self, field: impl Into<String>, reason: Reason, message: impl Into<String>) {
        self.errors.push(FieldError { field: field.into(), reason, message: message.into() });
    }

    fn required(&mut self, field: impl Into<String>, detail: &str) {
        let colon = if detail.is_empty() { "" } else { ": " };
        self.add(field, Reason::Required, format!("Required value{colon}{detail}"));
    }

    fn invalid(&mut self, field: impl Into<String>, value: impl Into<Value>, detail: impl fmt::Display) {
        self.add(field, Reason::Invalid, format!("Invalid value: {}: {detail}", value.into()));
    }

    /// Adds one error for each problem of a string.
    fn all_invalid(&mut self, field: &str, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(field, value, problem);
        }
    }

    fn duplicate(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.add(field, Reason::Duplicate, format!("Duplicate value: {}", value.into()));
    }

    fn forbidden(&mut self, field: impl Into<String>, detail: impl fmt::Display) {
        self.add(field, Reason::Forbidden, format!("Forbidden: {detail}"));
    }

    fn not_found(&mut self, field: impl Into<String>, value: &str) {
        self.add(field, Reason::NotFound, format!("Not found: {}", Value::from(value)));
    }

    fn too_long(&mut self, field: impl Into<String>, max: usize) {
        self.add(field, Reason::TooLong, format!("Too long: may not be more than {max} bytes"));
    }

    /// Checks that a string is one of the supported values, or unset.
    fn one_of(&mut self, field: &FieldValue<'_>, supported: &[&str]) {
        if field.is_set() && !supported.contains(&field.text()) {
            let shown: Vec<&str> = supported.iter().copied().filter(|one| !one.is_empty()).collect();
            self.unsupported(&field.path, &Value::from(field.text()), &shown);
        }
    }

    /// As [`ErrorList::one_of`], for a field in whose message the empty text is a supported value, too.
    fn one_of_all(&mut self, field: &FieldValue<'_>, supported: &[&str]) {
        if field.is_set() && !supported.contains(&field.text()) {
            self.unsupported(&field.path, &Value::from(field.text()), supported);
        }
    }

    fn unsupported(&mut self, field: &str, value: &Value, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        self.add(field, Reason::NotSupported, message);
    }

    /// Checks that a number is in the inclusive range, or unset.
    fn in_range(&mut self, field: &FieldValue<'_>, low: i64, high: i64) {
        if let Some(number) = field.number().filter(|number| !(low..=high).contains(number)) {
            self.invalid(&field.path, number, format!("must be between {low} and {high}, inclusive"));
        }
    }

    fn not_negative(&mut self, field: &FieldValue<'_>) {
        if let Some(number) = field.number().filter(|number| *number < 0) {
            self.invalid(&field.path, number, "must be greater than or equal to 0");
        }
    }
}
