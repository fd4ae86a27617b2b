//! Default resource requests of containers and pods with limits.

use model::Amount;
use serde_json::Value;

use super::Tree;
use super::tree::{child, items, section, text};

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
    let sums: Vec<(&str, Amount)> =
        ["cpu", "memory"].into_iter().filter_map(|name| Some((name, sum(spec, name)?))).collect();
    let Some(resources) = child(spec, "resources") else { return };
    if let Some(requests) = section(resources, "requests") {
        for (name, amount) in sums {
            requests.entry(name).or_insert_with(|| amount.to_string().into());
        }
    }
    from_limits(resources);
}

/// The maximum of concurrent requests, if any container has one: of all regular containers and sidecars, or of one init
/// container and the sidecars before it.
fn sum(spec: &mut Tree, name: &str) -> Option<Amount> {
    let (mut sidecars, mut peak) = (None, None);
    for container in items(spec, "initContainers") {
        let own = request(container, name);
        let with_sidecars = plus(sidecars, own);
        if text(container, "restartPolicy") == "Always" {
            sidecars = with_sidecars;
        }
        peak = peak.max(with_sidecars);
    }
    let together = items(spec, "containers").map(|container| request(container, name)).fold(sidecars, plus);
    together.max(peak)
}

fn request(container: &Tree, name: &str) -> Option<Amount> {
    Amount::parse(container.get("resources")?.get("requests")?.get(name)?.as_str()?).ok()
}

fn plus(left: Option<Amount>, right: Option<Amount>) -> Option<Amount> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left + right),
        (one, other) => one.or(other),
    }
}
