//! Rules for PriorityClasses, ResourceQuotas, LimitRanges and StorageClasses.

use std::collections::BTreeSet;

use model::Amount;

use super::field::FieldValue;
use super::{ErrorList, names};
use crate::amounts;

/// The classes of every cluster.
pub(crate) const SYSTEM_CLASSES: &[(&str, i64)] =
    &[("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
const HIGHEST_OF_USERS: i64 = 1_000_000_000;
const IMMUTABLE: &str = "field is immutable";

pub(super) fn check_priority_class(
    class: &FieldValue<'_>,
    old: Option<&FieldValue<'_>>,
    errors: &mut ErrorList,
) {
    let (name, value) = (class.at("metadata.name"), class.at("value"));
    if name.text().starts_with("system-") {
        let known = SYSTEM_CLASSES.iter().find(|(system, _)| *system == name.text());
        let problem = match known {
            None => Some(format!("{} is not a known system priority class", name.text())),
            Some((_, system)) if value.number() != Some(*system) => {
                Some(format!("value of {} PriorityClass must be {system}", name.text()))
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            let reserved =
                "priority class names with 'system-' prefix are reserved for system use only. error:";
            errors.forbidden(&name.path, format!("{reserved} {problem}"));
        }
    } else if value.number().is_some_and(|value| value > HIGHEST_OF_USERS) {
        errors.forbidden(
            &value.path,
            format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}"),
        );
    }
    errors.one_of(&class.at("preemptionPolicy"), &["Never", "PreemptLowerPriority"]);
    let Some(old) = old else { return };
    if old.at("value").number() != value.number() {
        errors.forbidden(&value.path, "may not be changed in an update.");
    }
    refuse_change(class, old, "preemptionPolicy", errors);
}

fn refuse_change(new: &FieldValue<'_>, old: &FieldValue<'_>, field: &str, errors: &mut ErrorList) {
    let (new, old) = (new.at(field), old.at(field));
    if new.value != old.value {
        errors.invalid(&new.path, new.value.clone(), IMMUTABLE);
    }
}

pub(super) fn check_quota(quota: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    for (name, limit) in quota.entries("spec.hard") {
        errors.all_invalid(&limit.path, name, names::label_key_problems(name));
        check_amount(&limit, errors);
    }
    let mut seen = BTreeSet::new();
    for scope in quota.items("spec.scopes") {
        errors.one_of(
            &scope,
            &[
                "BestEffort",
                "CrossNamespacePodAffinity",
                "NotBestEffort",
                "NotTerminating",
                "PriorityClass",
                "Terminating",
            ],
        );
        if !seen.insert(scope.text()) {
            errors.duplicate(&scope.path, scope.text());
        }
    }
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if seen.contains(one) && seen.contains(other) {
            errors.invalid("spec.scopes", quota.at("spec.scopes").value.clone(), "conflicting scopes");
        }
    }
    if let Some(old) = old {
        refuse_change(quota, old, "spec.scopes", errors);
        refuse_change(quota, old, "spec.scopeSelector", errors);
    }
}

fn check_amount(amount: &FieldValue<'_>, errors: &mut ErrorList) {
    match amounts::parse(amount.value) {
        None => {
            errors.invalid(&amount.path, amount.value.clone(), "must be a quantity such as 500m, 2 or 1Gi")
        }
        Some(parsed) if parsed < Amount::ZERO => {
            errors.invalid(&amount.path, amount.value.clone(), "must be greater than or equal to 0");
        }
        Some(_) => {}
    }
}

pub(super) fn check_limit_range(range: &FieldValue<'_>, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for item in range.items("spec.limits") {
        let kind = item.at("type");
        if kind.text().is_empty() {
            errors.required(&kind.path, "");
        }
        if !seen.insert(kind.text()) {
            errors.duplicate(&kind.path, kind.text());
        }
        if kind.text() == "Pod" {
            for field in ["default", "defaultRequest"] {
                if !item.entries(field).is_empty() {
                    let detail = "may not be specified when `type` is 'Pod'";
                    errors.forbidden(item.at(field).path, detail);
                }
            }
        }
        for field in ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"] {
            item.entries(field).iter().for_each(|(_, amount)| check_amount(amount, errors));
        }
        check_order(&item, errors);
    }
}

