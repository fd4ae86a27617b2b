//! What a change of a pod's spec requests, for the metric of requested resizes.

use std::cmp::Ordering;

use config::Features;
use model::containers::{ContainersByName, all_containers};
use model::k8s::Pod;

use resources_core::amounts::{Amounts, is_resizable};

/// One changed value: `memory`, `limits`, `increase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedResize {
    pub resource: &'static str,
    pub requirement: &'static str,
    pub operation: &'static str,
}

/// The values that differ between two versions of a pod.
#[must_use]
pub fn requested_resizes(old: &Pod, new: &Pod, features: Features) -> Vec<RequestedResize> {
    let mut found = Vec::new();
    let newer = ContainersByName::of(new);
    for container in all_containers(old).filter(|container| is_resizable(container.kind, features)) {
        let Some(newer) = newer.get(container.name()) else { continue };
        let (from, to) = (Amounts::of(container.resources()), Amounts::of(newer.resources()));
        let values = [
            ("memory", "requests", from.memory_request, to.memory_request),
            ("memory", "limits", from.memory_limit, to.memory_limit),
            ("cpu", "requests", from.cpu_request, to.cpu_request),
            ("cpu", "limits", from.cpu_limit, to.cpu_limit),
        ];
        found.extend(values.into_iter().filter_map(|(resource, requirement, from, to)| {
            Some(RequestedResize { resource, requirement, operation: operation(from, to)? })
        }));
    }
    found
}

fn operation(from: i64, to: i64) -> Option<&'static str> {
    match (from, to, to.cmp(&from)) {
        (_, _, Ordering::Equal) => None,
        (_, 0, _) => Some("remove"),
        (0, _, _) => Some("add"),
        (_, _, Ordering::Less) => Some("decrease"),
        (_, _, Ordering::Greater) => Some("increase"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(resources: &Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}))
            .unwrap()
    }

    #[test]
    fn each_changed_value_is_an_operation_of_its_own() {
        let old = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}});
        let new = json!({"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "3Gi"}});
        let shown = |old, new| {
            let found = requested_resizes(&pod(old), &pod(new), Features::default());
            let text =
                |one: RequestedResize| format!("{} {} {}", one.resource, one.requirement, one.operation);
            found.into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&old, &new),
            ["memory requests increase", "memory limits add", "cpu requests decrease", "cpu limits remove"]
        );
        assert!(
            shown(&old, &json!({"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": "2"}}))
                .is_empty()
        );
    }
}
