//! The latest observation of every pod the runtime knows, or a worker asks about. Only the PLEG writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{MonoTime, PodObservation, PodRef, PodUid};
use parking_lot::Mutex;
use tokio::sync::watch;

type Slot = watch::Sender<Option<Arc<PodObservation>>>;

/// Shared, read by many. Every access is short; the lock never spans an await.
#[derive(Clone, Debug, Default)]
pub struct PodCache {
    slots: Arc<Mutex<BTreeMap<PodUid, Slot>>>,
}

impl PodCache {
    /// Follows one pod. The value is `None` until it has been looked at once.
    #[must_use]
    pub fn subscribe(&self, uid: &PodUid) -> watch::Receiver<Option<Arc<PodObservation>>> {
        self.slots.lock().entry(uid.clone()).or_insert_with(|| watch::Sender::new(None)).subscribe()
    }

    #[must_use]
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodObservation>> {
        self.slots.lock().get(uid).and_then(|slot| slot.borrow().clone())
    }

    /// Every pod with a trace in the runtime.
    #[must_use]
    pub fn in_runtime(&self) -> Vec<Arc<PodObservation>> {
        self.slots.lock().values().filter_map(|s| s.borrow().clone()).filter(|o| !o.is_empty()).collect()
    }

    /// Pods that somebody takes care of.
    #[must_use]
    pub fn followed(&self) -> BTreeSet<PodUid> {
        let slots = self.slots.lock();
        slots.iter().filter(|(_, slot)| slot.receiver_count() > 0).map(|(uid, _)| uid.clone()).collect()
    }

    /// Publishes an observation, unless a later one is there already. Slots that hold nothing and that nobody follows
    /// are dropped, so the cache stays as small as the node.
    pub(crate) fn publish(&self, observation: PodObservation) {
        let mut slots = self.slots.lock();
        let uid = observation.pod.uid.clone();
        let is_empty = observation.is_empty();
        let slot = slots.entry(uid.clone()).or_insert_with(|| watch::Sender::new(None));
        slot.send_if_modified(|current| {
            let is_newer = current.as_ref().is_none_or(|c| c.taken_at <= observation.taken_at);
            if is_newer {
                *current = Some(Arc::new(observation));
            }
            is_newer
        });
        if is_empty && slot.receiver_count() == 0 {
            slots.remove(&uid);
        }
    }

    /// The pod is not in the runtime, as of that moment.
    pub(crate) fn publish_absent(&self, pod: PodRef, taken_at: MonoTime) {
        self.publish(PodObservation::empty(pod, taken_at));
    }
}
