//! What is allocated on this node: which pods are admitted, and the resources of each of their containers.
//!
//! This module keeps the order in which pods are admitted, and the allocated amounts from the admission of a pod until none
//! of its containers will run again. Admission, the QoS cgroups and preemption read the same [`Allocation`]s, so that none of them
//! counts what another one has released. The decision is in [`crate::resources::admission`]; the runtime is not queried.

mod ended;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::PodUid;
use model::containers::ContainerRef;
use model::k8s::Pod;

use crate::resources::devices::PodDevices;
use crate::resources::requests::{Requests, container_requests, requests_with};

/// The state of a new pod.
static NOTHING: Ended = Ended::NOTHING;

pub use ended::Ended;

/// The position of a pod in the order of admission: a pod that requested admission earlier has a smaller ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The pods that requested admission, by ticket.
#[derive(Clone, Debug, Default)]
pub struct Allocations {
    next_ticket: u64,
    entries: BTreeMap<Ticket, Entry>,
    /// Devices that an earlier kubelet allocated to pods that have not requested admission yet.
    remembered: BTreeMap<PodUid, PodDevices>,
}

#[derive(Clone, Debug)]
struct Entry {
    pod: Arc<Pod>,
    /// Not decided yet; its requests count for pods with a later ticket.
    is_open: bool,
    ended: Ended,
    devices: PodDevices,
}

impl Entry {
    fn allocation(&self) -> Option<Allocation<'_>> {
        (self.ended != Ended::All).then_some(Allocation { pod: &self.pod, ended: &self.ended })
    }
}

fn uid_of(pod: &Pod) -> PodUid {
    PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default())
}

/// What is considered when the admission of a pod is decided.
#[derive(Clone, Debug)]
pub struct OtherPods<'a> {
    /// The allocations of other pods, and the requests of pods before it.
    pub allocations: Vec<Allocation<'a>>,
    /// Devices of other pods.
    pub devices: Vec<&'a PodDevices>,
    /// Its own devices, from an earlier kubelet or from an earlier decision.
    pub own_devices: &'a PodDevices,
}

impl Allocations {
    /// Starts with the device allocations of an earlier kubelet.
    #[must_use]
    pub fn remembering(devices: BTreeMap<PodUid, PodDevices>) -> Self {
        Self { remembered: devices, ..Self::default() }
    }

    /// Every pod that still exists has requested admission: devices that an earlier kubelet allocated to other pods are free.
    /// Returns whether there were any.
    pub fn forget_unclaimed(&mut self) -> bool {
        !std::mem::take(&mut self.remembered).is_empty()
    }

    /// Queues the pod after all that requested admission before it.
    pub fn ask(&mut self, pod: Arc<Pod>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let devices = self.remembered.remove(&uid_of(&pod)).unwrap_or_default();
        self.entries.insert(ticket, Entry { pod, is_open: true, ended: Ended::default(), devices });
        ticket
    }

