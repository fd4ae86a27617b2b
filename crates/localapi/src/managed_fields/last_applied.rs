//! The annotation of client-side apply. `kubectl apply --server-side` takes over what `kubectl apply` applied, and keeps the annotation up
//! to date.

use serde_json::{Value, json};

use super::Writer;
use super::compare::compare;
use super::owned::owned;
use super::schema::Type;
use super::set::FieldSet;
use crate::object;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The only manager for which the annotation has a meaning.
const KUBECTL: &str = "kubectl";

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The paths that kubectl may take from other managers: those of its last client-side apply that still have the applied value.
pub(super) fn allowed_conflicts(kind: Type, live: &Value, writer: &Writer<'_>) -> FieldSet {
    let text = annotation(live).filter(|_| writer.manager == KUBECTL);
    let applied: Option<Value> = text.and_then(|text| serde_json::from_str(text).ok());
    let Some(applied) = applied.filter(|applied| object::text(applied, "/apiVersion") == writer.api_version)
    else {
        return FieldSet::default();
    };
    let comparison = compare(kind, &applied, live);
    let mut allowed = owned(kind, &applied);
    for different in [&comparison.modified, &comparison.added, &comparison.removed] {
        allowed.subtract(different);
    }
    allowed
}

/// Sets the annotation to the applied configuration, if the object has one.
pub(super) fn renew(object: &mut Value, configuration: &Value, writer: &Writer<'_>) {
    if writer.manager != KUBECTL || annotation(object).is_none() {
        return;
    }
    let mut configuration = configuration.clone();
    let annotations = configuration.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.remove(ANNOTATION);
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.to_owned(), json!(format!("{configuration}\n")));
    }
}
