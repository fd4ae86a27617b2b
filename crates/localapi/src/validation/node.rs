//! Rules for nodes and for the leases that show they live.

use std::collections::BTreeSet;

use super::place::Place;
use super::{Findings, names};

pub(super) fn check(node: &Place<'_>, old: Option<&Place<'_>>, found: &mut Findings) {
    check_taints(node, found);
    let mut seen = BTreeSet::new();
    for address in node.items("status.addresses") {
        if !seen.insert((address.text_at("type"), address.text_at("address"))) {
            found.duplicate(&address.path, address.value.clone());
        }
    }
    let Some(old) = old else { return };
    for (field, what) in [("spec.providerID", "providerID"), ("spec.podCIDRs", "podCIDR")] {
        let (new, old) = (node.at(field), old.at(field));
        let was_set =
            old.is_set() && old.value != "" && old.value.as_array().is_none_or(|all| !all.is_empty());
        if was_set && new.value != old.value {
            let detail = format!("node updates may not change {what} except from \"\" to valid");
            found.forbidden(field, detail);
        }
    }
}

fn check_taints(node: &Place<'_>, found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, taint) in node.items("spec.taints").into_iter().enumerate() {
        // The API reports taints as metadata.
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (taint.text_at("key"), taint.text_at("effect"));
        found.all_invalid(&format!("{path}.key"), key, names::label_key_problems(key));
        let value = taint.text_at("value");
        found.all_invalid(&format!("{path}.value"), value, names::label_value_problems(value));
        let place = Place { path: format!("{path}.effect"), value: taint.at("effect").value };
        if effect.is_empty() {
            found.required(&place.path, "");
        } else {
            found.one_of(&place, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
        if !seen.insert((key, effect)) {
            found.duplicate(path, taint.value.clone());
        }
    }
}

pub(super) fn check_lease(lease: &Place<'_>, found: &mut Findings) {
    let duration = lease.at("spec.leaseDurationSeconds");
    if let Some(seconds) = duration.number().filter(|seconds| *seconds <= 0) {
        found.invalid(&duration.path, seconds, "must be greater than 0");
    }
    found.not_negative(&lease.at("spec.leaseTransitions"));
    let (strategy, preferred) = (lease.text_at("spec.strategy"), lease.at("spec.preferredHolder"));
    if !preferred.text().is_empty() && strategy.is_empty() {
        found.forbidden(&preferred.path, "may only be specified if `strategy` is defined");
    }
}
