//! What is allocated on this node: which pods are admitted, and the resources of each of their containers.
//!
//! This module keeps the order in which pods are admitted, and the allocated amounts from the admission of a pod until none
//! of its containers will run again, and which CPUs and memory pods have for themselves. Admission, the QoS cgroups and preemption read the same [`Allocation`]s, so that none of them
//! counts what another one has released. The decision is in [`crate::admission`]; the runtime is not queried.

mod ended;
mod order;
mod resizes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use config::Features;
use model::containers::{ContainerRef, find_container};
use model::k8s::Pod;
use model::{Amount, PodUid};

use crate::amounts::Actuated;
use crate::amounts_file::{Entries, PodResources};
use crate::devices::{Hints, PodDevices};
use crate::pinned::{ContainerPins, PinPolicies, Pinned, Placement};
use crate::requests::{Requests, container_requests, requests_with};

/// The state of a new pod.
static NOTHING: Ended = Ended::NOTHING;

pub use ended::Ended;
use resizes::Requested;
pub use resizes::{ResizeDecisions, ResizeOutcome, ResizeVerdict};

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
    /// The same of their amounts of CPU and memory.
    remembered_amounts: BTreeMap<PodUid, RememberedAmounts>,
    features: Features,
    policies: Arc<PinPolicies>,
    /// Has what an earlier kubelet gave to pods that have not requested admission yet, too.
    pinned: Pinned,
}

/// What the files of an earlier kubelet have about a pod.
#[derive(Clone, Debug, Default)]
pub struct RememberedAmounts {
    pub allocated: Option<PodResources>,
    pub actuated: Actuated,
}

#[derive(Clone)]
struct Entry {
    uid: PodUid,
    pod: Arc<Pod>,
    /// What the containers of it that may still run request.
    requests: Box<[(Box<str>, Amount)]>,
    /// Not decided yet; its requests count for pods with a later ticket.
    is_open: bool,
    /// An earlier kubelet allocated resources to it: they count although this one has not decided yet, because its containers may run.
    is_remembered: bool,
    ended: Ended,
    devices: PodDevices,
    hints: Hints,
    /// Which amounts are in force.
    actuated: Actuated,
    /// Other resources that the API requests for the pod.
    requested: Option<Box<Requested>>,
}

impl fmt::Debug for Entry {
    /// Without the pod, whose variables may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Entry");
        shown.field("uid", &self.uid).field("is_open", &self.is_open).field("ended", &self.ended);
        shown.finish_non_exhaustive()
    }
}

impl Entry {
    /// Resources are allocated to it, by this kubelet or an earlier one.
    const fn holds(&self) -> bool {
        !self.is_open || self.is_remembered
    }

    fn allocation(&self) -> Option<Allocation<'_>> {
        let allocation = Allocation { pod: &self.pod, ended: &self.ended, requests: Some(&self.requests) };
        (self.ended != Ended::All).then_some(allocation)
    }

    /// After a change of its pod or of what has ended.
    fn sum_up(&mut self) {
        let changed = Allocation { pod: &self.pod, ended: &self.ended, requests: None };
        self.requests = changed.requests().into_iter().map(|(name, amount)| (name.into(), amount)).collect();
    }

    fn set_pod(&mut self, pod: Arc<Pod>) {
        self.pod = pod;
        self.sum_up();
    }
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
    /// The NUMA nodes whose devices its containers should get.
    pub own_hints: &'a Hints,
    pub policies: &'a PinPolicies,
    /// The CPUs and memory that pods have for themselves, this one included.
    pub pinned: &'a Pinned,
}

/// What a change of the table has changed for pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub devices: bool,
    pub pinned: bool,
    /// The amounts of CPU and memory that are kept on disk.
    pub amounts: bool,
}

impl Allocations {
    /// Starts with the device allocations of an earlier kubelet.
    #[must_use]
    pub fn remembering(devices: BTreeMap<PodUid, PodDevices>) -> Self {
        Self { remembered: devices, ..Self::default() }
    }

    /// Amounts that an earlier kubelet allocated and set.
    pub fn remember_amounts(&mut self, amounts: BTreeMap<PodUid, RememberedAmounts>, features: Features) {
        self.remembered_amounts = amounts;
        self.features = features;
    }

    /// The policies of this machine, and what an earlier kubelet gave to pods under them.
    pub fn remember_pinned(&mut self, policies: Arc<PinPolicies>, pinned: Pinned) {
        self.policies = policies;
        self.pinned = pinned;
    }

