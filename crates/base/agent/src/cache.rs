//! The pod cache: the latest observation of every pod that the runtime has or that has a worker, and the last listing for
//! pods that were not inspected yet. Only the PLEG writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base_core::pod_stage::RuntimePresence;
use model::{MonoTime, PodObservation, PodRef, PodUid};
use parking_lot::Mutex;
use tokio::sync::watch;

type Slot = watch::Sender<Option<Arc<PodObservation>>>;

/// What the runtime has of each pod.
pub type InRuntime = BTreeMap<PodUid, (PodRef, RuntimePresence)>;

/// The ids of images, by the pod whose containers have them.
pub type ListedImages = BTreeMap<PodUid, BTreeSet<Arc<str>>>;

/// The last listing.
#[derive(Clone, Debug)]
pub struct Listed {
    began: MonoTime,
    pods: InRuntime,
    /// Of pods that were not inspected yet, or cannot be.
    images: ListedImages,
}

/// Shared, read by many. Every access is short; the lock never spans an await.
#[derive(Clone, Debug)]
pub struct PodCache {
    slots: Arc<Mutex<BTreeMap<PodUid, Slot>>>,
    /// `None` until there has been one.
    listed: Arc<watch::Sender<Option<Listed>>>,
}

impl Default for PodCache {
    fn default() -> Self {
        Self { slots: Arc::default(), listed: Arc::new(watch::Sender::new(None)) }
    }
}

impl PodCache {
    /// The observations of one pod. The value is `None` until the pod was inspected once.
    pub fn subscribe(&self, uid: &PodUid) -> watch::Receiver<Option<Arc<PodObservation>>> {
        self.slots.lock().entry(uid.clone()).or_default().subscribe()
    }

    #[must_use]
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodObservation>> {
        self.slots.lock().get(uid).and_then(|slot| slot.borrow().clone())
    }

    /// Every pod with a trace in the runtime.
    #[must_use]
    pub fn in_runtime(&self) -> Vec<Arc<PodObservation>> {
        self.slots
            .lock()
            .values()
            .filter_map(|slot| slot.borrow().clone())
            .filter(|o| !o.is_empty())
            .collect()
    }

    /// Changes with each listing.
    #[must_use]
    pub fn listings(&self) -> watch::Receiver<Option<Listed>> {
        self.listed.subscribe()
    }

    /// What the runtime has of each pod, from the pod's latest observation, or else from the last listing. `None`
    /// before the first listing: the set of pods is not known until then.
    #[must_use]
    pub fn presence(&self) -> Option<InRuntime> {
        let mut pods = self.listed.borrow().as_ref()?.pods.clone();
        for observed in self.slots.lock().values().filter_map(|slot| slot.borrow().clone()) {
            let (uid, presence) = (observed.pod.uid.clone(), presence_of(&observed));
            if observed.is_empty() {
                pods.remove(&uid);
            } else {
                pods.insert(uid, (observed.pod.clone(), presence));
            }
        }
        Some(pods)
    }

    /// The images of containers that no observation has, from the last listing.
    #[must_use]
    pub fn listed_images(&self) -> ListedImages {
        self.listed.borrow().as_ref().map(|listed| listed.images.clone()).unwrap_or_default()
    }

    /// Pods with a subscriber, which is their worker.
    #[must_use]
    pub fn subscribed(&self) -> BTreeSet<PodUid> {
        let slots = self.slots.lock();
        slots.iter().filter(|(_, slot)| has_subscribers(slot)).map(|(uid, _)| uid.clone()).collect()
    }

    /// No pod has a worker.
    pub fn has_no_subscriber(&self) -> bool {
        !self.slots.lock().values().any(has_subscribers)
    }

    /// Publishes an observation, unless the cache has a later one. Empty slots without subscribers are dropped, so that
    /// the cache does not grow.
    pub fn publish(&self, observation: PodObservation) {
        let mut slots = self.slots.lock();
        let uid = observation.pod.uid.clone();
        let is_empty = observation.is_empty();
        let slot = slots.entry(uid.clone()).or_default();
        slot.send_if_modified(|current| {
            let is_newer = current.as_ref().is_none_or(|c| c.taken_at <= observation.taken_at);
            if is_newer {
                *current = Some(Arc::new(observation));
            }
            is_newer
        });
        if is_empty && !has_subscribers(slot) {
            slots.remove(&uid);
            self.listed.send_if_modified(|listed| {
                listed.as_mut().map(|listed| listed.pods.remove(&uid));
                false
            });
        }
    }

    /// Replaces the last listing; pods that are the same stay where they are in memory.
    pub fn publish_listing(&self, began: MonoTime, pods: InRuntime, images: ListedImages) {
        self.listed.send_modify(|listed| match listed {
            Some(same) if same.pods == pods => (same.began, same.images) = (began, images),
            Some(_) | None => *listed = Some(Listed { began, pods, images }),
        });
    }

    /// When the last listing began; `None` before the first.
    #[must_use]
    pub fn listed_at(&self) -> Option<MonoTime> {
        self.listed.borrow().as_ref().map(|listed| listed.began)
    }

    /// The pod is not in the runtime, as of that moment.
    pub fn publish_absent(&self, pod: PodRef, taken_at: MonoTime) {
        self.publish(PodObservation::empty(pod, taken_at));
    }
}

fn has_subscribers(slot: &Slot) -> bool {
    slot.receiver_count() > 0
}

fn presence_of(observed: &PodObservation) -> RuntimePresence {
    if observed.is_stopped() { RuntimePresence::Dead } else { RuntimePresence::MayRun }
}
