//! Who has a place on this node: the pods that were admitted and have not ended.
//!
//! Owns the one table by which pods that arrive together are judged one after another, so that no two of them take the
//! same room. Never decides: that is `kubelet_core::admission`. Holds one entry for each worker of a desired pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::admission::Admission;
use kubelet_core::eviction::message::EvictionNotice;
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
    /// Counts the pods that were admitted or have left.
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Table {
    next_turn: u64,
    places: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    pod: Arc<Pod>,
    /// Not judged yet; pods whose turn comes later count on it all the same.
    is_open: bool,
    make_way: watch::Sender<Option<MakeWay>>,
}

/// Why a pod that has a place must give it up.
#[derive(Clone, Debug)]
pub enum MakeWay {
    /// A critical pod needs the room.
    Preempted,
    /// The node runs short, or the pod took more than it may. It gets so many seconds to end.
    Evicted { notice: Arc<EvictionNotice>, grace: i64 },
}

impl Taken {
    fn has_uid(&self, uid: &PodUid) -> bool {
        self.pod.metadata.uid.as_deref() == Some(uid.as_str())
    }
}

impl Default for Places {
    fn default() -> Self {
        let counter = || Arc::new(watch::Sender::new(0));
        Self { table: Arc::default(), freed: counter(), changed: counter() }
    }
}

impl Places {
    /// A place for a pod that is yet to be judged, after all that asked before it.
    #[must_use]
    pub fn ask(&self, pod: Arc<Pod>) -> Place {
        let (make_way, told) = watch::channel(None);
        let mut table = self.table.lock();
        let turn = table.next_turn;
        table.next_turn += 1;
        table.places.insert(turn, Taken { pod, is_open: true, make_way });
        drop(table);
        Place { places: self.clone(), turn, waits_for: Vec::new(), told, freed: self.freed.subscribe() }
    }

    /// The pods that were admitted and have not ended: what the node has promised.
    #[must_use]
    pub fn admitted(&self) -> Vec<Arc<Pod>> {
        let table = self.table.lock();
        table.places.values().filter(|taken| !taken.is_open).map(|taken| taken.pod.clone()).collect()
    }

    /// Tells an admitted pod to go. `false`: it has gone, or was told to go before.
    #[must_use]
    pub fn evict(&self, uid: &PodUid, notice: EvictionNotice, grace: i64) -> bool {
        let table = self.table.lock();
        let Some(taken) = table.places.values().find(|taken| !taken.is_open && taken.has_uid(uid)) else {
            return false;
        };
        taken.make_way.send_if_modified(|told| {
            let is_first = told.is_none();
            if is_first {
                *told = Some(MakeWay::Evicted { notice: Arc::new(notice), grace });
            }
            is_first
        })
    }

    /// Tells whenever [`Self::admitted`] has changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

fn tell(counter: &watch::Sender<u64>) {
    counter.send_modify(|count| *count += 1);
}

/// One pod's place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    turn: u64,
    /// The turns of those who make way for this pod.
    waits_for: Vec<u64>,
    told: watch::Receiver<Option<MakeWay>>,
    freed: watch::Receiver<u64>,
}

impl Place {
    /// Has the pod judged beside those that have a place, or asked for one before it. A pod that is refused leaves;
    /// those that must make way for it are told to.
    pub fn judge(&mut self, decide: impl FnOnce(&[&Pod]) -> Admission) -> Admission {
        let mut table = self.places.table.lock();
        let counts =
            |(turn, taken): &(&u64, &Taken)| **turn != self.turn && (!taken.is_open || **turn < self.turn);
        let others: Vec<&Pod> = table.places.iter().filter(counts).map(|(_, taken)| &*taken.pod).collect();
        let admission = decide(&others);
        let victims: &[PodUid] = match &admission {
            Admission::Admitted { victims, .. } => victims,
            Admission::Rejected(_) => {
                drop(table);
                self.leave();
                return admission;
            }
        };
        let is_victim = |taken: &Taken| victims.iter().any(|victim| taken.has_uid(victim));
        for (turn, taken) in &mut table.places {
            if *turn == self.turn {
                taken.is_open = false;
            } else if is_victim(taken) {
                taken.make_way.send_replace(Some(MakeWay::Preempted));
                self.waits_for.push(*turn);
            }
        }
        drop(table);
        tell(&self.places.changed);
        admission
    }

    /// The pod was admitted before.
    pub fn keep(&self) {
        if let Some(taken) = self.places.table.lock().places.get_mut(&self.turn) {
            taken.is_open = false;
        }
        tell(&self.places.changed);
    }

    /// Nothing of the pod runs any more, or nobody wants it: others may have its room.
    pub fn leave(&self) {
        if self.places.table.lock().places.remove(&self.turn).is_some() {
            tell(&self.places.freed);
            tell(&self.places.changed);
        }
    }

    /// Those that make way for this pod have not all gone.
    #[must_use]
    pub fn must_wait(&self) -> bool {
        let table = self.places.table.lock();
        self.waits_for.iter().any(|turn| table.places.contains_key(turn))
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
    use super::*;
    use kubelet_core::admission::Rejection;

    fn pod(uid: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        Arc::new(pod)
    }

    /// Admits as long as there are fewer than that many others.
    fn up_to(most: usize) -> impl Fn(&[&Pod]) -> Admission {
        move |others| {
            if others.len() < most {
                return Admission::Admitted { victims: Vec::new(), short_of: String::new() };
            }
            Admission::Rejected(Rejection { reason: "OutOfpods".into(), message: String::new() })
        }
    }

    fn is_admitted(admission: &Admission) -> bool {
        matches!(admission, Admission::Admitted { .. })
    }

    #[test]
    fn who_asked_first_is_served_first_whoever_is_judged_first() {
        let places = Places::default();
        let (mut first, mut second) = (places.ask(pod("a")), places.ask(pod("b")));
        assert!(!is_admitted(&second.judge(up_to(1))));
        assert!(is_admitted(&first.judge(up_to(1))));
    }

    #[test]
    fn a_place_is_free_once_its_pod_has_left() {
        let places = Places::default();
        let mut first = places.ask(pod("a"));
        assert!(is_admitted(&first.judge(up_to(1))));
        assert!(!is_admitted(&places.ask(pod("b")).judge(up_to(1))));
        first.leave();
        assert!(is_admitted(&places.ask(pod("c")).judge(up_to(1))));
        drop(first);
        assert_eq!(places.table.lock().places.len(), 0);
    }

    #[tokio::test]
    async fn a_pod_waits_for_those_that_make_way() {
        let places = Places::default();
        let (mut old, mut new) = (places.ask(pod("old")), places.ask(pod("new")));
        old.keep();
        new.judge(|_| Admission::Admitted { victims: vec![PodUid::new("old")], short_of: "cpu".to_owned() });
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
        place.leave();
        assert!(!evict() && places.admitted().is_empty());
    }
}
