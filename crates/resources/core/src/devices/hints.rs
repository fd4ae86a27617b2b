//! The hints of devices for the topology manager, and their allocation to one pod.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use model::Amount;
use model::containers::{ContainerRef, init_containers, regular_containers};
use model::k8s::Pod;
use model::topology::NumaMask;

use super::Registry;
use super::affinity::{has_nodes, mask};
use super::assign::{Choice, Claims, PodDevices, rejection, wanted};
use crate::rejection::Rejection;
use crate::requests::{Requests, requests_with};
use crate::topology::{HintProvider, ProviderHints, TopologyHint};

/// With devices on more nodes, only single nodes and all of them together are suggested.
const MAX_NODES: u32 = 16;

/// The devices of the node while one pod is admitted: a provider of hints for the topology manager.
#[derive(Debug)]
pub struct DeviceProvider<'a> {
    choice: Choice<'a>,
    /// The NUMA nodes of the machine.
    machine: NumaMask,
}

impl<'a> DeviceProvider<'a> {
    /// The hints of the claims are not used: each allocation has its own.
    #[must_use]
    pub fn new(claims: &Claims<'a>, machine: NumaMask) -> Self {
        Self { choice: Choice::new(claims), machine }
    }

    /// What was allocated.
    #[must_use]
    pub fn into_devices(self) -> PodDevices {
        self.choice.made
    }

    /// `None`: the nodes of the devices do not matter, because none of them has any.
    fn hints(&self, resource: &str, requested: usize, held: &BTreeSet<&str>) -> Option<Vec<TopologyHint>> {
        let registry = self.choice.registry;
        if !has_nodes(registry, resource) {
            return None;
        }
        let none = BTreeSet::new();
        if !held.is_empty() {
            let is_same = held.len() == requested;
            return Some(if is_same { self.generate(resource, requested, held, &none) } else { Vec::new() });
        }
        let taken = self.choice.taken.get(resource);
        let is_free = |id: &&str| taken.is_none_or(|taken| !taken.contains(*id));
        let free: BTreeSet<&str> = registry.healthy(resource).filter(is_free).collect();
        let reusable = self.choice.reusable.get(resource).into_iter().flatten().map(String::as_str).collect();
        if free.union(&reusable).count() < requested {
            return Some(Vec::new());
        }
        Some(self.generate(resource, requested, &free, &reusable))
    }

    /// Every combination of nodes with all reusable devices, and enough together with available ones. Preferred are those with the
    /// smallest number of nodes that have as many devices, allocated or not.
    fn generate(
        &self,
        resource: &str,
        requested: usize,
        available: &BTreeSet<&str>,
        reusable: &BTreeSet<&str>,
    ) -> Vec<TopologyHint> {
        let registry = self.choice.registry;
        let of = |id: &str| mask(registry.numa_nodes(resource, id));
        let all: Vec<NumaMask> = registry.devices(resource).map(of).collect();
        let available: Vec<NumaMask> = available.iter().map(|id| of(id)).collect();
        let has_a_node = |id: &&&str| !registry.numa_nodes(resource, id).is_empty();
        let reusable: Vec<NumaMask> = reusable.iter().filter(has_a_node).map(|id| of(id)).collect();
        let on = |devices: &[NumaMask], nodes: NumaMask| {
            devices.iter().filter(|device| !device.and(nodes).is_empty()).count()
        };
        let nodes = device_nodes(registry, resource, self.machine);
        let combinations = combinations(nodes);
        let enough = combinations.iter().filter(|nodes| on(&all, **nodes) >= requested);
        let fewest = enough.map(|nodes| nodes.count()).min().unwrap_or(nodes.count());
        let fits = |nodes: &NumaMask| {
            on(&reusable, *nodes) == reusable.len() && reusable.len() + on(&available, *nodes) >= requested
        };
        let hint =
            |nodes: NumaMask| TopologyHint { nodes: Some(nodes), is_preferred: nodes.count() == fewest };
        combinations.into_iter().filter(fits).map(hint).collect()
    }

    fn allocate_to(
        &mut self,
        pod: &Pod,
        container: &ContainerRef<'_>,
        hint: TopologyHint,
    ) -> Result<(), Rejection> {
        self.choice.choose_all(pod, container, Some(hint)).map_err(|why| rejection(&why))
    }
}

/// The nodes of the machine that have devices of the resource; all nodes if none has.
fn device_nodes(registry: &Registry, resource: &str, machine: NumaMask) -> NumaMask {
    let nodes = registry.devices(resource).map(|id| mask(registry.numa_nodes(resource, id)));
    let nodes = nodes.fold(NumaMask::EMPTY, NumaMask::or).and(machine);
    if nodes.is_empty() { machine } else { nodes }
}

fn combinations(nodes: NumaMask) -> Vec<NumaMask> {
    if nodes.count() <= MAX_NODES {
        return nodes.subsets();
    }
    nodes.ids().map(|id| NumaMask::of([id])).chain([nodes]).collect()
}

/// What a container has in its limits of plugin resources.
fn limits(container: &ContainerRef<'_>, registry: &Registry) -> Requests {
    let amount = |count| Amount::from_units(i64::try_from(count).unwrap_or(i64::MAX));
    wanted(container, registry).into_iter().map(|(resource, count)| (resource, amount(count))).collect()
}

/// How many devices of each resource the pod needs at the same time.
fn pod_requests(pod: &Pod, registry: &Registry) -> Vec<(String, usize)> {
    let requests = requests_with(pod, |container| limits(container, registry)).into_iter();
    let known = requests.filter(|(resource, _)| registry.knows(resource));
    let count = |amount: Amount| usize::try_from(amount.units()).unwrap_or(0);
    known.map(|(resource, amount)| (resource, count(amount))).filter(|(_, count)| *count > 0).collect()
}

impl HintProvider for DeviceProvider<'_> {
    fn container_hints(&self, _: &Pod, container: &ContainerRef<'_>) -> ProviderHints {
        let hints = |(resource, requested): (String, usize)| {
            let held = self.choice.own.get(container.name(), &resource);
            let held = held.into_iter().flat_map(|given| given.devices.keys()).map(String::as_str).collect();
            let hints = self.hints(&resource, requested, &held);
            (resource, hints)
        };
        wanted(container, self.choice.registry).into_iter().map(hints).collect()
    }

    fn pod_hints(&self, pod: &Pod) -> ProviderHints {
        let hints = |(resource, requested): (String, usize)| {
            let held = self.choice.own.all().filter(|(name, _)| *name == resource);
            let held = held.flat_map(|(_, given)| given.devices.keys()).map(String::as_str).collect();
            let hints = self.hints(&resource, requested, &held);
            (resource, hints)
        };
        pod_requests(pod, self.choice.registry).into_iter().map(hints).collect()
    }

    fn allocate(
        &mut self,
        pod: &Pod,
        container: &ContainerRef<'_>,
        hint: TopologyHint,
    ) -> Result<(), Rejection> {
        self.allocate_to(pod, container, hint)
    }

    /// Devices belong to containers, whatever resources the pod has of its own.
    fn allocate_pod(&mut self, pod: &Pod, hint: TopologyHint) -> Result<(), Rejection> {
        let mut containers = init_containers(pod).chain(regular_containers(pod));
        containers.try_for_each(|container| self.allocate_to(pod, &container, hint))
    }
}
