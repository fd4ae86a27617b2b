//! What is allocated on this node: which pods have a place, and how much each of their containers holds.
//!
//! Owns: the order in which pods are judged, and the amounts held, from the moment a pod is admitted until nothing of it
//! will run again. Admission, the cgroups of the tiers and preemption read the same [`Holding`]s, so that none of them
//! counts what another one has given back. Never decides who is admitted ([`crate::admission`]), never looks at the
//! runtime.

mod ended;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::PodUid;
use model::containers::ContainerRef;
use model::k8s::Pod;

use crate::admission::requests::{Requests, container_requests, requests_with};
use crate::devices::PodDevices;

/// Of a pod that has just come.
static NOTHING: Ended = Ended::NOTHING;

pub use ended::{Ended, EndedFacts, compute_ended};

/// A pod's turn to be judged: who asked earlier comes earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(u64);

/// The pods that asked for a place on the node, by their turn.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    next_turn: u64,
    entries: BTreeMap<Turn, Entry>,
    /// What an earlier kubelet gave to pods that have not asked for a place yet.
    remembered: BTreeMap<PodUid, PodDevices>,
}

#[derive(Clone, Debug)]
struct Entry {
    pod: Arc<Pod>,
    /// Not judged yet; pods whose turn comes later count on it all the same.
    is_open: bool,
    ended: Ended,
    devices: PodDevices,
}

impl Entry {
    fn holding(&self) -> Option<Holding<'_>> {
        (self.ended != Ended::All).then_some(Holding { pod: &self.pod, ended: &self.ended })
    }
}

fn uid_of(pod: &Pod) -> PodUid {
    PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default())
}

/// What counts when a pod is judged.
#[derive(Clone, Debug)]
pub struct Beside<'a> {
    /// All that others hold, and what others asked for before it.
    pub holdings: Vec<Holding<'a>>,
    /// Devices that others have.
    pub devices: Vec<&'a PodDevices>,
    /// Devices that it has itself, from an earlier kubelet or from being judged before.
    pub own_devices: &'a PodDevices,
}

impl Ledger {
    /// One that knows which devices an earlier kubelet gave to whom.
    #[must_use]
    pub fn remembering(devices: BTreeMap<PodUid, PodDevices>) -> Self {
        Self { remembered: devices, ..Self::default() }
    }

    /// Every pod that is still there has asked for its place: what an earlier kubelet gave to others is free. Returns
    /// whether there was any.
    pub fn forget_unclaimed(&mut self) -> bool {
        !std::mem::take(&mut self.remembered).is_empty()
    }

    /// Puts the pod in line, after all that asked before it.
    pub fn ask(&mut self, pod: Arc<Pod>) -> Turn {
        let turn = Turn(self.next_turn);
        self.next_turn += 1;
        let devices = self.remembered.remove(&uid_of(&pod)).unwrap_or_default();
        self.entries.insert(turn, Entry { pod, is_open: true, ended: Ended::default(), devices });
        turn
    }

