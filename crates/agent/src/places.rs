//! Who has a place on this node, and what it holds: the pods that were admitted and have not ended.
//!
//! Owns the one [`Ledger`], by which pods that arrive together are judged one after another, so that no two of them take
//! the same room. Never decides: that is `kubelet_core::admission`. Holds one entry for each worker of a desired pod.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use kubelet_core::admission::Admission;
use kubelet_core::devices::PodDevices;
use kubelet_core::eviction::message::EvictionNotice;
use kubelet_core::ledger::{Beside, Ended, Ledger, Turn};
use model::PodUid;
use model::k8s::Pod;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The table; clones share it. Every access is short.
#[derive(Clone, Debug)]
pub struct Places {
    table: Arc<Mutex<Table>>,
    /// Counts the places that became free.
    freed: Arc<watch::Sender<u64>>,
    /// Counts changes of what is held.
    changed: Arc<watch::Sender<u64>>,
    /// Counts changes of who has which devices.
    devices: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Table {
    ledger: Ledger,
    make_way: BTreeMap<Turn, watch::Sender<Option<MakeWay>>>,
}

/// Why a pod that has a place must give it up.
#[derive(Clone, Debug)]
pub enum MakeWay {
    /// A critical pod needs the room.
    Preempted,
    /// The node runs short, or the pod took more than it may. It gets so many seconds to end.
    Evicted { notice: Arc<EvictionNotice>, grace: i64 },
    /// The machine is about to end, and leaves it so many seconds.
    NodeShutdown { grace: i64 },
}

impl Default for Places {
    fn default() -> Self {
        Self::new(Ledger::default())
    }
}

impl Places {
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        let counter = || Arc::new(watch::Sender::new(0));
        let table = Arc::new(Mutex::new(Table { ledger, make_way: BTreeMap::new() }));
        Self { table, freed: counter(), changed: counter(), devices: counter() }
    }

    /// A place for a pod that is yet to be judged, after all that asked before it.
    #[must_use]
    pub fn ask(&self, pod: Arc<Pod>) -> Place {
        let (make_way, told) = watch::channel(None);
        let mut table = self.table.lock();
        let turn = table.ledger.ask(pod);
        table.make_way.insert(turn, make_way);
        drop(table);
        Place { places: self.clone(), turn, waits_for: Vec::new(), told, freed: self.freed.subscribe() }
    }

    /// The pods that were admitted and have not ended: what the node has promised.
    #[must_use]
    pub fn admitted(&self) -> Vec<Arc<Pod>> {
        self.table.lock().ledger.pods().map(|(_, pod)| pod.clone()).collect()
    }

