//! Notifies the workers of pods whose devices changed their health, so that they report it without waiting for a sync.
//!
//! Owns one entry for each worker that listens, also to the health of devices of claims. The health itself is in the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::PodUid;
use parking_lot::Mutex;
use resources_core::devices::ContainerHealth;
use resources_core::devices::health::{
    PodHealth, compute_affected_pods, compute_container_health, health_of_pods,
};
use tokio::sync::Notify;

use super::{Devices, Table};

/// The pods whose workers listen; clones share it. Every access is short.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthListeners(Arc<Mutex<BTreeMap<PodUid, Arc<Notify>>>>);

impl HealthListeners {
    fn listen(&self, uid: PodUid) -> HealthListener {
        let changed = Arc::new(Notify::new());
        self.0.lock().insert(uid.clone(), changed.clone());
        HealthListener { listeners: self.clone(), uid, changed }
    }

    pub(crate) fn notify<'a>(&self, pods: impl IntoIterator<Item = &'a PodUid>) {
        let listeners = self.0.lock();
        for listener in pods.into_iter().filter_map(|uid| listeners.get(uid)) {
            listener.notify_one();
        }
    }
}

/// The worker's end. Closed when dropped.
#[derive(Debug)]
pub struct HealthListener {
    listeners: HealthListeners,
    uid: PodUid,
    changed: Arc<Notify>,
}

impl HealthListener {
    /// Resolves when the devices of the pod have another health. Cancel safe: a notification is kept until it is received.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for HealthListener {
    fn drop(&mut self) {
        let mut listeners = self.listeners.0.lock();
        // Another worker of the same pod may have taken over.
        if listeners.get(&self.uid).is_some_and(|changed| Arc::ptr_eq(changed, &self.changed)) {
            listeners.remove(&self.uid);
        }
    }
}

impl Devices {
    /// The workers that are notified when devices of their pods change their health, whatever manages them.
    pub(crate) fn health_listeners(&self) -> HealthListeners {
        self.shared.listeners.clone()
    }

    /// Notifies of changes of the health of the pod's devices; `None` without the feature gate.
    #[must_use]
    pub fn listen_to_health(&self, uid: &PodUid) -> Option<HealthListener> {
        self.shared.reports_health.then(|| self.shared.listeners.listen(uid.clone()))
    }

    /// The health of the pod's devices, as the status of its containers shows it.
    #[must_use]
    pub fn health_of(&self, uid: &PodUid) -> ContainerHealth {
        self.shared.admissions.read(|allocations| match allocations.devices_of(uid) {
            Some((_, devices)) if !devices.is_empty() => {
                self.read(|registry| compute_container_health(devices, registry))
            }
            Some(_) | None => ContainerHealth::new(),
        })
    }

    /// Changes the table, and notifies the pods whose devices have another health afterwards.
    pub(super) fn change_and_notify(&self, change: impl FnOnce(&mut Table) -> bool) -> bool {
        let shared = &self.shared;
        if !shared.reports_health {
            return change(&mut shared.table.lock());
        }
        // The lock of the allocations comes first, as when devices are chosen.
        let (has_changed, affected) = shared.admissions.read(|allocations| {
            let mut table = shared.table.lock();
            let health = |table: &Table| -> BTreeMap<PodUid, PodHealth> {
                health_of_pods(allocations.devices(), &table.registry)
            };
            let before = health(&table);
            let has_changed = change(&mut table);
            let affected =
                if has_changed { compute_affected_pods(&before, &health(&table)) } else { Vec::new() };
            (has_changed, affected)
        });
        shared.listeners.notify(&affected);
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn device_health_change_notifies_the_affected_pods_once() {
        let listeners = HealthListeners::default();
        let (a, b) = (listeners.listen(PodUid::new("a")), listeners.listen(PodUid::new("b")));
        listeners.notify(&[PodUid::new("a"), PodUid::new("gone")]);
        assert!(pin!(a.changed()).now_or_never().is_some());
        assert!(pin!(a.changed()).now_or_never().is_none(), "only once");
        assert!(pin!(b.changed()).now_or_never().is_none());
    }

    #[test]
    fn second_worker_of_a_pod_keeps_its_health_listener_when_the_first_is_dropped() {
        let listeners = HealthListeners::default();
        let first = listeners.listen(PodUid::new("a"));
        let second = listeners.listen(PodUid::new("a"));
        drop(first);
        listeners.notify(&[PodUid::new("a")]);
        assert!(pin!(second.changed()).now_or_never().is_some());
        drop(second);
        assert!(listeners.0.lock().is_empty());
    }
}
