//! Who has a place on this node: the pods that were admitted and have not ended.
//!
//! Owns the one table by which pods that arrive together are judged one after another, so that no two of them take the
//! same room. Never decides: that is `kubelet_core::admission`. Holds one entry for each worker of a desired pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::admission::Admission;
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
    make_way: watch::Sender<bool>,
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
        let (make_way, told) = watch::channel(false);
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
    told: watch::Receiver<bool>,
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
        let is_victim = |taken: &Taken| {
            let uid = taken.pod.metadata.uid.as_deref().unwrap_or_default();
            victims.iter().any(|victim| victim.as_str() == uid)
        };
        for (turn, taken) in &mut table.places {
            if *turn == self.turn {
                taken.is_open = false;
            } else if is_victim(taken) {
                taken.make_way.send_replace(true);
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

    /// Resolves when there is news: `true` if this pod must make way, `false` if somebody has gone for whom it waits.
    /// Cancel safe: watches lose nothing.
    pub async fn news(&mut self) -> bool {
        let waits = self.must_wait();
        tokio::select! {
            Ok(()) = self.told.changed() => true,
            Ok(()) = self.freed.changed(), if waits => false,
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
        assert!(new.must_wait() && old.news().await);
        old.leave();
        assert!(!new.must_wait());
    }
}
