//! Rules for the metadata of every kind.

use super::field::FieldValue;
use super::{ErrorList, names};
use crate::resources;

/// The total size of the annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;
const IMMUTABLE: &str = "field is immutable";

pub(super) fn check(
    plural: &str,
    object: &FieldValue<'_>,
    old: Option<&FieldValue<'_>>,
    errors: &mut ErrorList,
) {
    let meta = object.at("metadata");
    check_name(plural, &meta, errors);
    let namespace = meta.at("namespace");
    if resources::stored(plural).is_some_and(|resource| !resource.namespaced) {
        if !namespace.text().is_empty() {
            errors.forbidden(&namespace.path, "not allowed on this type");
        }
    } else if namespace.text().is_empty() {
        errors.required(&namespace.path, "");
    } else {
        errors.all_invalid(&namespace.path, namespace.text(), names::label_problems(namespace.text()));
    }
    for (key, value) in meta.entries("labels") {
        errors.all_invalid("metadata.labels", key, names::label_key_problems(key));
        errors.all_invalid("metadata.labels", value.text(), names::label_value_problems(value.text()));
    }
    check_annotations(&meta, errors);
    check_owners(&meta, errors);
    if let Some(old) = old {
        check_unchanged(&meta, &old.at("metadata"), errors);
    }
}

fn check_name(plural: &str, meta: &FieldValue<'_>, errors: &mut ErrorList) {
    let name = meta.at("name");
    let text = name.text();
    if text.is_empty() {
        return errors.required(&name.path, "name or generateName is required");
    }
    let problems = match plural {
        "namespaces" => names::label_problems(text),
        "services" => names::label_1035_problems(text),
        // Any valid path segment. The name of a ClusterTrustBundle begins with its signer, with colons instead of slashes.
        "certificatesigningrequests"
        | "clustertrustbundles"
        | "clusterrolebindings"
        | "clusterroles"
        | "rolebindings"
        | "roles" => path_problems(text),
        _ => names::subdomain_problems(text),
    };
    errors.all_invalid(&name.path, text, problems);
}

pub(super) fn path_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if matches!(name, "." | "..") {
        problems.push(format!("may not be '{name}'"));
    }
    for part in ["/", "%"].into_iter().filter(|part| name.contains(part)) {
        problems.push(format!("may not contain '{part}'"));
    }
    problems
}

fn check_annotations(meta: &FieldValue<'_>, errors: &mut ErrorList) {
    let mut size = 0;
    for (key, value) in meta.entries("annotations") {
        // Unlike label keys, annotation keys may have upper case letters in their prefix.
        errors.all_invalid("metadata.annotations", key, names::label_key_problems(&key.to_lowercase()));
        size += key.len() + value.text().len();
    }
    if size > MAX_ANNOTATIONS {
        errors.too_long("metadata.annotations", MAX_ANNOTATIONS);
    }
}

fn check_owners(meta: &FieldValue<'_>, errors: &mut ErrorList) {
    for owner in meta.items("ownerReferences") {
        let problems = [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ];
        for (field, detail) in problems {
            if owner.text_at(field).is_empty() {
                errors.invalid(format!("metadata.ownerReferences.{field}"), "", detail);
            }
        }
    }
    for finalizer in meta.items("finalizers") {
        let text = finalizer.text();
        let problems = names::label_key_problems(text);
        let is_standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&text);
        if problems.is_empty() && !text.contains('/') && !is_standard {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&finalizer.path, text, detail);
        }
        errors.all_invalid("metadata.finalizers", text, problems);
    }
}

/// Identifying fields are immutable. A field that the new object omits is copied from the old one.
fn check_unchanged(meta: &FieldValue<'_>, old: &FieldValue<'_>, errors: &mut ErrorList) {
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"] {
        let (new, old) = (meta.at(field), old.at(field));
        if new.is_set() && new.value != old.value {
            errors.invalid(&new.path, new.value.clone(), IMMUTABLE);
        }
    }
}