    /// Reads what is held. The table is locked meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.table.lock().ledger)
    }

    /// Tells an admitted pod to go. `false`: it has gone, or was told to go before.
    #[must_use]
    pub fn evict(&self, uid: &PodUid, notice: EvictionNotice, grace: i64) -> bool {
        self.tell_pod(uid, |told| {
            let is_first = told.is_none();
            if is_first {
                *told = Some(MakeWay::Evicted { notice: Arc::new(notice), grace });
            }
            is_first
        })
    }

    /// Tells an admitted pod to go with the machine, also one that was told to go before: it may get less time now.
    /// `false`: it has gone.
    #[must_use]
    pub fn end_with_node(&self, uid: &PodUid, grace: i64) -> bool {
        self.tell_pod(uid, |told| {
            *told = Some(MakeWay::NodeShutdown { grace });
            true
        })
    }

    fn tell_pod(&self, uid: &PodUid, tell: impl FnOnce(&mut Option<MakeWay>) -> bool) -> bool {
        let table = self.table.lock();
        let found = table.ledger.pods().find(|(_, pod)| has_uid(pod, uid)).map(|(turn, _)| turn);
        let make_way = found.and_then(|turn| table.make_way.get(&turn));
        make_way.is_some_and(|make_way| make_way.send_if_modified(tell))
    }

    /// What an earlier kubelet gave to pods that have not asked for a place is free.
    pub fn forget_unclaimed(&self) {
        if self.table.lock().ledger.forget_unclaimed() {
            tell(&self.devices);
        }
    }

    /// The devices of that pod; `None` for one that has no place.
    #[must_use]
    pub fn devices_of(&self, uid: &PodUid) -> Option<PodDevices> {
        self.table.lock().ledger.devices_of(uid).map(|(_, devices)| devices.clone())
    }

    /// Chooses devices for a pod, with nobody else choosing meanwhile. `None`: it has no place.
    pub fn choose_devices<E>(
        &self,
        uid: &PodUid,
        choose: impl FnOnce(&Beside<'_>) -> Result<PodDevices, E>,
    ) -> Option<Result<PodDevices, E>> {
        let mut table = self.table.lock();
        let (turn, _) = table.ledger.devices_of(uid)?;
        let chosen = choose(&table.ledger.beside(turn)?);
        if let Ok(devices) = &chosen
            && table.ledger.set_devices(turn, devices.clone())
        {
            drop(table);
            tell(&self.devices);
        }
        Some(chosen)
    }

    /// The same where nothing can be short.
    pub fn set_devices(&self, uid: &PodUid, choose: impl FnOnce(&Beside<'_>) -> PodDevices) {
        let chosen = self.choose_devices(uid, |beside| Ok::<_, Infallible>(choose(beside)));
        // A pod that has left needs none.
        drop(chosen);
    }

    /// Tells whenever somebody else has a device.
    #[must_use]
    pub fn device_changes(&self) -> watch::Receiver<u64> {
        self.devices.subscribe()
    }

    /// Tells whenever what is held has changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

fn has_uid(pod: &Pod, uid: &PodUid) -> bool {
    pod.metadata.uid.as_deref() == Some(uid.as_str())
}

fn tell(counter: &watch::Sender<u64>) {
    counter.send_modify(|count| *count += 1);
}

/// What one attempt to decide came to.
enum Verdict {
    Final(Admission),
    /// The pod is admitted or rejected as earlier pods are, which are not decided yet.
    DependsOnOthers,
}

/// One pod's place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    turn: Turn,
    /// The turns of those who make way for this pod.
    waits_for: Vec<Turn>,
    told: watch::Receiver<Option<MakeWay>>,
    freed: watch::Receiver<u64>,
}

impl Place {
    /// Decides whether the node admits the pod, next to all that were admitted or asked earlier. An earlier pod that is
    /// not decided yet may itself be rejected: where only such pods leave no room, the decision waits for theirs. A
    /// rejected pod leaves; those that must make way for an admitted one are told to. `None`: the pod has left before.
    /// Cancel safe: nothing is decided before the last await.
    pub async fn judge(
        &mut self,
        decide: impl Fn(&Beside<'_>) -> (Admission, PodDevices),
    ) -> Option<Admission> {
        let mut changed = self.places.changed.subscribe();
        loop {
            match self.judge_now(&decide)? {
                Verdict::Final(admission) => return Some(admission),
                // The sender lives as long as `self`, so that this never ends the loop.
                Verdict::DependsOnOthers => changed.changed().await.ok()?,
            }
        }
    }

    fn judge_now(&mut self, decide: impl Fn(&Beside<'_>) -> (Admission, PodDevices)) -> Option<Verdict> {
        let mut table = self.places.table.lock();
        let (admission, devices) = decide(&table.ledger.beside(self.turn)?);
        let victims: &[PodUid] = match &admission {
            Admission::Admitted { victims, .. } => victims,
            Admission::Rejected(_) => {
                let decided = table.ledger.beside_decided(self.turn).map(|others| decide(&others).0);
                drop(table);
                if let Some(Admission::Admitted { .. }) = decided {
                    return Some(Verdict::DependsOnOthers);
                }
                self.leave();
                return Some(Verdict::Final(admission));
            }
        };
        table.ledger.admit(self.turn);
        let has_new_devices = table.ledger.set_devices(self.turn, devices);
        let is_victim = |pod: &Pod| victims.iter().any(|victim| has_uid(pod, victim));
        self.waits_for =
            table.ledger.pods().filter(|(_, pod)| is_victim(pod)).map(|(turn, _)| turn).collect();
        for make_way in self.waits_for.iter().filter_map(|turn| table.make_way.get(turn)) {
            make_way.send_replace(Some(MakeWay::Preempted));
        }
        drop(table);
        tell(&self.places.changed);
        if has_new_devices {
            tell(&self.places.devices);
        }
        Some(Verdict::Final(admission))
    }

    /// The pod was admitted before.
    pub fn keep(&self) {
        self.places.table.lock().ledger.admit(self.turn);
        tell(&self.places.changed);
    }

    /// What of the pod will not run again: others may have its room at once.
    pub fn note_ended(&self, ended: Ended) {
        if self.places.table.lock().ledger.note(self.turn, ended) {
            tell(&self.places.freed);
            tell(&self.places.changed);
            tell(&self.places.devices);
        }
    }

    /// Nothing of the pod runs any more, or nobody wants it: others may have its room.
    pub fn leave(&self) {
        let mut table = self.places.table.lock();
        table.make_way.remove(&self.turn);
        let was_there = table.ledger.release(self.turn);
        drop(table);
        if was_there {
            tell(&self.places.freed);
            tell(&self.places.changed);
            tell(&self.places.devices);
        }
    }

    /// Those that make way for this pod have not all gone.
    #[must_use]
    pub fn must_wait(&self) -> bool {
        let table = self.places.table.lock();
        self.waits_for.iter().any(|turn| table.ledger.has(*turn))
    }

    /// Resolves when there is news: why this pod must make way, or `None` if somebody has gone for whom it waits. Cancel
    /// safe: watches lose nothing.
    pub async fn news(&mut self) -> Option<MakeWay> {
        let waits = self.must_wait();
        tokio::select! {
            Ok(()) = self.told.changed() => self.told.borrow().clone(),
            Ok(()) = self.freed.changed(), if waits => None,
            else => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;
    use kubelet_core::admission::Rejection;

    fn pod(uid: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        Arc::new(pod)
    }

    /// Admits as long as there are fewer than that many others.
    fn up_to(most: usize) -> impl Fn(&Beside<'_>) -> (Admission, PodDevices) {
        move |beside| {
            let admission = if beside.holdings.len() < most {
                Admission::Admitted { victims: Vec::new(), short_of: String::new() }
            } else {
                Admission::Rejected(Rejection { reason: "OutOfpods".into(), message: String::new() })
            };
            (admission, PodDevices::default())
        }
    }

    fn is_admitted(admission: &Option<Admission>) -> bool {
        matches!(admission, Some(Admission::Admitted { .. }))
    }

    /// Whether the decision about the pod waits for that of another one.
    async fn waits(decision: &mut (impl Future + Unpin)) -> bool {
        std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *decision).poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn a_pod_that_asked_later_is_rejected_once_the_earlier_one_is_admitted() {
        let places = Places::default();
        let (mut first, mut second) = (places.ask(pod("a")), places.ask(pod("b")));
        let mut decision = Box::pin(second.judge(up_to(1)));
        assert!(waits(&mut decision).await);
        assert!(is_admitted(&first.judge(up_to(1)).await));
        assert!(!is_admitted(&decision.await));
    }

    #[tokio::test]
    async fn a_pod_that_is_rejected_at_the_same_moment_takes_no_room_from_a_later_one() {
        let places = Places::default();
        let (mut first, mut second) = (places.ask(pod("a")), places.ask(pod("b")));
        let mut decision = Box::pin(second.judge(up_to(1)));
        assert!(waits(&mut decision).await);
        assert!(!is_admitted(&first.judge(up_to(0)).await));
        assert!(is_admitted(&decision.await));
    }

    #[tokio::test]
    async fn a_pod_that_no_earlier_one_hinders_is_decided_at_once() {
        let places = Places::default();
        let (_first, mut second, mut third) =
            (places.ask(pod("a")), places.ask(pod("b")), places.ask(pod("c")));
        assert!(!is_admitted(&second.judge(up_to(0)).await), "it is rejected whatever becomes of the first");
        assert!(is_admitted(&third.judge(up_to(2)).await), "there is room for both");
    }

    #[tokio::test]
    async fn a_place_is_free_once_its_pod_has_left() {
        let places = Places::default();
        let mut first = places.ask(pod("a"));
        assert!(is_admitted(&first.judge(up_to(1)).await));
        assert!(!is_admitted(&places.ask(pod("b")).judge(up_to(1)).await));
        first.leave();
        assert!(is_admitted(&places.ask(pod("c")).judge(up_to(1)).await));
        drop(first);
        assert!(places.read(|ledger| ledger.held().count()) == 0 && places.table.lock().make_way.is_empty());
    }

    #[tokio::test]
    async fn what_has_ended_is_free_before_its_pod_has_left() {
        let places = Places::default();
        let mut first = places.ask(pod("a"));
        assert!(is_admitted(&first.judge(up_to(1)).await));
        first.note_ended(Ended::All);
        assert!(is_admitted(&places.ask(pod("b")).judge(up_to(1)).await));
    }

    #[tokio::test]
    async fn a_pod_waits_for_those_that_make_way() {
        let places = Places::default();
        let (mut old, mut new) = (places.ask(pod("old")), places.ask(pod("new")));
        old.keep();
        new.judge(|_| {
            let victims = vec![PodUid::new("old")];
            (Admission::Admitted { victims, short_of: "cpu".to_owned() }, PodDevices::default())
        })
        .await;
        assert!(new.must_wait());
        assert!(matches!(old.news().await, Some(MakeWay::Preempted)));
        old.leave();
        assert!(!new.must_wait());
    }

    #[tokio::test]
    async fn a_pod_is_evicted_once_and_only_while_it_has_a_place() {
        let places = Places::default();
        let mut place = places.ask(pod("a"));
        let evict = || places.evict(&PodUid::new("a"), EvictionNotice::own_fault("full".to_owned()), 1);
        assert!(!evict() && places.admitted().is_empty(), "nobody has judged it");
        place.keep();
        assert_eq!(places.admitted().len(), 1);
        assert!(evict() && !evict());
        assert!(matches!(place.news().await, Some(MakeWay::Evicted { grace: 1, .. })));
        let end = || places.end_with_node(&PodUid::new("a"), 2);
        assert!(end() && end(), "one that goes already may have to go faster");
        assert!(matches!(place.news().await, Some(MakeWay::NodeShutdown { grace: 2 })));
        place.leave();
        assert!(!evict() && !end() && places.admitted().is_empty());
    }
}
