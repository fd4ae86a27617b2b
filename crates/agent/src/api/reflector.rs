//! Reflectors: the store of a collection of API objects, kept up to date by list and watch.
//!
//! Owns the open watch. What to request next, and how long to wait, is decided in `kubelet_core::api::reflector`. Never acts on
//! objects: other tasks wait for changes of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::Metadata;
use kubelet_core::api::reflector::{ObjectKey, ReflectorEvent, ReflectorState, ReflectorStep};
use kubelet_core::sources::is_same_version;
use model::k8s::{Node, ObjectMeta};
use ports::Cluster;
use ports::cluster::{Change, ClusterError, ClusterResult, Collection, Selection};
use tokio::sync::watch;

use super::meta::{key_of, version_of};
use crate::context::Context;

/// The objects as last listed or watched.
#[derive(Debug)]
pub struct Store<K> {
    pub objects: BTreeMap<ObjectKey, Arc<K>>,
    /// A full list has succeeded once: an object that is missing here does not exist.
    pub is_complete: bool,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), is_complete: false }
    }
}

/// Reads a store; clones share it.
pub type StoreReader<K> = watch::Receiver<Store<K>>;

/// The Node, from a store that holds no other.
pub(crate) fn own_node(seen: &Store<Node>) -> Option<Arc<Node>> {
    seen.objects.values().next().cloned()
}

/// Selects the collection of a client.
pub(crate) type Of<K> = fn(&dyn Cluster) -> &dyn Collection<K>;

/// Keeps the store `seen` up to date until dropped, or until its object cannot change any more.
pub(crate) struct Reflector<K> {
    pub(crate) ctx: Arc<Context>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) of: Of<K>,
    /// The kind in plural, for log messages.
    pub(crate) what: &'static str,
    pub(crate) selection: Selection,
    /// Whether an object cannot change any more: once the store holds one, the watch ends.
    pub(crate) is_settled: fn(&K) -> bool,
    pub(crate) seen: watch::Sender<Store<K>>,
}

impl<K: Metadata<Ty = ObjectMeta> + Send + Sync + 'static> Reflector<K> {
    /// For objects that may always change. `of` selects the collection and has its name for log messages.
    pub(crate) fn new(
        ctx: &Arc<Context>,
        cluster: &Arc<dyn Cluster>,
        of: (Of<K>, &'static str),
        selection: Selection,
        seen: watch::Sender<Store<K>>,
    ) -> Self {
        let (of, what) = of;
        let (ctx, cluster) = (ctx.clone(), cluster.clone());
        Self { ctx, cluster, of, what, selection, is_settled: |_| false, seen }
    }

    pub(crate) async fn run(self) {
        let mut reflector = ReflectorState::default();
        while !self.is_done() {
            let clock = self.ctx.clock;
            match reflector.next(clock.mono()) {
                ReflectorStep::Wait { until } => clock.sleep_until(until).await,
                ReflectorStep::List => {
                    let event = self.list().await.unwrap_or_else(|error| self.failed("list", &error));
                    self.note(&mut reflector, event);
                }
                ReflectorStep::Watch { since } => self.watch(&mut reflector, &since).await,
            }
        }
    }

    fn is_done(&self) -> bool {
        self.seen.borrow().objects.values().any(|object| (self.is_settled)(object))
    }

    fn note(&self, reflector: &mut ReflectorState, event: ReflectorEvent) {
        reflector.note(event, self.ctx.rng.share(), self.ctx.clock.mono());
    }

    fn failed(&self, what: &str, error: &ClusterError) -> ReflectorEvent {
        if let ClusterError::Expired { .. } = error {
            tracing::info!(kind = self.what, "Watch expired, listing again");
            return ReflectorEvent::Expired;
        }
        tracing::warn!(kind = self.what, err = %error, "Failed to {what} objects");
        ReflectorEvent::Failed
    }

    async fn list(&self) -> ClusterResult<ReflectorEvent> {
        let listed = (self.of)(&*self.cluster).list(&self.selection).await?;
        let objects = listed.items.into_iter().map(|object| (key_of(&object), Arc::new(object))).collect();
        self.seen.send_modify(|seen| {
            let known = std::mem::replace(&mut seen.objects, objects);
            // Unchanged objects keep their pointers, because readers compare them.
            for (key, object) in &mut seen.objects {
                if let Some(known) = known.get(key).filter(|known| is_same_version(&***known, &**object)) {
                    *object = known.clone();
                }
            }
            seen.is_complete = true;
        });
        Ok(ReflectorEvent::Listed { resource_version: listed.resource_version })
    }

    async fn watch(&self, reflector: &mut ReflectorState, since: &str) {
        let mut changes = match (self.of)(&*self.cluster).watch(&self.selection, since).await {
            Ok(changes) => changes,
            Err(error) => return self.note(reflector, self.failed("watch", &error)),
        };
        self.note(reflector, ReflectorEvent::WatchStarted);
        while let Some(change) = changes.next().await {
            match change {
                Ok(change) => {
                    let resource_version = self.apply(change);
                    self.note(reflector, ReflectorEvent::Reached { resource_version });
                    if self.is_done() {
                        return;
                    }
                }
                Err(error) => return self.note(reflector, self.failed("watch", &error)),
            }
        }
        self.note(reflector, ReflectorEvent::Ended);
    }

    /// Applies a change to the store, and returns its resource version.
    fn apply(&self, change: Change<K>) -> String {
        match change {
            Change::Bookmark { resource_version } => resource_version,
            Change::Added(object) | Change::Modified(object) => {
                let version = version_of(&object).to_owned();
                let (key, object) = (key_of(&object), Arc::new(object));
                self.seen.send_modify(|seen| {
                    seen.objects.insert(key, object);
                });
                version
            }
            Change::Deleted(object) => {
                self.seen.send_modify(|seen| {
                    seen.objects.remove(&key_of(&object));
                });
                version_of(&object).to_owned()
            }
        }
    }
}
