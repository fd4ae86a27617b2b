//! Rules for the metadata of every kind.

use super::place::Place;
use super::{Findings, names};

/// Bytes that all annotations of an object may have together.
const MAX_ANNOTATIONS: usize = 256 * 1024;
const CLUSTER_SCOPED: [&str; 9] = [
    "certificatesigningrequests",
    "clustertrustbundles",
    "csidrivers",
    "csinodes",
    "namespaces",
    "nodes",
    "persistentvolumes",
    "runtimeclasses",
    "volumeattachments",
];
const IMMUTABLE: &str = "field is immutable";

pub(super) fn check(plural: &str, object: &Place<'_>, old: Option<&Place<'_>>, found: &mut Findings) {
    let meta = object.at("metadata");
    check_name(plural, &meta, found);
    let namespace = meta.at("namespace");
    if CLUSTER_SCOPED.contains(&plural) {
        if !namespace.text().is_empty() {
            found.forbidden(&namespace.path, "not allowed on this type");
        }
    } else if namespace.text().is_empty() {
        found.required(&namespace.path, "");
    } else {
        found.all_invalid(&namespace.path, namespace.text(), names::label_problems(namespace.text()));
    }
    for (key, value) in meta.entries("labels") {
        found.all_invalid("metadata.labels", key, names::label_key_problems(key));
        found.all_invalid("metadata.labels", value.text(), names::label_value_problems(value.text()));
    }
    check_annotations(&meta, found);
    check_owners(&meta, found);
    if let Some(old) = old {
        check_unchanged(&meta, &old.at("metadata"), found);
    }
}

fn check_name(plural: &str, meta: &Place<'_>, found: &mut Findings) {
    let name = meta.at("name");
    let text = name.text();
    if text.is_empty() {
        return found.required(&name.path, "name or generateName is required");
    }
    let problems = match plural {
        "namespaces" => names::label_problems(text),
        "services" => names::label_1035_problems(text),
        // Only what would break the path of its address.
        // That of a bundle begins with its signer, whose slashes have become colons.
        "certificatesigningrequests" | "clustertrustbundles" => path_problems(text),
        _ => names::subdomain_problems(text),
    };
    found.all_invalid(&name.path, text, problems);
}

fn path_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if matches!(name, "." | "..") {
        problems.push(format!("may not be '{name}'"));
    }
    for part in ["/", "%"].into_iter().filter(|part| name.contains(part)) {
        problems.push(format!("may not contain '{part}'"));
    }
    problems
}

fn check_annotations(meta: &Place<'_>, found: &mut Findings) {
    let mut size = 0;
    for (key, value) in meta.entries("annotations") {
        // Unlike those of labels, keys of annotations may have capitals in their prefix.
        found.all_invalid("metadata.annotations", key, names::label_key_problems(&key.to_lowercase()));
        size += key.len() + value.text().len();
    }
    if size > MAX_ANNOTATIONS {
        found.too_long("metadata.annotations", MAX_ANNOTATIONS);
    }
}

fn check_owners(meta: &Place<'_>, found: &mut Findings) {
    for owner in meta.items("ownerReferences") {
        let problems = [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ];
        for (field, detail) in problems {
            if owner.text_at(field).is_empty() {
                found.invalid(format!("metadata.ownerReferences.{field}"), "", detail);
            }
        }
    }
    for finalizer in meta.items("finalizers") {
        let text = finalizer.text();
        let problems = names::label_key_problems(text);
        let is_standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&text);
        if problems.is_empty() && !text.contains('/') && !is_standard {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            found.invalid(&finalizer.path, text, detail);
        }
        found.all_invalid("metadata.finalizers", text, problems);
    }
}

/// What identifies an object stays. A field that the new object leaves out is taken from the old one.
fn check_unchanged(meta: &Place<'_>, old: &Place<'_>, found: &mut Findings) {
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"] {
        let (new, old) = (meta.at(field), old.at(field));
        if new.is_set() && new.value != old.value {
            found.invalid(&new.path, new.value.clone(), IMMUTABLE);
        }
    }
}
