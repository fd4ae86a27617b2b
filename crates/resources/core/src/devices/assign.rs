//! Which devices a pod gets (docs/behaviour/plugins.md): for each container as many as its limits of plugin resources. Those
//! of an init container are reused by the containers after it; those of a sidecar stay with it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::containers::{ContainerRef, init_containers, regular_containers};
use model::devices::AllocateResponse;
use model::k8s::{Pod, Quantity};
use model::{Amount, ContainerKind};

use super::Registry;
use super::affinity::{ByAffinity, Hints};
use crate::quantities::{DeviceAmounts, Quantities};
use crate::rejection::Rejection;
use crate::topology::TopologyHint;

/// Devices by resource.
type Sets = BTreeMap<String, BTreeSet<String>>;

/// The devices of one resource that a container has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// By id, the NUMA nodes of each.
    pub devices: BTreeMap<String, Vec<i64>>,
    /// The plugin's allocate response. `None`: not requested yet.
    pub response: Option<AllocateResponse>,
}

/// The devices of a pod, by container and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDevices {
    pub containers: BTreeMap<String, BTreeMap<String, Given>>,
}

impl PodDevices {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    #[must_use]
    pub fn get(&self, container: &str, resource: &str) -> Option<&Given> {
        self.containers.get(container)?.get(resource)
    }

    pub fn get_mut(&mut self, container: &str, resource: &str) -> Option<&mut Given> {
        self.containers.get_mut(container)?.get_mut(resource)
    }

    /// Each device of some container, by resource.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Given)> {
        self.containers.values().flatten().map(|(resource, given)| (resource.as_str(), given))
    }

    /// How many devices of that resource the pod has.
    #[must_use]
    pub fn count(&self, resource: &str) -> usize {
        let of_it = self.all().filter(|(name, _)| *name == resource);
        of_it.flat_map(|(_, given)| given.devices.keys()).collect::<BTreeSet<_>>().len()
    }

    pub(super) fn insert(&mut self, container: &str, resource: &str, given: Given) {
        self.containers.entry(container.to_owned()).or_default().insert(resource.to_owned(), given);
    }

    fn ids(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().flat_map(|(name, given)| given.devices.keys().map(move |id| (name, id.as_str())))
    }
}

/// The amount of each resource for pods: the healthy devices, and at least those allocated to pods, healthy or not.
#[must_use]
pub fn allocatable_devices<'a>(
    amounts: &BTreeMap<String, DeviceAmounts>,
    having: impl Iterator<Item = &'a PodDevices> + Clone,
) -> Quantities {
    let held = |name: &str| having.clone().map(|devices| devices.count(name)).sum::<usize>();
    let quantity = |(name, amounts): (&String, &DeviceAmounts)| {
        let most = amounts.allocatable.max(i64::try_from(held(name)).unwrap_or(i64::MAX));
        (name.clone(), Quantity(most.to_string()))
    };
    amounts.iter().map(quantity).collect()
}

/// Why the devices that a pod requests are not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceShortage {
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    NotHealthyAnyMore(String),
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    TooFew { resource: String, requested: usize, available: usize },
    #[error(
        "pod {pod:?} container {container:?} changed request for resource {resource:?} from {had} to {asks}"
    )]
    Changed { pod: String, container: String, resource: String, had: usize, asks: usize },
}

/// The rejection of a pod whose devices are not available.
#[must_use]
pub fn rejection(why: &dyn std::fmt::Display) -> Rejection {
    Rejection {
        reason: Cow::Borrowed("UnexpectedAdmissionError"),
        message: format!("Allocate failed due to {why}, which is unexpected"),
    }
}

/// The device allocations of all pods when the admission of a pod is decided.
#[derive(Clone, Copy, Debug)]
pub struct Claims<'a> {
    pub registry: &'a Registry,
    /// Those of all other pods.
    pub others: &'a [&'a PodDevices],
    /// The pod's own devices; it keeps them.
    pub own: &'a PodDevices,
    /// The NUMA nodes whose devices its containers get first.
    pub hints: &'a Hints,
}

/// Chooses the devices of the pod.
///
/// # Errors
/// There are too few, or a device of the pod is unhealthy.
pub fn compute_pod_devices(pod: &Pod, claims: &Claims<'_>) -> Result<PodDevices, DeviceShortage> {
    let mut choice = Choice::new(claims);
    for container in init_containers(pod).chain(regular_containers(pod)) {
        choice.choose_all(pod, &container, claims.hints.get(container.name()).copied())?;
    }
    Ok(choice.made)
}

