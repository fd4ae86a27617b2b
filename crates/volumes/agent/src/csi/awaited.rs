//! The volumes of pods that are not attached to this node yet, as far as their mounters have waited for that.
//!
//! Owns the set; a volume leaves it when it is attached, and a pod when its volumes are gone from disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::PodUid;
use parking_lot::Mutex;

/// What a volume waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub attachment: String,
    pub driver: String,
}

/// The volumes of one pod, by their names in its spec.
pub(crate) type AwaitedVolumes = BTreeMap<String, Awaited>;

/// Clones share the set.
#[derive(Clone, Debug, Default)]
pub(crate) struct AwaitedAttachments(Arc<Mutex<BTreeMap<PodUid, AwaitedVolumes>>>);

impl AwaitedAttachments {
    pub(crate) fn insert(&self, pod: &PodUid, volume: &str, awaited: Awaited) {
        self.0.lock().entry(pod.clone()).or_default().insert(volume.to_owned(), awaited);
    }

    pub(crate) fn remove(&self, pod: &PodUid, volume: &str) {
        let mut pods = self.0.lock();
        if let Some(volumes) = pods.get_mut(pod) {
            volumes.remove(volume);
            if volumes.is_empty() {
                pods.remove(pod);
            }
        }
    }

    pub(crate) fn remove_pod(&self, pod: &PodUid) {
        self.0.lock().remove(pod);
    }

    pub(crate) fn of(&self, pod: &PodUid) -> AwaitedVolumes {
        self.0.lock().get(pod).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_awaited_until_they_are_attached_or_their_pod_is_gone() {
        let awaited = AwaitedAttachments::default();
        let (a, b) = (PodUid::new("a"), PodUid::new("b"));
        let data = Awaited { attachment: "csi-1".to_owned(), driver: "d".to_owned() };
        awaited.insert(&a, "data", data.clone());
        awaited.insert(&a, "log", data.clone());
        awaited.insert(&b, "data", data);
        awaited.remove(&a, "data");
        assert_eq!(awaited.of(&a).into_keys().collect::<Vec<_>>(), ["log"]);
        awaited.remove(&a, "log");
        awaited.remove_pod(&b);
        assert!(awaited.0.lock().is_empty());
    }
}
