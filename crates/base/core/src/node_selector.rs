//! Which nodes a node selector of the API selects: that of a pod's affinity, and that of a PersistentVolume.

use std::collections::BTreeMap;

use model::k8s::{NodeSelectorRequirement, NodeSelectorTerm};

/// Some term selects a node with these labels. `name`: `None` where the API compares labels only, and ignores fields.
pub fn selects_any(
    terms: &[NodeSelectorTerm],
    name: Option<&str>,
    labels: &BTreeMap<String, String>,
) -> bool {
    terms.iter().any(|term| term_matches(term, name, labels))
}

/// All of its requirements are met; a term without any selects nothing.
fn term_matches(term: &NodeSelectorTerm, name: Option<&str>, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |requirement: &NodeSelectorRequirement| {
        meets(requirement, labels.get(&requirement.key).map(String::as_str))
    };
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(label)
        && name.is_none_or(|name| fields.iter().all(|field| field_meets(field, name)))
}

/// `metadata.name` is the only supported field, and it can only be compared.
fn field_meets(requirement: &NodeSelectorRequirement, name: &str) -> bool {
    requirement.key == "metadata.name"
        && ["In", "NotIn"].contains(&requirement.operator.as_str())
        && meets(requirement, Some(name))
}

/// An unknown operator, or values that are invalid for it, match nothing.
fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers(value, values).is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers(value, values).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

fn numbers(value: Option<&str>, values: &[String]) -> Option<(i64, i64)> {
    let [bound] = values else { return None };
    Some((value?.parse().ok()?, bound.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn in_and_not_in_are_opposites(key in "[a-c]", values in prop::collection::vec("[a-c]", 0..3), label in prop::option::of("[a-c]")) {
            let requirement = |operator: &str| NodeSelectorRequirement {
                key: key.clone(), operator: operator.to_owned(), values: Some(values.clone()),
            };
            prop_assert_ne!(meets(&requirement("In"), label.as_deref()), meets(&requirement("NotIn"), label.as_deref()));
            prop_assert_ne!(meets(&requirement("Exists"), label.as_deref()), meets(&requirement("DoesNotExist"), label.as_deref()));
        }
    }
}