/// The container has all devices of its limits from known plugins, with their allocate responses.
#[must_use]
pub fn has_its_devices(container: &ContainerRef<'_>, registry: &Registry, own: &PodDevices) -> bool {
    let has =
        |resource: &String| own.get(container.name(), resource).is_some_and(|given| given.response.is_some());
    wanted(container, registry).keys().all(has)
}

/// The first container, in start order, with devices that still need an allocate response, and their resource.
#[must_use]
pub fn next_to_ask(pod: &Pod, own: &PodDevices) -> Option<(String, String)> {
    let mut containers = init_containers(pod).chain(regular_containers(pod));
    containers.find_map(|container| {
        let mut devices = own.containers.get(container.name())?.iter();
        let (resource, _) = devices.find(|(_, given)| given.response.is_none())?;
        Some((container.name().to_owned(), resource.clone()))
    })
}

/// Without the devices chosen for later containers: they depend on those of this one.
#[must_use]
pub fn up_to(pod: &Pod, container: &str, mut devices: PodDevices) -> PodDevices {
    let containers = init_containers(pod).chain(regular_containers(pod));
    let later = containers.skip_while(|other| other.name() != container).skip(1);
    for other in later {
        if let Some(resources) = devices.containers.get_mut(other.name()) {
            resources.retain(|_, given| given.response.is_some());
        }
    }
    devices
}

/// Device counts in the container's limits, for known plugins.
pub(super) fn wanted(container: &ContainerRef<'_>, registry: &Registry) -> BTreeMap<String, usize> {
    let limits = container.resources().and_then(|resources| resources.limits.as_ref());
    let known = limits.into_iter().flatten().filter(|(name, _)| registry.knows(name));
    let count =
        |quantity| Amount::of(quantity).map_or(0, |amount| usize::try_from(amount.units()).unwrap_or(0));
    known.map(|(name, quantity)| (name.clone(), count(quantity))).filter(|(_, count)| *count > 0).collect()
}

/// The devices of a pod while they are chosen.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    pub(super) registry: &'a Registry,
    pub(super) own: &'a PodDevices,
    pub(super) taken: Sets,
    /// Of ended init containers.
    pub(super) reusable: Sets,
    pub(super) made: PodDevices,
}

impl<'a> Choice<'a> {
    pub(super) fn new(claims: &Claims<'a>) -> Self {
        let mut taken = Sets::new();
        for (resource, id) in claims.others.iter().flat_map(|other| other.ids()).chain(claims.own.ids()) {
            taken.entry(resource.to_owned()).or_default().insert(id.to_owned());
        }
        Self {
            registry: claims.registry,
            own: claims.own,
            taken,
            reusable: Sets::new(),
            made: PodDevices::default(),
        }
    }

    /// Chooses the devices of a container.
    pub(super) fn choose_all(
        &mut self,
        pod: &Pod,
        container: &ContainerRef<'_>,
        hint: Option<TopologyHint>,
    ) -> Result<(), DeviceShortage> {
        for (resource, wanted) in wanted(container, self.registry) {
            self.choose(pod, container.name(), &resource, wanted, hint)?;
        }
        self.pass_on(container);
        Ok(())
    }

    fn choose(
        &mut self,
        pod: &Pod,
        name: &str,
        resource: &str,
        wanted: usize,
        hint: Option<TopologyHint>,
    ) -> Result<(), DeviceShortage> {
        let healthy: BTreeSet<&str> = self.registry.healthy(resource).collect();
        if healthy.is_empty() {
            return Err(DeviceShortage::NoneHealthy(resource.to_owned()));
        }
        if let Some(given) = self.own.get(name, resource) {
            check_kept(pod, name, resource, wanted, given, &healthy)?;
            self.made.insert(name, resource, given.clone());
            return Ok(());
        }
        let again = self.reusable.get(resource).into_iter().flatten().take(wanted).cloned();
        let mut chosen: BTreeSet<String> = again.collect();
        let requested = wanted - chosen.len();
        let taken = self.taken.entry(resource.to_owned()).or_default();
        let free: Vec<&str> = healthy.into_iter().filter(|id| !taken.contains(*id)).collect();
        if free.len() < requested {
            let (resource, available) = (resource.to_owned(), free.len());
            return Err(DeviceShortage::TooFew { resource, requested, available });
        }
        let free = ByAffinity::of(self.registry, resource, free, hint);
        chosen.extend(free.into_ids().take(requested));
        taken.extend(chosen.iter().cloned());
        let near = |id: String| {
            let nodes = self.registry.numa_nodes(resource, &id).to_vec();
            (id, nodes)
        };
        let given = Given { devices: chosen.into_iter().map(near).collect(), response: None };
        self.made.insert(name, resource, given);
        Ok(())
    }