/// Each of these must not be above the next.
fn check_order(item: &FieldValue<'_>, errors: &mut ErrorList) {
    const ORDERED: &[(&str, &str, &str, &str)] = &[
        ("min", "min value", "max", "max value"),
        ("min", "min value", "defaultRequest", "default request value"),
        ("min", "min value", "default", "default value"),
        ("defaultRequest", "default request value", "max", "max value"),
        ("defaultRequest", "default request value", "default", "default limit value"),
        ("default", "default value", "max", "max value"),
    ];
    for (low, low_name, high, high_name) in ORDERED {
        for (resource, least) in item.entries(low) {
            let most = item.at(high).value.get(resource);
            let (Some(least_amount), Some(most_amount)) =
                (amounts::parse(least.value), most.and_then(amounts::parse))
            else {
                continue;
            };
            if least_amount > most_amount {
                let shown = |amount| amounts::text(resource, amount);
                let (least_text, most_text) = (shown(least_amount), shown(most_amount));
                let detail = format!("{low_name} {least_text} is greater than {high_name} {most_text}");
                // The error is at the value that is not the bound.
                let (path, value) = if *low == "min" && *high != "max" {
                    (item.at(high).path, most.cloned().unwrap_or_default())
                } else {
                    (item.at(low).path, least.value.clone())
                };
                errors.invalid(format!("{path}[{resource}]"), value, detail);
            }
        }
    }
}

pub(super) fn check_storage_class(
    class: &FieldValue<'_>,
    old: Option<&FieldValue<'_>>,
    errors: &mut ErrorList,
) {
    let provisioner = class.at("provisioner");
    if provisioner.text().is_empty() {
        errors.required(&provisioner.path, "");
    }
    errors.one_of(&class.at("reclaimPolicy"), &["Delete", "Retain"]);
    errors.one_of(&class.at("volumeBindingMode"), &["Immediate", "WaitForFirstConsumer"]);
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        refuse_change(class, old, field, errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validation::check;

    fn problems(resource: &str, object: &serde_json::Value, old: Option<&serde_json::Value>) -> String {
        check(resource, object, old).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn priority_class_of_the_system_is_reserved_and_values_stay() {
        let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
        assert_eq!(problems("priorityclasses", &class("high", 1000), None), "");
        assert_eq!(problems("priorityclasses", &class("system-node-critical", 2_000_001_000), None), "");
        assert!(
            problems("priorityclasses", &class("system-x", 1), None).contains(
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved"
            )
        );
        let changed = problems("priorityclasses", &class("high", 1), Some(&class("high", 2)));
        assert_eq!(changed, "value: Forbidden: may not be changed in an update.");
    }

    #[test]
    fn quota_needs_amounts_and_scopes_that_do_not_conflict() {
        let quota = |spec| json!({"metadata": {"name": "q", "namespace": "a"}, "spec": spec});
        let fine = quota(json!({"hard": {"pods": "3", "requests.memory": "1Gi"}, "scopes": ["BestEffort"]}));
        assert_eq!(problems("resourcequotas", &fine, None), "");
        let wrong = quota(
            json!({"hard": {"pods": "-1", "cpu": "much"}, "scopes": ["BestEffort", "NotBestEffort", "Odd"]}),
        );
        let found = problems("resourcequotas", &wrong, None);
        for part in [
            "spec.hard[pods]: Invalid value: \"-1\": must be greater",
            "spec.hard[cpu]",
            "Unsupported value: \"Odd\"",
            "conflicting scopes",
        ] {
            assert!(found.contains(part), "{part} is missing in {found}");
        }
    }

    #[test]
    fn limit_range_has_its_bounds_in_order() {
        let range = |item| json!({"metadata": {"name": "r", "namespace": "a"}, "spec": {"limits": [item]}});
        let wrong = range(json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}));
        assert_eq!(
            problems("limitranges", &wrong, None),
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"
        );
        let fine = range(json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}}));
        assert_eq!(problems("limitranges", &fine, None), "");
    }

    #[test]
    fn storage_class_keeps_its_provisioner() {
        let class = |provisioner: &str| json!({"metadata": {"name": "c"}, "provisioner": provisioner});
        assert_eq!(problems("storageclasses", &class(""), None), "provisioner: Required value");
        let changed = problems("storageclasses", &class("a"), Some(&class("b")));
        assert_eq!(changed, "provisioner: Invalid value: \"a\": field is immutable");
    }
}
