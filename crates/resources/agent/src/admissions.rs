//! The pods that are admitted on this node and have not ended.
//!
//! Owns the [`Allocations`]: pods that arrive together are admitted one after another, so that no two of them get the same
//! resources. Decisions are made in `resources_core::admission`. There is one entry for each worker of a desired pod.

use std::collections::BTreeMap;
use std::convert::Infallible;

use std::sync::Arc;

use config::Features;
use jiff::Timestamp;
use model::PodUid;
use model::containers::ContainerRef;
use model::k8s::Pod;
use parking_lot::Mutex;
use resources_core::admission::Admission;
use resources_core::allocations::{
    Allocations, Changes, Ended, OtherPods, RememberedAmounts, ResizeDecisions, ResizeOutcome, ResizeVerdict,
    Ticket,
};
use resources_core::amounts::Actuated;
use resources_core::devices::PodDevices;
use resources_core::pinned::{ContainerPins, PinPolicies, Pinned, Placement, Tally};
use tokio::sync::watch;

/// The table; clones share it. Every access is short.
#[derive(Clone, Debug)]
pub struct Admissions {
    table: Arc<Mutex<Allocations>>,
    /// Counts the slots that were released.
    freed: Arc<watch::Sender<u64>>,
    /// Counts changes of allocations.
    changed: Arc<watch::Sender<Change>>,
    /// Counts changes of device allocations.
    devices: Arc<watch::Sender<u64>>,
    /// Changes of the amounts in force.
    amounts: Arc<watch::Sender<u64>>,
    /// Counts changes of what pods have for themselves.
    pins: Arc<watch::Sender<u64>>,
}

impl Default for Admissions {
    fn default() -> Self {
        Self::new(Allocations::default())
    }
}

impl Admissions {
    #[must_use]
    pub fn new(allocations: Allocations) -> Self {
        let counter = || Arc::new(watch::Sender::new(0));
        let table = Arc::new(Mutex::new(allocations));
        let changed = Arc::new(watch::Sender::new(Change::default()));
        Self { table, freed: counter(), changed, devices: counter(), amounts: counter(), pins: counter() }
    }

    /// A slot for a pod that is to be admitted, after all that requested one before.
    #[must_use]
    pub fn request_slot(&self, pod: Arc<Pod>) -> AdmissionSlot {
        let ticket = self.table.lock().ask(pod);
        AdmissionSlot {
            admissions: self.clone(),
            ticket,
            waits_for: Vec::new(),
            freed: self.freed.subscribe(),
        }
    }

    /// The pods that were admitted and have not ended.
    #[must_use]
    pub fn admitted(&self) -> Vec<Arc<Pod>> {
        self.table.lock().pods().map(|(_, pod)| pod.clone()).collect()
    }

