//! What may change in a pod that exists.

use serde_json::Value;

use super::Findings;
use super::place::Place;

const ALLOWED: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
     tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn check(pod: &Place<'_>, old: &Place<'_>, found: &mut Findings) {
    let (spec, before) = (pod.at("spec"), old.at("spec"));
    let mut lists_changed = false;
    for list in ["containers", "initContainers"] {
        if spec.items(list).len() != before.items(list).len() {
            found.forbidden(format!("spec.{list}"), "pod updates may not add or remove containers");
            lists_changed = true;
        }
    }
    if lists_changed {
        return;
    }
    check_deadline(&spec, &before, found);
    check_tolerations(&spec, &before, found);
    let mut comparable = spec.value.clone();
    let grace = before.at("terminationGracePeriodSeconds").number().unwrap_or_default();
    let may_shorten = grace < 0 && spec.at("terminationGracePeriodSeconds").number() == Some(1);
    take_allowed(&mut comparable, before.value, may_shorten);
    let mut before = before.value.clone();
    drop_empty(&mut comparable);
    drop_empty(&mut before);
    if comparable != before {
        found.forbidden("spec", ALLOWED);
    }
}

/// Clients write an empty list, an empty map or null for what others leave out.
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

/// Puts the old values in place of those that may differ, so that what differs then may not.
fn take_allowed(spec: &mut Value, before: &Value, may_shorten: bool) {
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
    // Removed gates let the scheduler in; whether any was added is for the comparison.
    let gates = |place: Option<&Value>| place.and_then(Value::as_array).cloned().unwrap_or_default();
    let old_gates = gates(before.get("schedulingGates"));
    let only_removed = gates(fields.get("schedulingGates")).iter().all(|gate| old_gates.contains(gate));
    let swapped = [
        ("activeDeadlineSeconds", true),
        ("tolerations", true),
        ("terminationGracePeriodSeconds", may_shorten),
        ("schedulingGates", only_removed),
    ];
    for (field, _) in swapped.into_iter().filter(|(_, allowed)| *allowed) {
        match before.get(field) {
            Some(old) => fields.insert(field.to_owned(), old.clone()),
            None => fields.remove(field),
        };
    }
}

/// A deadline may come, and may come nearer.
fn check_deadline(spec: &Place<'_>, before: &Place<'_>, found: &mut Findings) {
    let (new, old) = (spec.at("activeDeadlineSeconds"), before.at("activeDeadlineSeconds"));
    match (new.number(), old.number()) {
        (Some(new_seconds), Some(old_seconds)) if new_seconds > old_seconds => {
            found.invalid(&new.path, new_seconds, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            found.invalid(&new.path, Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
}

fn check_tolerations(spec: &Place<'_>, before: &Place<'_>, found: &mut Findings) {
    let same = |left: &Place<'_>, right: &Place<'_>| {
        ["key", "operator", "value", "effect"].iter().all(|field| left.text_at(field) == right.text_at(field))
    };
    let now = spec.items("tolerations");
    if !before.items("tolerations").iter().all(|old| now.iter().any(|new| same(old, new))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        found.forbidden("spec.tolerations", detail);
    }
}
