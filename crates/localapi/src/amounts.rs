//! Amounts of resources in JSON trees: of containers, of pods, and as the API writes them.

use std::collections::BTreeMap;

use model::{Amount, quantity};
use serde_json::{Map, Value};

/// Amounts by resource.
pub(crate) type Amounts = BTreeMap<String, Amount>;

/// The quantities of a map; what is no quantity is left out, because validation refuses it.
pub(crate) fn of_map(quantities: Option<&Value>) -> Amounts {
    let entries = quantities.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, quantity)| Some((name.clone(), parse(quantity)?))).collect()
}

/// Clients may write a quantity as a number.
pub(crate) fn parse(quantity: &Value) -> Option<Amount> {
    match quantity {
        Value::String(text) => Amount::parse(text).ok(),
        Value::Number(number) => Amount::parse(&number.to_string()).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `requests` or `limits` of a container.
pub(crate) fn of_container(container: &Value, side: &str) -> Amounts {
    of_map(container.get("resources").and_then(|resources| resources.get(side)))
}

/// The most that the containers of a pod request (or their limits) at one time: all regular containers and sidecars, or one init container
/// and the sidecars before it.
pub(crate) fn of_containers(spec: &Map<String, Value>, side: &str) -> Amounts {
    let list = |field: &str| spec.get(field).and_then(Value::as_array).into_iter().flatten();
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in list("initContainers") {
        let mut together = sidecars.clone();
        add(&mut together, &of_container(container, side));
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            sidecars.clone_from(&together);
        }
        raise(&mut most, together);
    }
    let mut regular = sidecars;
    list("containers").for_each(|container| add(&mut regular, &of_container(container, side)));
    raise(&mut most, regular);
    most
}

/// What a pod requests, or its limits: that of its containers, what is set for the whole pod, and its overhead.
pub(crate) fn of_pod(pod: &Value, side: &str) -> Amounts {
    let Some(spec) = pod.get("spec").and_then(Value::as_object) else { return Amounts::new() };
    let mut total = of_containers(spec, side);
    let whole = of_map(spec.get("resources").and_then(|resources| resources.get(side)));
    total.extend(whole.into_iter().filter(|(name, _)| quantity::may_be_pod_level(name)));
    let mut overhead = of_map(spec.get("overhead"));
    // A limit exists only where one was set.
    overhead.retain(|name, _| side == "requests" || total.contains_key(name));
    add(&mut total, &overhead);
    total
}

pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = *entry + *amount;
    }
}

fn raise(most: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        let entry = most.entry(name).or_default();
        *entry = (*entry).max(amount);
    }
}

/// As the API writes an amount of a resource: bytes in powers of 1024, everything else in decimals.
pub(crate) fn text(resource: &str, amount: Amount) -> String {
    let base = resource.rsplit_once('.').map_or(resource, |(_, base)| base);
    let is_bytes =
        ["memory", "storage", "ephemeral-storage"].contains(&base) || base.starts_with("hugepages-");
    if amount.milli() % 1000 != 0 {
        amount.to_string()
    } else if is_bytes {
        quantity::binary_text(amount.units().into())
    } else {
        quantity::decimal_text(amount.units().into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(amounts: &Amounts) -> String {
        amounts
            .iter()
            .map(|(name, amount)| format!("{name}={}", text(name, *amount)))
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn container(cpu: &str, restart: &str) -> Value {
        json!({"restartPolicy": restart, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": "2"}}})
    }

    #[test]
    fn init_containers_and_sidecars_count_as_long_as_they_run_together() {
        let pod = json!({"spec": {
            "initContainers": [container("1", "Always"), container("3", "")],
            "containers": [container("500m", ""), container("1", "")],
        }});
        assert_eq!(shown(&of_pod(&pod, "requests")), "cpu=4 memory=192Mi");
        assert_eq!(shown(&of_pod(&pod, "limits")), "cpu=6");
    }

    #[test]
    fn requests_of_the_whole_pod_replace_the_sum_and_overhead_is_added() {
        let pod = json!({"spec": {
            "containers": [container("1", "")],
            "resources": {"requests": {"cpu": 2, "example.com/a": "7"}},
            "overhead": {"cpu": "100m", "memory": "1Mi"},
        }});
        assert_eq!(shown(&of_pod(&pod, "requests")), "cpu=2100m memory=65Mi");
        assert_eq!(shown(&of_pod(&pod, "limits")), "cpu=2100m");
    }

    #[test]
    fn amounts_are_written_as_the_api_does() {
        let written = |resource, amount| text(resource, Amount::parse(amount).unwrap());
        assert_eq!(written("limits.cpu", "1.5"), "1500m");
        assert_eq!(written("requests.memory", "2048Mi"), "2Gi");
        assert_eq!(written("pods", "1000"), "1k");
        assert_eq!(written("requests.hugepages-2Mi", "4Mi"), "4Mi");
    }
}