    /// Reads the allocations. The table is locked meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Allocations) -> T) -> T {
        read(&self.table.lock())
    }

    /// Amounts that an earlier kubelet allocated and set, before any pod requests a slot.
    pub fn remember_amounts(&self, amounts: BTreeMap<PodUid, RememberedAmounts>, features: Features) {
        self.table.lock().remember_amounts(amounts, features);
    }

    /// The policies of this machine, and what an earlier kubelet gave to pods, before any pod requests a slot.
    pub fn remember_pinned(&self, policies: Arc<PinPolicies>, pinned: Pinned) {
        self.table.lock().remember_pinned(policies, pinned);
    }

    /// Releases allocations of an earlier run of the kubelet for pods that have not requested a slot.
    pub fn forget_unclaimed(&self) {
        let changes = self.table.lock().forget_unclaimed();
        self.record_changes(changes);
    }

    /// Nothing is left of the pod.
    pub fn release(&self, uid: &PodUid) {
        let was_there = self.table.lock().release_pod(uid);
        self.record_release(was_there);
    }

    fn record_release(&self, was_there: bool) {
        if was_there {
            increment(&self.freed);
            record_change(&self.changed, ChangeCause::Removed);
            increment(&self.devices);
            increment(&self.pins);
        }
    }

    fn record_changes(&self, changes: Changes) {
        if changes.devices {
            increment(&self.devices);
        }
        if changes.pinned {
            increment(&self.pins);
        }
        if changes.amounts {
            increment(&self.amounts);
        }
    }

    /// The CPUs and memory nodes of a container.
    #[must_use]
    pub fn pins_of(&self, pod: &Pod, container: &ContainerRef<'_>) -> ContainerPins {
        self.table.lock().pins_of(pod, container)
    }

    /// A quota of the pod would slow down a container whose CPUs are its own.
    #[must_use]
    pub fn disable_quota_of(&self, pod: &Pod) -> bool {
        let table = self.table.lock();
        let (policies, pinned) = table.pinned();
        policies.disable_quota_of_pod(pinned, pod)
    }

    /// The container starts: memory of the init containers before it is free.
    pub fn record_start(&self, pod: &Pod, container: &ContainerRef<'_>) {
        if self.table.lock().container_starts(pod, container) {
            increment(&self.pins);
        }
    }

    /// Notifies of every change of what pods have for themselves.
    #[must_use]
    pub fn pin_changes(&self) -> watch::Receiver<u64> {
        self.pins.subscribe()
    }

    /// The devices of that pod; `None` for a pod without a slot.
    #[must_use]
    pub fn devices_of(&self, uid: &PodUid) -> Option<PodDevices> {
        self.table.lock().devices_of(uid).map(|(_, devices)| devices.clone())
    }

    /// Chooses devices for a pod, with the table locked meanwhile. `None`: the pod has no slot.
    pub fn choose_devices<E>(
        &self,
        uid: &PodUid,
        choose: impl FnOnce(&OtherPods<'_>) -> Result<PodDevices, E>,
    ) -> Option<Result<PodDevices, E>> {
        let mut table = self.table.lock();
        let (ticket, _) = table.devices_of(uid)?;
        let chosen = choose(&table.other_pods(ticket)?);
        if let Ok(devices) = &chosen
            && table.set_devices(ticket, devices.clone())
        {
            drop(table);
            increment(&self.devices);
        }
        Some(chosen)
    }

    /// The same for a choice that cannot fail.
    pub fn set_devices(&self, uid: &PodUid, choose: impl FnOnce(&OtherPods<'_>) -> PodDevices) {
        let chosen = self.choose_devices(uid, |others| Ok::<_, Infallible>(choose(others)));
        // A pod that has ended needs none.
        drop(chosen);
    }

    /// Changes what the pod has got, with the table locked meanwhile. `None`: the pod has no slot, or `place` decided nothing.
    pub fn reallocate<E>(
        &self,
        uid: &PodUid,
        place: impl FnOnce(&OtherPods<'_>) -> Option<Result<Placement, E>>,
    ) -> Option<Result<(), E>> {
        let mut table = self.table.lock();
        let (ticket, _) = table.devices_of(uid)?;
        let placement = match place(&table.other_pods(ticket)?)? {
            Ok(placement) => placement,
            Err(why) => return Some(Err(why)),
        };
        let changes = table.place(ticket, placement);
        drop(table);
        self.record_changes(changes);
        Some(Ok(()))
    }

    /// Tries all resizes that wait. Pods that preempt others for that are in the result.
    pub fn try_resizes(
        &self,
        now: Timestamp,
        decide: impl Fn(&Pod, &Pod, &OtherPods<'_>) -> ResizeVerdict,
    ) -> ResizeDecisions {
        let tried = self.table.lock().try_resizes(now, decide);
        if tried.is_changed {
            record_change(&self.changed, ChangeCause::Resized);
        }
        tried
    }

    /// Notifies of every change of device allocations.
    #[must_use]
    pub fn device_changes(&self) -> watch::Receiver<u64> {
        self.devices.subscribe()
    }

    /// Notifies of every change of the amounts in force.
    #[must_use]
    pub fn amount_changes(&self) -> watch::Receiver<u64> {
        self.amounts.subscribe()
    }

    /// Notifies of every change of allocations.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Change> {
        self.changed.subscribe()
    }
}

/// A change of allocations, by its number, and the cause of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    count: u64,
    pub cause: ChangeCause,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeCause {
    #[default]
    Added,
    Removed,
    Terminated,
    Resized,
}

fn record_change(changed: &watch::Sender<Change>, cause: ChangeCause) {
    changed.send_modify(|change| *change = Change { count: change.count + 1, cause });
}

fn increment(counter: &watch::Sender<u64>) {
    counter.send_modify(|count| *count += 1);
}

/// A decision about a pod.
#[derive(Debug)]
pub struct Decision {
    pub admission: Admission,
    /// What the pod gets if it is admitted.
    pub placement: Placement,
    pub tally: Box<Tally>,
}

/// Result of one attempt to decide.
enum Verdict {
    Final(Admission, Box<Tally>),
    /// The decision depends on earlier pods that are not decided yet.
    DependsOnOthers,
}

/// The admission of one pod. Dropping it releases nothing: its worker may have panicked, or the kubelet stops, and the containers of
/// the pod run on.
#[derive(Debug)]
pub struct AdmissionSlot {
    admissions: Admissions,
    ticket: Ticket,
    /// The tickets of the pods that are preempted for this one.
    waits_for: Vec<Ticket>,
    freed: watch::Receiver<u64>,
}

impl AdmissionSlot {
    /// Decides whether the node admits the pod, together with all that were admitted or requested a slot earlier. An earlier
    /// pod that is not decided yet may itself be rejected: if only such pods leave too little, the decision waits for
    /// theirs. A rejected pod releases its slot; an admitted one waits until the pods that it preempts have ended, which the caller requests to terminate. `None`: the
    /// slot was released before.
    /// Cancel safe: nothing is decided before the last await.
    pub async fn admit(
        &mut self,
        decide: impl Fn(&OtherPods<'_>) -> Decision,
    ) -> Option<(Admission, Box<Tally>)> {
        let mut changed = self.admissions.changed.subscribe();
        loop {
            match self.decide_now(&decide)? {
                Verdict::Final(admission, tally) => return Some((admission, tally)),
                // The sender lives as long as `self`, so that this never ends the loop.
                Verdict::DependsOnOthers => changed.changed().await.ok()?,
            }
        }
    }

    fn decide_now(&mut self, decide: impl Fn(&OtherPods<'_>) -> Decision) -> Option<Verdict> {
        let mut table = self.admissions.table.lock();
        let Decision { admission, placement, tally } = decide(&table.other_pods(self.ticket)?);
        let victims: &[PodUid] = match &admission {
            Admission::Admitted { victims, .. } => victims,
            Admission::Rejected(_) => {
                let decided = table.other_decided_pods(self.ticket).map(|others| decide(&others).admission);
                drop(table);
                if let Some(Admission::Admitted { .. }) = decided {
                    return Some(Verdict::DependsOnOthers);
                }
                self.release();
                return Some(Verdict::Final(admission, tally));
            }
        };
        table.admit(self.ticket);
        let changes = table.place(self.ticket, placement);
        let is_victim = |pod: &Arc<Pod>| victims.contains(&PodUid::of(pod));
        self.waits_for = table.pods().filter(|(_, pod)| is_victim(pod)).map(|(ticket, _)| ticket).collect();
        drop(table);
        record_change(&self.admissions.changed, ChangeCause::Added);
        self.admissions.record_changes(changes);
        Some(Verdict::Final(admission, tally))
    }

    /// The pod was admitted before. What it should have for itself and does not have is decided now, if there is enough.
    pub fn keep(&self, place: impl FnOnce(&OtherPods<'_>) -> Option<Pinned>) {
        let mut table = self.admissions.table.lock();
        table.admit(self.ticket);
        let pinned = table.other_pods(self.ticket).and_then(|others| place(&others));
        let changes = Changes { pinned: pinned.is_some(), ..Changes::default() };
        table.pin(pinned);
        drop(table);
        record_change(&self.admissions.changed, ChangeCause::Added);
        self.admissions.record_changes(changes);
    }

    /// An earlier kubelet allocated these resources to the pod.
    pub fn restore(&self, pod: Arc<Pod>) {
        self.admissions.table.lock().restore(self.ticket, pod);
    }

    /// These amounts are in force.
    pub fn record_actuated(&self, actuated: Actuated) {
        if self.admissions.table.lock().record_actuated(self.ticket, actuated) {
            increment(&self.admissions.amounts);
        }
    }

    /// The amounts that were in force when the last kubelet ended.
    #[must_use]
    pub fn actuated(&self) -> Actuated {
        self.admissions.table.lock().actuated(self.ticket)
    }

    /// An earlier kubelet allocated resources to the pod, by its file of allocations.
    #[must_use]
    pub fn is_remembered(&self) -> bool {
        self.admissions.table.lock().is_remembered(self.ticket)
    }

    /// The pod with the resources that are allocated to it; `None` once it is released.
    #[must_use]
    pub fn allocated_pod(&self) -> Option<Arc<Pod>> {
        self.admissions.table.lock().allocated_pod(self.ticket)
    }

    /// The API requests other resources for the pod.
    pub fn request_resize(&self, requested: Arc<Pod>, since: Option<Timestamp>) {
        self.admissions.table.lock().request_resize(self.ticket, requested, since);
    }

    /// The API requests the resources that the pod has.
    pub fn withdraw_resize(&self) {
        self.admissions.table.lock().withdraw_resize(self.ticket);
    }

    /// What was decided last about the requested resources, once if the pod got them.
    #[must_use]
    pub fn take_resize_outcome(&self) -> Option<ResizeOutcome> {
        self.admissions.table.lock().take_resize_outcome(self.ticket)
    }

    /// A resize waits for resources.
    #[must_use]
    pub fn may_resize(&self) -> bool {
        self.admissions.table.lock().may_resize(self.ticket)
    }

    /// Containers that will not run again: their resources are free at once.
    pub fn record_ended(&self, ended: Ended) {
        if self.admissions.table.lock().record(self.ticket, ended) {
            increment(&self.admissions.freed);
            record_change(&self.admissions.changed, ChangeCause::Terminated);
            increment(&self.admissions.devices);
            increment(&self.admissions.pins);
        }
    }

    /// The pod has ended, or is not desired any more: its resources are free.
    pub fn release(&self) {
        let was_there = self.admissions.table.lock().release(self.ticket);
        self.admissions.record_release(was_there);
    }

    /// Not all preempted pods have ended.
    #[must_use]
    pub fn must_wait(&self) -> bool {
        let table = self.admissions.table.lock();
        self.waits_for.iter().any(|ticket| table.has(*ticket))
    }

    /// The preempted pods that have not ended.
    #[must_use]
    pub fn waits_for(&self) -> Vec<Arc<Pod>> {
        let table = self.admissions.table.lock();
        let is_awaited = |ticket: &Ticket| self.waits_for.contains(ticket);
        table.pods().filter(|(ticket, _)| is_awaited(ticket)).map(|(_, pod)| pod.clone()).collect()
    }

    /// The preempted pods have had their time: this pod starts without waiting for their end.
    pub fn stop_waiting(&mut self) {
        self.waits_for.clear();
    }

    /// Resolves when a pod has ended that this one waits for. Cancel safe: a watch loses nothing.
    pub async fn resources_freed(&mut self) {
        if !self.must_wait() || self.freed.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;
    use resources_core::rejection::Rejection;

    fn pod(uid: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        Arc::new(pod)
    }

    /// Admits as long as there are at most this many others.
    fn up_to(most: usize) -> impl Fn(&OtherPods<'_>) -> Decision {
        move |others| {
            let admission = if others.allocations.len() < most {
                Admission::Admitted { victims: Vec::new(), short_of: String::new() }
            } else {
                Admission::Rejected(Rejection { reason: "OutOfpods".into(), message: String::new() })
            };
            decision(admission)
        }
    }

    fn decision(admission: Admission) -> Decision {
        Decision { admission, placement: Placement::default(), tally: Box::default() }
    }

    fn is_admitted(admission: &Option<(Admission, Box<Tally>)>) -> bool {
        matches!(admission, Some((Admission::Admitted { .. }, _)))
    }

    /// Whether the decision about the pod waits for that of another one.
    async fn waits(decision: &mut (impl Future + Unpin)) -> bool {
        std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *decision).poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn later_pod_is_rejected_once_the_earlier_one_is_admitted() {
        let admissions = Admissions::default();
        let (mut first, mut second) = (admissions.request_slot(pod("a")), admissions.request_slot(pod("b")));
        let mut decision = Box::pin(second.admit(up_to(1)));
        assert!(waits(&mut decision).await);
        assert!(is_admitted(&first.admit(up_to(1)).await));
        assert!(!is_admitted(&decision.await));
    }

    #[tokio::test]
    async fn pod_that_is_rejected_at_the_same_time_takes_no_resources_from_a_later_one() {
        let admissions = Admissions::default();
        let (mut first, mut second) = (admissions.request_slot(pod("a")), admissions.request_slot(pod("b")));
        let mut decision = Box::pin(second.admit(up_to(1)));
        assert!(waits(&mut decision).await);
        assert!(!is_admitted(&first.admit(up_to(0)).await));
        assert!(is_admitted(&decision.await));
    }

    #[tokio::test]
    async fn pod_that_does_not_depend_on_earlier_ones_is_decided_at_once() {
        let admissions = Admissions::default();
        let (_first, mut second, mut third) = (
            admissions.request_slot(pod("a")),
            admissions.request_slot(pod("b")),
            admissions.request_slot(pod("c")),
        );
        assert!(
            !is_admitted(&second.admit(up_to(0)).await),
            "it is rejected whether or not the first is admitted"
        );
        assert!(is_admitted(&third.admit(up_to(2)).await), "there are resources for both");
    }

    #[tokio::test]
    async fn resources_are_free_once_the_slot_is_released() {
        let admissions = Admissions::default();
        let mut first = admissions.request_slot(pod("a"));
        assert!(is_admitted(&first.admit(up_to(1)).await));
        assert!(!is_admitted(&admissions.request_slot(pod("b")).admit(up_to(1)).await));
        first.release();
        let mut third = admissions.request_slot(pod("c"));
        assert!(is_admitted(&third.admit(up_to(1)).await));
        admissions.release(&PodUid::new("c"));
        assert_eq!(admissions.read(|allocations| allocations.held().count()), 0);
    }

    #[tokio::test]
    async fn dropped_slot_keeps_the_resources_of_a_pod_that_runs_on() {
        let admissions = Admissions::default();
        assert!(is_admitted(&admissions.request_slot(pod("a")).admit(up_to(1)).await));
        assert!(!is_admitted(&admissions.request_slot(pod("b")).admit(up_to(1)).await));
        let again = admissions.request_slot(pod("a"));
        assert!(again.is_remembered());
        let mut later = admissions.request_slot(pod("c"));
        let mut decision = Box::pin(later.admit(up_to(1)));
        assert!(waits(&mut decision).await);
        again.keep(|_| None);
        assert!(!is_admitted(&decision.await));
    }

    #[tokio::test]
    async fn resources_of_ended_containers_are_free_before_the_slot_is_released() {
        let admissions = Admissions::default();
        let mut first = admissions.request_slot(pod("a"));
        assert!(is_admitted(&first.admit(up_to(1)).await));
        first.record_ended(Ended::All);
        assert!(is_admitted(&admissions.request_slot(pod("b")).admit(up_to(1)).await));
    }

    #[tokio::test]
    async fn admitted_pod_waits_for_the_pods_it_preempts() {
        let admissions = Admissions::default();
        let (old, mut new) = (admissions.request_slot(pod("old")), admissions.request_slot(pod("new")));
        old.keep(|_| None);
        new.admit(|_| {
            let victims = vec![PodUid::new("old")];
            decision(Admission::Admitted { victims, short_of: "cpu".to_owned() })
        })
        .await;
        assert!(new.must_wait());
        let uids = |slot: &AdmissionSlot| -> Vec<PodUid> {
            slot.waits_for().iter().map(|pod| PodUid::of(pod)).collect()
        };
        assert_eq!(uids(&new), [PodUid::new("old")]);
        old.release();
        assert!(!new.must_wait() && uids(&new).is_empty());
    }

    #[tokio::test]
    async fn admitted_pod_stops_waiting_for_the_pods_it_preempts() {
        let admissions = Admissions::default();
        let (old, mut new) = (admissions.request_slot(pod("old")), admissions.request_slot(pod("new")));
        old.keep(|_| None);
        new.admit(|_| {
            let victims = vec![PodUid::new("old")];
            decision(Admission::Admitted { victims, short_of: "cpu".to_owned() })
        })
        .await;
        new.stop_waiting();
        assert!(!new.must_wait());
    }
}
