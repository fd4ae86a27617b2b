//! The CPUs, memory and devices of a pod that is admitted.

use std::collections::BTreeSet;

use model::PodRef;
use model::containers::{init_containers, regular_containers};
use model::k8s::Pod;

use super::provider::CpuProvider;
use super::tally::{CONTAINER_IN_NODE, CountedMemory, POD_IN_NODE, Tally};
use super::{PinPolicies, Pinned};
use crate::cpus::CpuPolicy;
use crate::devices::assign::{Claims, compute_pod_devices, rejection};
use crate::devices::{DeviceProvider, Hints, NO_HINTS, PodDevices};
use crate::memory::PodMemory;
use crate::rejection::Rejection;
use crate::topology::align::TOPOLOGY_AFFINITY_ERROR;
use crate::topology::{HintProvider, PolicyKind, Scope, TopologyPolicy, compute_aligned_resources};

/// What a pod gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub devices: PodDevices,
    /// Where plugins should prefer devices.
    pub hints: Hints,
    /// The state of the node with the pod's CPUs and memory; `None` if nothing changes.
    pub pinned: Option<Pinned>,
}

/// Decides what the pod gets; containers that have something keep it.
///
/// # Errors
/// There is not enough, or not as near to each other as the policy demands.
pub fn compute_placement(
    pod: &Pod,
    policies: &PinPolicies,
    pinned: &Pinned,
    claims: &Claims<'_>,
    tally: &mut Tally,
) -> Result<Placement, Rejection> {
    place(pod, policies, pinned, claims, &NO_HINTS, tally)
}

/// Decides again what the containers after that one get, because its devices are now others than were assumed. It and those before it
/// keep what they have. Only for policies that align each container by itself ([`PinPolicies::align_containers`]): the Go kubelet asks a
/// plugin for the devices of a container before it aligns the next one.
///
/// # Errors
/// There is not enough, or not as near to each other as the policy demands.
pub fn compute_placement_after(
    pod: &Pod,
    container: &str,
    policies: &PinPolicies,
    pinned: &Pinned,
    claims: &Claims<'_>,
) -> Result<Placement, Rejection> {
    let uid = PodRef::of(pod).uid;
    let all = || init_containers(pod).chain(regular_containers(pod));
    let count = all().take_while(|other| other.name() != container).count() + 1;
    let decided: BTreeSet<&str> = all().take(count).map(|container| container.name()).collect();
    let mut left = pinned.clone();
    left.release_inactive(|pod, container| *pod != uid || decided.contains(container));
    let hints = claims.hints.iter().filter(|(name, _)| decided.contains(name.as_str()));
    let hints: Hints = hints.map(|(name, hint)| (name.clone(), *hint)).collect();
    let mut placement = place(pod, policies, &left, claims, &hints, &mut Tally::default())?;
    let new = placement.pinned.take().unwrap_or(left);
    placement.pinned = (new != *pinned).then_some(new);
    Ok(placement)
}

fn place(
    pod: &Pod,
    policies: &PinPolicies,
    pinned: &Pinned,
    claims: &Claims<'_>,
    decided: &Hints,
    tally: &mut Tally,
) -> Result<Placement, Rejection> {
    if policies.are_none() {
        let devices = compute_pod_devices(pod, claims).map_err(|why| rejection(&why))?;
        return Ok(Placement { devices, ..Placement::default() });
    }
    let mut devices = DeviceProvider::new(claims, policies.nodes);
    let mut cpus = match &policies.cpus {
        CpuPolicy::None => None,
        CpuPolicy::Static(policy) => {
            Some(CpuProvider { policy, state: pinned.cpus.clone(), tally: Tally::default() })
        }
    };
    let memory = policies.memory.as_ref();
    let mut memory = memory.map(|policy| CountedMemory::new(PodMemory::new(policy, pinned.memory.clone())));
    let mut providers: Vec<&mut dyn HintProvider> = vec![&mut devices];
    providers.extend(cpus.as_mut().map(|cpus| cpus as &mut dyn HintProvider));
    providers.extend(memory.as_mut().map(|memory| memory as &mut dyn HintProvider));
    let has_pod_level = policies.has_pod_level_managers;
    let hints = compute_aligned_resources(&policies.topology, has_pod_level, pod, decided, &mut providers);
    *tally = cpus.as_ref().map(|cpus| cpus.tally.clone()).unwrap_or_default();
    if let Some(memory) = &memory {
        tally.memory = memory.attempts;
        tally.assignments.merge(&memory.assignments);
    }
    count_alignment(&policies.topology, &hints, tally);
    let hints = hints?;
    let new = Pinned {
        cpus: cpus.map_or_else(|| pinned.cpus.clone(), |cpus| cpus.state),
        memory: memory.map_or_else(|| pinned.memory.clone(), |memory| memory.memory.into_state()),
    };
    Ok(Placement { devices: devices.into_devices(), hints, pinned: (new != *pinned).then_some(new) })
}

/// Only a policy that promises one NUMA node counts what is aligned.
fn count_alignment(policy: &TopologyPolicy, hints: &Result<Hints, Rejection>, tally: &mut Tally) {
    tally.is_refused = hints.is_err() && policy.kind() != PolicyKind::None;
    if !policy.guarantees_alignment() {
        return;
    }
    let boundary = match policy.scope() {
        Scope::Container => CONTAINER_IN_NODE,
        Scope::Pod => POD_IN_NODE,
    };
    match (hints, policy.scope()) {
        (Ok(hints), Scope::Container) => tally.record_aligned(boundary, hints.len() as u64),
        (Ok(_), Scope::Pod) => tally.record_aligned(boundary, 1),
        (Err(refused), _) if refused.reason == TOPOLOGY_AFFINITY_ERROR => tally.record_not_aligned(boundary),
        (Err(_), _) => {}
    }
}
