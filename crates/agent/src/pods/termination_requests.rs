//! Requests to terminate a pod, from whoever on this node decides that it must: eviction, node shutdown, preemption.
//!
//! Owns one entry for each pod that holds resources of the node. A request goes directly to the pod's worker, which decides
//! how the pod terminates. Never stops anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::node::eviction::message::EvictionNotice;
use model::PodUid;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Why a pod must terminate.
#[derive(Clone, Debug)]
pub enum TerminationRequest {
    /// A critical pod needs its resources.
    Preempted,
    /// The node is under pressure, or the pod exceeded a limit. `grace` is in seconds.
    Evicted { notice: Arc<EvictionNotice>, grace: i64 },
    /// The node is shutting down. `grace` is in seconds.
    NodeShutdown { grace: i64 },
    /// The node has no place for the pod's volumes.
    NodeIsFull { message: Arc<str> },
}

/// The latest request to one pod, which replaces earlier ones.
#[derive(Debug, Default)]
struct Requested {
    latest: Mutex<Option<TerminationRequest>>,
    /// Keeps the notification of a request that its worker has not seen.
    changed: Notify,
}

/// The table of pods that can be requested to terminate; clones share it. Every access is short.
#[derive(Clone, Debug, Default)]
pub struct TerminationRequests(Arc<Mutex<BTreeMap<PodUid, Arc<Requested>>>>);

impl TerminationRequests {
    /// The pod holds resources of the node from now on, until the listener is closed or dropped.
    #[must_use]
    pub fn listen(&self, uid: PodUid) -> TerminationListener {
        let requested = Arc::new(Requested::default());
        self.0.lock().insert(uid.clone(), requested.clone());
        TerminationListener { requests: self.clone(), uid, requested }
    }

    /// Evicts a pod. `false`: it holds nothing any more, or was requested to terminate before.
    #[must_use]
    pub fn evict(&self, uid: &PodUid, notice: EvictionNotice, grace: i64) -> bool {
        self.request(uid, |requested| {
            let is_first = requested.is_none();
            if is_first {
                *requested = Some(TerminationRequest::Evicted { notice: Arc::new(notice), grace });
            }
            is_first
        })
    }

    /// Terminates a pod for a node shutdown, also after an earlier request, because its grace period may be shorter now.
    /// `false`: it holds nothing any more.
    #[must_use]
    pub fn terminate_for_shutdown(&self, uid: &PodUid, grace: i64) -> bool {
        self.request(uid, |requested| {
            *requested = Some(TerminationRequest::NodeShutdown { grace });
            true
        })
    }

    /// Terminates pods whose resources a critical pod needs.
    pub fn preempt(&self, victims: &[PodUid]) {
        for uid in victims {
            self.request(uid, |requested| {
                *requested = Some(TerminationRequest::Preempted);
                true
            });
        }
    }

    /// Rejects a pod whose volumes cannot be attached to this node, unless it was requested to terminate before.
    pub fn reject_for_full_node(&self, uid: &PodUid, message: String) {
        self.request(uid, |requested| {
            let is_first = requested.is_none();
            if is_first {
                *requested = Some(TerminationRequest::NodeIsFull { message: message.into() });
            }
            is_first
        });
    }

    fn request(&self, uid: &PodUid, set: impl FnOnce(&mut Option<TerminationRequest>) -> bool) -> bool {
        let Some(requested) = self.0.lock().get(uid).cloned() else { return false };
        let is_set = set(&mut requested.latest.lock());
        if is_set {
            requested.changed.notify_one();
        }
        is_set
    }
}

/// The worker's end. Closed when dropped.
#[derive(Debug)]
pub struct TerminationListener {
    requests: TerminationRequests,
    uid: PodUid,
    requested: Arc<Requested>,
}

impl TerminationListener {
    /// The next request. Cancel safe: nothing is lost but what a later request replaces.
    pub async fn requested(&self) -> TerminationRequest {
        loop {
            self.requested.changed.notified().await;
            let request = self.requested.latest.lock().clone();
            if let Some(request) = request {
                return request;
            }
        }
    }

    /// The pod holds nothing any more: later requests do not concern it.
    pub fn close(&self) {
        let mut table = self.requests.0.lock();
        // Another worker of the same pod may have taken over.
        if table.get(&self.uid).is_some_and(|requested| Arc::ptr_eq(requested, &self.requested)) {
            table.remove(&self.uid);
        }
    }
}

impl Drop for TerminationListener {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice() -> EvictionNotice {
        EvictionNotice { message: "low on memory".to_owned(), is_disruption: true, annotations: Vec::new() }
    }

    #[tokio::test]
    async fn second_eviction_of_a_pod_is_refused_and_a_shutdown_replaces_the_first() {
        let requests = TerminationRequests::default();
        let uid = PodUid::new("a");
        let listener = requests.listen(uid.clone());
        assert!(requests.evict(&uid, notice(), 1) && !requests.evict(&uid, notice(), 0));
        assert!(matches!(listener.requested().await, TerminationRequest::Evicted { grace: 1, .. }));
        assert!(requests.terminate_for_shutdown(&uid, 7));
        assert!(matches!(listener.requested().await, TerminationRequest::NodeShutdown { grace: 7 }));
    }

    #[tokio::test]
    async fn preemption_reaches_the_victims_and_no_other_pod() {
        let requests = TerminationRequests::default();
        let (victim, other) = (requests.listen(PodUid::new("a")), requests.listen(PodUid::new("b")));
        requests.preempt(&[PodUid::new("a"), PodUid::new("gone")]);
        assert!(matches!(victim.requested().await, TerminationRequest::Preempted));
        assert!(other.requested.latest.lock().is_none());
    }

    #[test]
    fn pod_that_holds_nothing_is_not_requested_to_terminate() {
        let requests = TerminationRequests::default();
        let uid = PodUid::new("a");
        let first = requests.listen(uid.clone());
        first.close();
        assert!(!requests.evict(&uid, notice(), 0) && !requests.terminate_for_shutdown(&uid, 0));
        let second = requests.listen(uid.clone());
        drop(first);
        assert!(
            requests.evict(&uid, notice(), 0),
            "the end of an earlier worker leaves the later one's entry"
        );
        drop(second);
        assert!(requests.0.lock().is_empty());
    }
}