    /// Every pod that still exists has requested admission: what an earlier kubelet gave to other pods is free.
    pub fn forget_unclaimed(&mut self) -> Changes {
        let entries = &self.entries;
        let is_active = |pod: &PodUid, container: &str| {
            let mut of_pod = entries.values().filter(|entry| entry.uid == *pod);
            of_pod.any(|entry| find_container(&entry.pod, container).is_some())
        };
        Changes {
            devices: !std::mem::take(&mut self.remembered).is_empty(),
            pinned: self.pinned.release_inactive(is_active),
            amounts: !std::mem::take(&mut self.remembered_amounts).is_empty(),
        }
    }

    /// Queues the pod after all that requested admission before it. One whose worker starts again keeps what it has, as after a
    /// restart of the kubelet.
    pub fn ask(&mut self, pod: Arc<Pod>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let uid = PodUid::of(&pod);
        self.remember_entry(&uid);
        let devices = self.remembered.remove(&uid).unwrap_or_default();
        let RememberedAmounts { allocated, actuated } =
            self.remembered_amounts.remove(&uid).unwrap_or_default();
        let is_remembered = allocated.is_some();
        let pod =
            allocated.and_then(|amounts| amounts.allocate_to(&pod, self.features)).map_or(pod, Arc::new);
        let mut entry = Entry {
            uid,
            pod,
            requests: Box::default(),
            is_open: true,
            is_remembered,
            ended: Ended::default(),
            devices,
            hints: Hints::new(),
            actuated,
            requested: None,
        };
        entry.sum_up();
        self.entries.insert(ticket, entry);
        ticket
    }

    /// What the pod has got from this kubelet is from now on as if an earlier one had allocated it.
    fn remember_entry(&mut self, uid: &PodUid) {
        let Some((ticket, _)) = self.entry_of(uid) else { return };
        let Some(entry) = self.entries.remove(&ticket).filter(|entry| entry.ended != Ended::All) else {
            return;
        };
        let allocated = entry.holds().then(|| PodResources::allocated_to(&entry.pod, self.features));
        let amounts = RememberedAmounts { allocated, actuated: entry.actuated };
        self.remembered_amounts.insert(uid.clone(), amounts);
        self.remembered.insert(uid.clone(), entry.devices);
    }

    fn entry_of(&self, uid: &PodUid) -> Option<(Ticket, &Entry)> {
        let found = self.entries.iter().find(|(_, entry)| entry.uid == *uid);
        found.map(|(ticket, entry)| (*ticket, entry))
    }