    /// Records which of the container's devices later containers can reuse.
    fn pass_on(&mut self, container: &ContainerRef<'_>) {
        for (resource, given) in self.made.containers.get(container.name()).into_iter().flatten() {
            let reusable = self.reusable.entry(resource.clone()).or_default();
            match container.kind {
                ContainerKind::Init => reusable.extend(given.devices.keys().cloned()),
                ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
                    reusable.retain(|id| !given.devices.contains_key(id));
                }
            }
        }
    }
}

/// A container keeps its devices if they match its request and are healthy.
fn check_kept(
    pod: &Pod,
    container: &str,
    resource: &str,
    wanted: usize,
    given: &Given,
    healthy: &BTreeSet<&str>,
) -> Result<(), DeviceShortage> {
    if given.devices.len() != wanted {
        return Err(DeviceShortage::Changed {
            pod: pod.metadata.uid.clone().unwrap_or_default(),
            container: container.to_owned(),
            resource: resource.to_owned(),
            had: given.devices.len(),
            asks: wanted,
        });
    }
    if given.devices.keys().any(|id| !healthy.contains(id.as_str())) {
        return Err(DeviceShortage::NotHealthyAnyMore(resource.to_owned()));
    }
    Ok(())
}

/// The request for preferred devices to a plugin that supports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    pub available: Vec<String>,
    /// Devices of the pod that must be included.
    pub needed: Vec<String>,
    pub wanted: usize,
}

/// `None`: the container has no device of that resource, or there is nothing to choose.
#[must_use]
pub fn compute_preference(claims: &Claims<'_>, container: &str, resource: &str) -> Option<Preference> {
    let given = claims.own.get(container, resource)?;
    let wanted = given.devices.len();
    let elsewhere = elsewhere(claims, container, resource);
    let is_shared = |id: &&String| elsewhere.own.contains(id.as_str());
    let mut needed: BTreeSet<String> = given.devices.keys().filter(is_shared).cloned().collect();
    let free = claims.registry.healthy(resource).filter(|id| !elsewhere.has(id));
    let mut free: BTreeSet<&str> = free.collect();
    free.extend(given.devices.keys().map(String::as_str).filter(|id| !needed.contains(*id)));
    let hint = claims.hints.get(container).copied();
    let aligned = ByAffinity::of(claims.registry, resource, free.iter().copied(), hint).aligned;
    let mut available: BTreeSet<String> = needed.clone();
    if wanted - needed.len() < aligned.len() {
        available.extend(aligned);
    } else {
        needed.extend(aligned);
        available.extend(free.into_iter().map(str::to_owned));
    }
    if needed.len() >= wanted {
        return None;
    }
    Some(Preference {
        available: available.into_iter().collect(),
        needed: needed.into_iter().collect(),
        wanted,
    })
}

/// The pod's devices with those that the plugin prefers for that container, as far as they are free; the devices of later
/// containers are to be chosen again.
#[must_use]
pub fn compute_preferred(
    claims: &Claims<'_>,
    container: &str,
    resource: &str,
    preferred: &[String],
) -> PodDevices {
    let mut own = claims.own.clone();
    let Some(request) = compute_preference(claims, container, resource) else { return own };
    let Some(given) = own.get_mut(container, resource) else { return own };
    let before: Vec<String> = given.devices.keys().cloned().collect();
    let liked = preferred.iter().filter(|id| request.available.contains(id));
    let mut chosen: Vec<&String> = Vec::new();
    for id in request.needed.iter().chain(liked).chain(&before) {
        if chosen.len() < request.wanted && !chosen.contains(&id) {
            chosen.push(id);
        }
    }
    let near = |id: &String| (id.clone(), claims.registry.numa_nodes(resource, id).to_vec());
    given.devices = chosen.into_iter().map(near).collect();
    own
}

/// Devices of a resource held by other pods, and by other containers of the same pod.
struct Elsewhere<'a> {
    others: BTreeSet<&'a str>,
    own: BTreeSet<&'a str>,
}

impl Elsewhere<'_> {
    fn has(&self, id: &str) -> bool {
        self.others.contains(id) || self.own.contains(id)
    }
}

fn elsewhere<'a>(claims: &Claims<'a>, container: &str, resource: &str) -> Elsewhere<'a> {
    let of_others = claims.others.iter().flat_map(|other| other.ids());
    let of_own = claims.own.containers.iter().filter(|(name, _)| *name != container);
    let of_own = of_own.filter_map(|(_, devices)| devices.get(resource));
    Elsewhere {
        others: of_others.filter(|(name, _)| *name == resource).map(|(_, id)| id).collect(),
        own: of_own.flat_map(|given| given.devices.keys()).map(String::as_str).collect(),
    }
}

#[cfg(test)]
mod tests;
