//! Which fields of an existing pod may change.

use serde_json::Value;

use super::ErrorList;
use super::field::FieldValue;

const ALLOWED: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
     tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn check(pod: &FieldValue<'_>, old: &FieldValue<'_>, errors: &mut ErrorList) {
    let (spec, before) = (pod.at("spec"), old.at("spec"));
    let mut lists_changed = false;
    for list in ["containers", "initContainers"] {
        if spec.items(list).len() != before.items(list).len() {
            errors.forbidden(format!("spec.{list}"), "pod updates may not add or remove containers");
            lists_changed = true;
        }
    }
    if lists_changed {
        return;
    }
    check_deadline(&spec, &before, errors);
    check_tolerations(&spec, &before, errors);
    let mut comparable = spec.value.clone();
    let grace = before.at("terminationGracePeriodSeconds").number().unwrap_or_default();
    let may_shorten = grace < 0 && spec.at("terminationGracePeriodSeconds").number() == Some(1);
    restore_mutable_fields(&mut comparable, before.value, may_shorten);
    let mut before = before.value.clone();
    drop_empty(&mut comparable);
    drop_empty(&mut before);
    if comparable != before {
        errors.forbidden("spec", ALLOWED);
    }
}

/// Removes empty lists, empty maps and nulls, which are equal to absent fields.
fn drop_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(drop_empty);
        fields.retain(|_, field| {
            !field.is_null()
                && field.as_array().is_none_or(|list| !list.is_empty())
                && field.as_object().is_none_or(|map| !map.is_empty())
        });
    } else if let Value::Array(list) = value {
        list.iter_mut().for_each(drop_empty);
    }
}

/// Restores the old values of mutable fields, so that any remaining difference is an error.
fn restore_mutable_fields(spec: &mut Value, before: &Value, may_shorten: bool) {
    for list in ["containers", "initContainers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for (index, container) in containers.iter_mut().enumerate() {
            let old = before.get(list).and_then(|all| all.get(index)?.get("image"));
            if let (Some(image), Some(old)) = (container.get_mut("image"), old) {
                *image = old.clone();
            }
        }
    }
    let Some(fields) = spec.as_object_mut() else { return };
    // Scheduling gates may be removed; the comparison finds added ones.
    let gates = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let old_gates = gates(before.get("schedulingGates"));
    let only_removed = gates(fields.get("schedulingGates")).iter().all(|gate| old_gates.contains(gate));
    let mutable = [
        ("activeDeadlineSeconds", true),
        ("tolerations", true),
        ("terminationGracePeriodSeconds", may_shorten),
        ("schedulingGates", only_removed),
    ];
    for (field, _) in mutable.into_iter().filter(|(_, allowed)| *allowed) {
        match before.get(field) {
            Some(old) => fields.insert(field.to_owned(), old.clone()),
            None => fields.remove(field),
        };
    }
}

/// A deadline may be set, and may become shorter.
fn check_deadline(spec: &FieldValue<'_>, before: &FieldValue<'_>, errors: &mut ErrorList) {
    let (new, old) = (spec.at("activeDeadlineSeconds"), before.at("activeDeadlineSeconds"));
    match (new.number(), old.number()) {
        (Some(new_seconds), Some(old_seconds)) if new_seconds > old_seconds => {
            errors.invalid(&new.path, new_seconds, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            errors.invalid(&new.path, Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
}

fn check_tolerations(spec: &FieldValue<'_>, before: &FieldValue<'_>, errors: &mut ErrorList) {
    let same = |left: &FieldValue<'_>, right: &FieldValue<'_>| {
        ["key", "operator", "value", "effect"].iter().all(|field| left.text_at(field) == right.text_at(field))
    };
    let now = spec.items("tolerations");
    if !before.items("tolerations").iter().all(|old| now.iter().any(|new| same(old, new))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden("spec.tolerations", detail);
    }
}
