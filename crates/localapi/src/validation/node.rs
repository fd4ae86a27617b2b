//! Rules for Nodes and Leases.

use std::collections::BTreeSet;

use super::field::FieldValue;
use super::{ErrorList, names};

pub(super) fn check(node: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    check_taints(node, errors);
    let mut seen = BTreeSet::new();
    for address in node.items("status.addresses") {
        if !seen.insert((address.text_at("type"), address.text_at("address"))) {
            errors.duplicate(&address.path, address.value.clone());
        }
    }
    let Some(old) = old else { return };
    for (field, what) in [("spec.providerID", "providerID"), ("spec.podCIDRs", "podCIDR")] {
        let (new, old) = (node.at(field), old.at(field));
        let was_set =
            old.is_set() && old.value != "" && old.value.as_array().is_none_or(|all| !all.is_empty());
        if was_set && new.value != old.value {
            let detail = format!("node updates may not change {what} except from \"\" to valid");
            errors.forbidden(field, detail);
        }
    }
}

fn check_taints(node: &FieldValue<'_>, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (index, taint) in node.items("spec.taints").into_iter().enumerate() {
        // The API reports taints as metadata.
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (taint.text_at("key"), taint.text_at("effect"));
        errors.all_invalid(&format!("{path}.key"), key, names::label_key_problems(key));
        let value = taint.text_at("value");
        errors.all_invalid(&format!("{path}.value"), value, names::label_value_problems(value));
        let value = FieldValue { path: format!("{path}.effect"), value: taint.at("effect").value };
        if effect.is_empty() {
            errors.required(&value.path, "");
        } else {
            errors.one_of(&value, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
        if !seen.insert((key, effect)) {
            errors.duplicate(path, taint.value.clone());
        }
    }
}

pub(super) fn check_lease(lease: &FieldValue<'_>, errors: &mut ErrorList) {
    let duration = lease.at("spec.leaseDurationSeconds");
    if let Some(seconds) = duration.number().filter(|seconds| *seconds <= 0) {
        errors.invalid(&duration.path, seconds, "must be greater than 0");
    }
    errors.not_negative(&lease.at("spec.leaseTransitions"));
    let (strategy, preferred) = (lease.text_at("spec.strategy"), lease.at("spec.preferredHolder"));
    if !preferred.text().is_empty() && strategy.is_empty() {
        errors.forbidden(&preferred.path, "may only be specified if `strategy` is defined");
    }
}
