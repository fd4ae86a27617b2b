//! Default resource requests of containers and pods with limits.

use serde_json::Value;

use super::Tree;
use super::tree::{child, section};
use crate::amounts;

/// Quantities that clients write as numbers are stored as strings.
pub(super) fn numbers_to_text(quantities: &mut Tree) {
    for quantity in quantities.values_mut() {
        if let Value::Number(number) = quantity {
            *quantity = Value::String(number.to_string());
        }
    }
}

/// A limit is the default of its request.
pub(super) fn from_limits(resources: &mut Tree) {
    for side in ["limits", "requests"] {
        if let Some(quantities) = child(resources, side) {
            numbers_to_text(quantities);
        }
    }
    let Some(limits) = child(resources, "limits").map(|limits| limits.clone()) else { return };
    let Some(requests) = section(resources, "requests") else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// The default of a pod-level request is the total of the containers' requests, or else the pod-level limit.
pub(super) fn of_pod(spec: &mut Tree) {
    let has_limits = child(spec, "resources").is_some_and(|resources| child(resources, "limits").is_some());
    if !has_limits {
        return;
    }
    let sums = amounts::of_containers(spec, "requests");
    let Some(resources) = child(spec, "resources") else { return };
    if let Some(requests) = section(resources, "requests") {
        for (name, amount) in sums.into_iter().filter(|(name, _)| ["cpu", "memory"].contains(&name.as_str()))
        {
            requests.entry(name).or_insert_with(|| amount.to_string().into());
        }
    }
    from_limits(resources);
}