    /// An earlier kubelet allocated these resources to the pod.
    pub fn restore(&mut self, ticket: Ticket, pod: Arc<Pod>) {
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.set_pod(pod);
        }
    }

    /// An earlier kubelet allocated resources to the pod.
    #[must_use]
    pub fn is_remembered(&self, ticket: Ticket) -> bool {
        self.entries.get(&ticket).is_some_and(|entry| entry.is_remembered)
    }

    /// The pod with the resources that are allocated to it.
    #[must_use]
    pub fn allocated_pod(&self, ticket: Ticket) -> Option<Arc<Pod>> {
        self.entries.get(&ticket).map(|entry| entry.pod.clone())
    }

    /// These amounts are in force. Returns whether that is a change.
    pub fn record_actuated(&mut self, ticket: Ticket, actuated: Actuated) -> bool {
        let Some(entry) = self.entries.get_mut(&ticket) else { return false };
        let is_changed = entry.actuated != actuated;
        entry.actuated = actuated;
        is_changed
    }

    #[must_use]
    pub fn actuated(&self, ticket: Ticket) -> Actuated {
        self.entries.get(&ticket).map(|entry| entry.actuated.clone()).unwrap_or_default()
    }

    /// What is allocated to the admitted pods, and which amounts are in force; those of an earlier kubelet are kept until
    /// every pod that still exists has requested admission.
    #[must_use]
    pub fn amounts(&self) -> (Entries, Entries) {
        let remembered = || self.remembered_amounts.iter();
        let mut allocated: Entries = remembered()
            .filter_map(|(uid, amounts)| Some((uid.clone(), amounts.allocated.clone()?)))
            .collect();
        let mut actuated: Entries = remembered()
            .map(|(uid, amounts)| {
                (uid.clone(), PodResources::in_force(&amounts.actuated, amounts.allocated.as_ref()))
            })
            .collect();
        for entry in self.entries.values().filter(|entry| entry.holds() && entry.ended != Ended::All) {
            let uid = entry.uid.clone();
            let of_pod = PodResources::allocated_to(&entry.pod, self.features);
            actuated.insert(uid.clone(), PodResources::in_force(&entry.actuated, Some(&of_pod)));
            allocated.insert(uid, of_pod);
        }
        (allocated, actuated)
    }

    /// What is considered for the admission of this pod; `None` for a released one.
    #[must_use]
    pub fn other_pods(&self, ticket: Ticket) -> Option<OtherPods<'_>> {
        self.others(ticket, |other, entry| entry.holds() || *other < ticket)
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
        Some(OtherPods {
            allocations,
            devices,
            own_devices: &own.devices,
            own_hints: &own.hints,
            policies: &self.policies,
            pinned: &self.pinned,
        })
    }

    /// Allocates to the pod what it requested.
    pub fn admit(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.is_open = false;
        }
    }

    /// Gives the pod what was decided with the table as it is.
    pub fn place(&mut self, ticket: Ticket, placement: Placement) -> Changes {
        let Placement { devices, hints, pinned } = placement;
        let devices = self.set_devices(ticket, devices);
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.hints = hints;
        }
        let changes = Changes { devices, pinned: pinned.is_some(), amounts: false };
        self.pin(pinned);
        changes
    }

    /// Pods have these CPUs and memory for themselves from now on; `None`: as before.
    pub fn pin(&mut self, pinned: Option<Pinned>) {
        if let Some(pinned) = pinned {
            self.pinned = pinned;
        }
    }

    /// CPUs and memory that pods have for themselves, and the policies by which they do.
    #[must_use]
    pub fn pinned(&self) -> (&PinPolicies, &Pinned) {
        (&self.policies, &self.pinned)
    }

    #[must_use]
    pub fn pins_of(&self, pod: &Pod, container: &ContainerRef<'_>) -> ContainerPins {
        self.policies.pins_of(&self.pinned, pod, container)
    }

    /// The container starts, so that the init containers before it have ended. Returns whether that frees memory.
    pub fn container_starts(&mut self, pod: &Pod, container: &ContainerRef<'_>) -> bool {
        self.pinned.memory.container_started(pod, &PodUid::of(pod), container)
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
        self.entry_of(uid).map(|(ticket, entry)| (ticket, &entry.devices))
    }

    /// The devices of each pod.
    pub fn devices(&self) -> impl Iterator<Item = (PodUid, &PodDevices)> {
        let held = self.entries.values().map(|entry| (entry.uid.clone(), &entry.devices));
        let all = held.chain(self.remembered.iter().map(|(uid, devices)| (uid.clone(), devices)));
        all.filter(|(_, devices)| !devices.is_empty())
    }

    /// Records which containers of the pod will not run again; returns whether the allocation changed.
    pub fn record(&mut self, ticket: Ticket, ended: Ended) -> bool {
        let Some(entry) = self.entries.get_mut(&ticket) else { return false };
        let is_changed = entry.ended != ended;
        if ended == Ended::All {
            entry.devices = PodDevices::default();
            entry.requested = None;
        }
        entry.ended = ended;
        if is_changed {
            entry.sum_up();
        }
        let is_allocation = is_changed && !entry.is_open;
        // Each pass of each pod notes something, and this looks at all pods.
        if is_changed {
            let uid = entry.uid.clone();
            self.unpin_ended(&uid);
        }
        is_allocation
    }

    /// Releases the pod; returns whether it existed.
    pub fn release(&mut self, ticket: Ticket) -> bool {
        let Some(entry) = self.entries.remove(&ticket) else { return false };
        self.unpin_ended(&entry.uid);
        true
    }

    /// The same for the pod with that UID.
    pub fn release_pod(&mut self, uid: &PodUid) -> bool {
        let ticket = self.entry_of(uid).map(|(ticket, _)| ticket);
        ticket.is_some_and(|ticket| self.release(ticket))
    }

    /// Takes back the CPUs and memory of a pod of which no container will run again.
    fn unpin_ended(&mut self, uid: &PodUid) {
        let mut entries = self.entries.values().filter(|entry| entry.uid == *uid);
        if entries.all(|entry| entry.ended == Ended::All) {
            self.pinned.release(uid);
        }
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
    /// Their sum, if it is known.
    requests: Option<&'a [(Box<str>, Amount)]>,
}

impl<'a> Allocation<'a> {
    /// The allocation of a pod whose containers may all still run.
    #[must_use]
    pub const fn whole(pod: &'a Pod) -> Self {
        Self { pod, ended: &NOTHING, requests: None }
    }

    #[must_use]
    pub const fn pod(&self) -> &'a Pod {
        self.pod
    }

    /// The container has ended for good.
    #[must_use]
    pub fn has_ended(&self, container: &str) -> bool {
        self.ended.has(container)
    }

    /// What is allocated to that container: nothing once it has ended for good.
    #[must_use]
    pub fn of_container(&self, container: &ContainerRef<'_>) -> Requests {
        if self.ended.has(container.name()) { Requests::new() } else { container_requests(container) }
    }

    /// The largest amount that those containers of the pod that may still run need at the same time.
    #[must_use]
    pub fn requests(&self) -> Requests {
        match self.requests {
            Some(known) => known.iter().map(|(name, amount)| (name.to_string(), *amount)).collect(),
            None => requests_with(self.pod, |container| self.of_container(container)),
        }
    }
}