    /// What is considered for the admission of this pod; `None` for a released one.
    #[must_use]
    pub fn other_pods(&self, ticket: Ticket) -> Option<OtherPods<'_>> {
        self.others(ticket, |other, entry| !entry.is_open || *other < ticket)
    }

    /// The same without the earlier pods that are not decided yet; `None` if there are none.
    #[must_use]
    pub fn other_decided_pods(&self, ticket: Ticket) -> Option<OtherPods<'_>> {
        self.entries.range(..ticket).find(|(_, entry)| entry.is_open)?;
        self.others(ticket, |_, entry| !entry.is_open)
    }

    fn others(&self, ticket: Ticket, counts: impl Fn(&Ticket, &Entry) -> bool) -> Option<OtherPods<'_>> {
        let own = self.entries.get(&ticket)?;
        let others = || self.entries.iter().filter(|(other, _)| **other != ticket);
        let allocations = others().filter(|(other, entry)| counts(other, entry));
        let allocations = allocations.filter_map(|(_, entry)| entry.allocation()).collect();
        let devices = others().map(|(_, entry)| &entry.devices).chain(self.remembered.values());
        let devices = devices.filter(|devices| !devices.is_empty()).collect();
        Some(OtherPods { allocations, devices, own_devices: &own.devices })
    }

    /// Allocates to the pod what it requested.
    pub fn admit(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.is_open = false;
        }
    }

    /// Allocates these devices to the pod. Returns whether that is a change.
    pub fn set_devices(&mut self, ticket: Ticket, devices: PodDevices) -> bool {
        let Some(entry) = self.entries.get_mut(&ticket) else { return false };
        let is_changed = entry.devices != devices;
        entry.devices = devices;
        is_changed
    }

    /// The ticket of the pod, and its devices.
    #[must_use]
    pub fn devices_of(&self, uid: &PodUid) -> Option<(Ticket, &PodDevices)> {
        let is_it = |entry: &Entry| entry.pod.metadata.uid.as_deref() == Some(uid.as_str());
        let found = self.entries.iter().find(|(_, entry)| is_it(entry));
        found.map(|(ticket, entry)| (*ticket, &entry.devices))
    }

    /// The devices of each pod.
    pub fn devices(&self) -> impl Iterator<Item = (PodUid, &PodDevices)> {
        let held = self.entries.values().map(|entry| (uid_of(&entry.pod), &entry.devices));
        let all = held.chain(self.remembered.iter().map(|(uid, devices)| (uid.clone(), devices)));
        all.filter(|(_, devices)| !devices.is_empty())
    }

    /// Records which containers of the pod will not run again; returns whether the allocation changed.
    pub fn note(&mut self, ticket: Ticket, ended: Ended) -> bool {
        let Some(entry) = self.entries.get_mut(&ticket) else { return false };
        let is_changed = entry.ended != ended;
        if ended == Ended::All {
            entry.devices = PodDevices::default();
        }
        entry.ended = ended;
        is_changed && !entry.is_open
    }

    /// Releases the pod; returns whether it existed.
    pub fn release(&mut self, ticket: Ticket) -> bool {
        self.entries.remove(&ticket).is_some()
    }

    /// The allocations of the admitted pods.
    pub fn held(&self) -> impl Iterator<Item = Allocation<'_>> {
        self.entries.values().filter(|entry| !entry.is_open).filter_map(Entry::allocation)
    }

    /// The admitted pods with a non-empty allocation.
    pub fn pods(&self) -> impl Iterator<Item = (Ticket, &Arc<Pod>)> {
        let holds = |entry: &Entry| !entry.is_open && entry.ended != Ended::All;
        self.entries
            .iter()
            .filter(move |(_, entry)| holds(entry))
            .map(|(ticket, entry)| (*ticket, &entry.pod))
    }

    /// The pod has an allocation, or may get one once its admission is decided.
    #[must_use]
    pub fn has(&self, ticket: Ticket) -> bool {
        self.entries.get(&ticket).is_some_and(|entry| entry.allocation().is_some())
    }
}

/// The resources allocated to one pod.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    pod: &'a Pod,
    ended: &'a Ended,
}

impl<'a> Allocation<'a> {
    /// The allocation of a pod whose containers may all still run.
    #[must_use]
    pub const fn whole(pod: &'a Pod) -> Self {
        Self { pod, ended: &NOTHING }
    }

    #[must_use]
    pub const fn pod(&self) -> &'a Pod {
        self.pod
    }

    /// What is allocated to that container: nothing once it has ended for good.
    #[must_use]
    pub fn of_container(&self, container: &ContainerRef<'_>) -> Requests {
        if self.ended.has(container.name()) { Requests::new() } else { container_requests(container) }
    }

    /// The largest amount that those containers of the pod that may still run need at the same time.
    #[must_use]
    pub fn requests(&self) -> Requests {
        requests_with(self.pod, |container| self.of_container(container))
    }
}
