//! Amounts of a whole pod: sums over the containers that run at the same time, and limits of all together.

use std::collections::BTreeMap;

use model::Amount;
use model::containers::{init_containers, regular_containers, spec_of};
use model::k8s::{Container, Pod, PodSpec, ResourceRequirements};
use model::qos::limit;

/// The limit of the whole pod: only if every container has a limit. Overhead is added.
#[must_use]
pub fn pod_limit(pod: &Pod, name: &str) -> Option<Amount> {
    let spec = spec_of(pod);
    let of = |resources: Option<&ResourceRequirements>| resources.and_then(|r| limit(r, name));
    let together = of(spec.resources.as_ref()).or_else(|| {
        let mut all = init_containers(pod).chain(regular_containers(pod));
        let is_limited = all.all(|container| of(container.resources()).is_some());
        is_limited.then(|| effective_sum(spec, |container| of(container.resources.as_ref()))).flatten()
    })?;
    let overhead = spec.overhead.as_ref().and_then(|overhead| Amount::of(overhead.get(name)?).ok());
    Some(together + overhead.unwrap_or(Amount::ZERO))
}

/// What the containers need at the same time at most: either all regular ones and sidecars together, or one init
/// container and the sidecars before it. `None` if no container specifies any.
#[must_use]
pub fn effective_sum(spec: &PodSpec, amount: impl Fn(&Container) -> Option<Amount>) -> Option<Amount> {
    let (mut sidecars, mut init_peak) = (None, None);
    for container in spec.init_containers.iter().flatten() {
        let own = amount(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = plus(sidecars, own);
            init_peak = init_peak.max(sidecars);
        } else {
            init_peak = init_peak.max(plus(sidecars, own));
        }
    }
    let together = spec.containers.iter().map(amount).fold(sidecars, plus);
    together.max(init_peak)
}

/// As [`effective_sum`] for each resource of `amounts`, in one pass: a pod may name thousands of resources.
#[must_use]
pub fn effective_sums<'a>(
    spec: &'a PodSpec,
    amounts: impl Fn(&'a Container) -> BTreeMap<&'a str, Amount>,
) -> BTreeMap<&'a str, Amount> {
    let (mut sidecars, mut init_peak) = (BTreeMap::new(), BTreeMap::new());
    let add = |sums: &mut BTreeMap<&'a str, Amount>, name: &'a str, amount: Amount| {
        let sum = sums.entry(name).or_default();
        *sum = *sum + amount;
        *sum
    };
    for container in spec.init_containers.iter().flatten() {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        for (name, amount) in amounts(container) {
            let now = match is_sidecar {
                true => add(&mut sidecars, name, amount),
                false => amount + sidecars.get(name).copied().unwrap_or_default(),
            };
            init_peak.entry(name).and_modify(|most: &mut Amount| *most = (*most).max(now)).or_insert(now);
        }
    }
    let mut together = sidecars;
    for (name, amount) in spec.containers.iter().flat_map(amounts) {
        add(&mut together, name, amount);
    }
    for (name, peak) in init_peak {
        together.entry(name).and_modify(|most| *most = (*most).max(peak)).or_insert(peak);
    }
    together
}

fn plus(a: Option<Amount>, b: Option<Amount>) -> Option<Amount> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}
