//! The resource requests of a pod: the largest sum over containers that run together (docs/behaviour/admission.md).

use std::collections::BTreeMap;

use model::containers::{ContainerRef, init_containers, regular_containers, spec_of};
use model::k8s::{Pod, Quantity, ResourceRequirements};
use model::quantity::may_be_pod_level;
use model::{Amount, ContainerKind};

/// Amounts by resource.
pub type Requests = BTreeMap<String, Amount>;

/// Regular containers and sidecars run together; each init container runs with the sidecars before it. Pod-level
/// requests replace the sum; overhead is added.
#[must_use]
pub fn pod_requests(pod: &Pod) -> Requests {
    requests_with(pod, container_requests)
}

/// The same with the requests of each container given by the caller.
pub(crate) fn requests_with(pod: &Pod, of: impl Fn(&ContainerRef<'_>) -> Requests) -> Requests {
    let mut together = Requests::new();
    for container in regular_containers(pod) {
        add(&mut together, &of(&container));
    }
    let (mut sidecars, mut most_at_start) = (Requests::new(), Requests::new());
    for container in init_containers(pod) {
        let own = of(&container);
        if container.kind == ContainerKind::Sidecar {
            add(&mut together, &own);
            add(&mut sidecars, &own);
        }
        // Of any other resource it changes nothing.
        for (name, amount) in own {
            let of_sidecars = sidecars.get(&name).copied().unwrap_or_default();
            let is_sidecar = container.kind == ContainerKind::Sidecar;
            let now = if is_sidecar { of_sidecars } else { of_sidecars + amount };
            let most = most_at_start.entry(name).or_default();
            *most = (*most).max(now);
        }
    }
    raise(&mut together, &most_at_start);
    let of_pod = requests(spec_of(pod).resources.as_ref());
    together.extend(of_pod.into_iter().filter(|(name, _)| may_be_pod_level(name)));
    let overhead = spec_of(pod).overhead.iter().flatten();
    add(&mut together, &overhead.map(|(name, quantity)| (name.clone(), amount(quantity))).collect());
    together
}

/// The requests of a container.
pub(crate) fn container_requests(container: &ContainerRef<'_>) -> Requests {
    requests(container.resources())
}

/// A limit without a request counts as the request.
pub(crate) fn requests(resources: Option<&ResourceRequirements>) -> Requests {
    let Some(resources) = resources else { return Requests::new() };
    let limits = resources.limits.iter().flatten();
    let requested = resources.requests.iter().flatten();
    limits.chain(requested).map(|(name, quantity)| (name.clone(), amount(quantity))).collect()
}

/// Validation has checked the text; an unreadable one counts as 0.
fn amount(quantity: &Quantity) -> Amount {
    Amount::of(quantity).unwrap_or(Amount::ZERO)
}

pub(super) fn add(sum: &mut Requests, more: &Requests) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = *entry + *amount;
    }
}

fn raise(most: &mut Requests, to: &Requests) {
    for (name, amount) in to {
        let entry = most.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// `c:2` a container that requests 2 CPUs, `i:` an init container, `s:` a sidecar.
    #[track_caller]
    fn check(containers: &str, more: &Value, expected: &str) {
        let (mut init, mut regular) = (Vec::new(), Vec::new());
        for word in containers.split_whitespace() {
            let (kind, cpus) = word.split_once(':').unwrap();
            let mut container = json!({"name": "x", "resources": {"requests": {"cpu": cpus}}});
            match kind {
                "c" => regular.push(container),
                "i" => init.push(container),
                _ => {
                    container["restartPolicy"] = json!("Always");
                    init.push(container);
                }
            }
        }
        let mut spec = json!({"containers": regular, "initContainers": init});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let shown: Vec<_> = pod_requests(&pod).iter().map(|(name, a)| format!("{name}={a}")).collect();
        assert_eq!(shown.join(" "), expected, "{containers}");
    }

    #[test]
    fn pod_requests_are_the_maximum_of_init_and_regular_containers() {
        check("c:1 c:500m", &json!({}), "cpu=1500m");
        check("i:3 c:1", &json!({}), "cpu=3");
        check("i:1 i:2 c:1 c:2", &json!({}), "cpu=3");
        check("s:1 c:1", &json!({}), "cpu=2");
        check("s:1 i:3 c:1", &json!({}), "cpu=4");
        check("i:3 s:1 c:1", &json!({}), "cpu=3");
        check("s:1 i:2 s:1 i:2 c:1", &json!({}), "cpu=4");
    }

    #[test]
    fn pod_level_requests_replace_the_sum_and_overhead_is_added() {
        check("c:1", &json!({"overhead": {"cpu": "100m", "memory": "1"}}), "cpu=1100m memory=1");
        check("c:1 c:1", &json!({"resources": {"requests": {"cpu": "5"}}}), "cpu=5");
        check(
            "c:1",
            &json!({"resources": {"limits": {"memory": "7"}}, "overhead": {"cpu": "1"}}),
            "cpu=2 memory=7",
        );
        check("c:1", &json!({"resources": {"requests": {"example.com/gpu": "5"}}}), "cpu=1");
    }

    #[test]
    fn limit_without_a_request_counts_as_the_request() {
        let resources = |value: Value| requests(Some(&serde_json::from_value(value).unwrap()));
        assert_eq!(resources(json!({"limits": {"cpu": "2"}}))["cpu"], Amount::from_units(2));
        assert_eq!(
            resources(json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}))["cpu"],
            Amount::from_units(1)
        );
    }
}
