//! The order in which the providers of a pod's resources are asked for hints and allocate.
//!
//! In scope `container` each container is aligned by itself: hints, then the allocation, so that the next one sees what is left. In
//! scope `pod` the hints are of the whole pod, and each container gets the same. A pod with resources of its own is allocated as a
//! whole in scope `pod`.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::containers::{ContainerRef, init_containers, regular_containers, spec_of};
use model::k8s::Pod;
use model::quantity::may_be_pod_level;

use super::policy::{PolicyKind, Scope, TopologyPolicy};
use super::{ProviderHints, TopologyHint};
use crate::rejection::Rejection;

/// The reason of a pod whose resources cannot be aligned.
pub const TOPOLOGY_AFFINITY_ERROR: &str = "TopologyAffinityError";

const NOT_ALIGNED: &str = "Resources cannot be allocated with Topology locality";
const POD_NOT_ALIGNED: &str =
    "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager";
const POD_NOT_ALIGNED_BY_CONTAINER: &str =
    "Pod Scope pod with pod-level resources failed admission with a container-level topology manager";

/// Gives out a kind of resource: CPUs, memory or devices. The hint of an allocation has no nodes if any will do.
pub trait HintProvider {
    fn container_hints(&self, pod: &Pod, container: &ContainerRef<'_>) -> ProviderHints;

    fn pod_hints(&self, pod: &Pod) -> ProviderHints;

    /// # Errors
    /// There is not enough.
    fn allocate(
        &mut self,
        pod: &Pod,
        container: &ContainerRef<'_>,
        hint: TopologyHint,
    ) -> Result<(), Rejection>;

    /// Allocates to all containers of a pod with resources of its own.
    ///
    /// # Errors
    /// There is not enough.
    fn allocate_pod(&mut self, pod: &Pod, hint: TopologyHint) -> Result<(), Rejection>;
}

/// Lets the providers allocate to the containers of the pod in start order, by the policy. Returns the hint of each container; in scope
/// `container` one that has a hint in `decided` keeps it. After an error some containers have been allocated to; the caller drops what the providers have done.
///
/// # Errors
/// The resources cannot be aligned as the policy demands, or a provider has not enough.
pub fn compute_aligned_resources(
    policy: &TopologyPolicy,
    has_pod_level_managers: bool,
    pod: &Pod,
    decided: &BTreeMap<String, TopologyHint>,
    providers: &mut [&mut dyn HintProvider],
) -> Result<BTreeMap<String, TopologyHint>, Rejection> {
    let is_pod_level = has_pod_level_managers && has_pod_level_resources(pod);
    let mut hints = BTreeMap::new();
    if policy.kind() != PolicyKind::None && policy.scope() == Scope::Pod {
        let own: Vec<ProviderHints> = providers.iter().map(|provider| provider.pod_hints(pod)).collect();
        let affinity = policy.merge(&own);
        if !affinity.is_admitted {
            return Err(not_aligned(if is_pod_level { POD_NOT_ALIGNED } else { NOT_ALIGNED }));
        }
        for container in containers(pod) {
            hints.insert(container.name().to_owned(), affinity.hint);
            if !is_pod_level {
                allocate(pod, &container, affinity.hint, providers)?;
            }
        }
        if is_pod_level {
            providers.iter_mut().try_for_each(|provider| provider.allocate_pod(pod, affinity.hint))?;
        }
        return Ok(hints);
    }
    for container in containers(pod) {
        if let Some(hint) = decided.get(container.name()) {
            hints.insert(container.name().to_owned(), *hint);
            allocate(pod, &container, *hint, providers)?;
            continue;
        }
        let own = providers.iter().map(|provider| match policy.kind() {
            PolicyKind::None => ProviderHints::new(),
            PolicyKind::BestEffort | PolicyKind::Restricted | PolicyKind::SingleNumaNode => {
                provider.container_hints(pod, &container)
            }
        });
        let affinity = policy.merge(&own.collect::<Vec<_>>());
        if !affinity.is_admitted {
            return Err(not_aligned(if is_pod_level { POD_NOT_ALIGNED_BY_CONTAINER } else { NOT_ALIGNED }));
        }
        hints.insert(container.name().to_owned(), affinity.hint);
        allocate(pod, &container, affinity.hint, providers)?;
    }
    Ok(hints)
}

fn containers(pod: &Pod) -> impl Iterator<Item = ContainerRef<'_>> {
    init_containers(pod).chain(regular_containers(pod))
}

fn allocate(
    pod: &Pod,
    container: &ContainerRef<'_>,
    hint: TopologyHint,
    providers: &mut [&mut dyn HintProvider],
) -> Result<(), Rejection> {
    providers.iter_mut().try_for_each(|provider| provider.allocate(pod, container, hint))
}

fn not_aligned(message: &str) -> Rejection {
    Rejection { reason: Cow::Borrowed(TOPOLOGY_AFFINITY_ERROR), message: message.to_owned() }
}

/// The pod has requests or limits of its own that pods can have.
#[must_use]
pub fn has_pod_level_resources(pod: &Pod) -> bool {
    let Some(resources) = &spec_of(pod).resources else { return false };
    let mut names = resources.requests.iter().chain(&resources.limits).flat_map(BTreeMap::keys);
    names.any(|name| may_be_pod_level(name))
}