    /// What counts when this pod is judged; `None` for one that has left.
    #[must_use]
    pub fn beside(&self, turn: Turn) -> Option<Beside<'_>> {
        self.others(turn, |other, entry| !entry.is_open || *other < turn)
    }

    /// The same without the pods that asked earlier and are not decided yet; `None` if there are none.
    #[must_use]
    pub fn beside_decided(&self, turn: Turn) -> Option<Beside<'_>> {
        self.entries.range(..turn).find(|(_, entry)| entry.is_open)?;
        self.others(turn, |_, entry| !entry.is_open)
    }

    fn others(&self, turn: Turn, counts: impl Fn(&Turn, &Entry) -> bool) -> Option<Beside<'_>> {
        let own = self.entries.get(&turn)?;
        let others = || self.entries.iter().filter(|(other, _)| **other != turn);
        let holdings = others().filter(|(other, entry)| counts(other, entry));
        let holdings = holdings.filter_map(|(_, entry)| entry.holding()).collect();
        let devices = others().map(|(_, entry)| &entry.devices).chain(self.remembered.values());
        let devices = devices.filter(|devices| !devices.is_empty()).collect();
        Some(Beside { holdings, devices, own_devices: &own.devices })
    }

    /// From now on the pod holds what it asked for.
    pub fn admit(&mut self, turn: Turn) {
        if let Some(entry) = self.entries.get_mut(&turn) {
            entry.is_open = false;
        }
    }

    /// The pod has these devices from now on. Returns whether that is news.
    pub fn set_devices(&mut self, turn: Turn, devices: PodDevices) -> bool {
        let Some(entry) = self.entries.get_mut(&turn) else { return false };
        let is_news = entry.devices != devices;
        entry.devices = devices;
        is_news
    }

    /// The turn of the pod, and the devices that it has.
    #[must_use]
    pub fn devices_of(&self, uid: &PodUid) -> Option<(Turn, &PodDevices)> {
        let is_it = |entry: &Entry| entry.pod.metadata.uid.as_deref() == Some(uid.as_str());
        let found = self.entries.iter().find(|(_, entry)| is_it(entry));
        found.map(|(turn, entry)| (*turn, &entry.devices))
    }

    /// Who has which devices.
    pub fn devices(&self) -> impl Iterator<Item = (PodUid, &PodDevices)> {
        let held = self.entries.values().map(|entry| (uid_of(&entry.pod), &entry.devices));
        let all = held.chain(self.remembered.iter().map(|(uid, devices)| (uid.clone(), devices)));
        all.filter(|(_, devices)| !devices.is_empty())
    }

    /// Takes note of what of the pod will not run again; returns whether more or less is held than before.
    pub fn note(&mut self, turn: Turn, ended: Ended) -> bool {
        let Some(entry) = self.entries.get_mut(&turn) else { return false };
        let is_news = entry.ended != ended;
        if ended == Ended::All {
            entry.devices = PodDevices::default();
        }
        entry.ended = ended;
        is_news && !entry.is_open
    }

    /// The pod leaves; returns whether it was there.
    pub fn release(&mut self, turn: Turn) -> bool {
        self.entries.remove(&turn).is_some()
    }

    /// What admitted pods hold.
    pub fn held(&self) -> impl Iterator<Item = Holding<'_>> {
        self.entries.values().filter(|entry| !entry.is_open).filter_map(Entry::holding)
    }

    /// The admitted pods that hold something.
    pub fn pods(&self) -> impl Iterator<Item = (Turn, &Arc<Pod>)> {
        let holds = |entry: &Entry| !entry.is_open && entry.ended != Ended::All;
        self.entries.iter().filter(move |(_, entry)| holds(entry)).map(|(turn, entry)| (*turn, &entry.pod))
    }

    /// The pod holds something, or may do so once it is judged.
    #[must_use]
    pub fn has(&self, turn: Turn) -> bool {
        self.entries.get(&turn).is_some_and(|entry| entry.holding().is_some())
    }
}

/// What one pod holds of the node.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    pod: &'a Pod,
    ended: &'a Ended,
}

impl<'a> Holding<'a> {
    /// Of a pod of which everything may still run.
    #[must_use]
    pub const fn whole(pod: &'a Pod) -> Self {
        Self { pod, ended: &NOTHING }
    }

    #[must_use]
    pub const fn pod(&self) -> &'a Pod {
        self.pod
    }

    /// What the node keeps for that container: nothing once it has ended for good.
    #[must_use]
    pub fn of_container(&self, container: &ContainerRef<'_>) -> Requests {
        if self.ended.has(container.name()) { Requests::new() } else { container_requests(container) }
    }

    /// What the node keeps for the pod at the moment when those of its containers that may still run need most.
    #[must_use]
    pub fn requests(&self) -> Requests {
        requests_with(self.pod, |container| self.of_container(container))
    }
}
