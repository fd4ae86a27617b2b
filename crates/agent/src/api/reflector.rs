//! A copy of a collection of the API, kept up to date by list and watch.
//!
//! Owns the one stream that is open. What to ask next, and how long to wait, is decided in
//! `kubelet_core::reflector`. Never acts on what it sees: others wait for changes of the copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::Metadata;
use kubelet_core::reflector::{ObjectKey, ReflectorEvent, ReflectorState, ReflectorStep};
use kubelet_core::sources::is_same_version;
use model::k8s::{Node, ObjectMeta};
use ports::Cluster;
use ports::cluster::{Change, ClusterError, ClusterResult, Collection, Selection};
use tokio::sync::watch;

use super::meta::{key_of, version_of};
use crate::context::Context;

/// The objects as last seen.
#[derive(Debug)]
pub struct Store<K> {
    pub objects: BTreeMap<ObjectKey, Arc<K>>,
    /// A full list was seen once: what is not here was not there.
    pub is_complete: bool,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), is_complete: false }
    }
}

/// Reads a copy; clones share it.
pub type StoreReader<K> = watch::Receiver<Store<K>>;

/// The Node, of a store that holds no other.
pub(crate) fn own_node(seen: &Store<Node>) -> Option<Arc<Node>> {
    seen.objects.values().next().cloned()
}

/// Which collection is meant.
pub(crate) type Of<K> = fn(&dyn Cluster) -> &dyn Collection<K>;

/// Keeps the copy that `seen` shows up to date until dropped, or until nothing in it can change any more.
pub(crate) struct Reflector<K> {
    pub(crate) ctx: Arc<Context>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) of: Of<K>,
    /// The kind in plural, for the log.
    pub(crate) what: &'static str,
    pub(crate) selection: Selection,
    /// An object that cannot change any more: once the copy holds one, it is no longer followed.
    pub(crate) is_settled: fn(&K) -> bool,
    pub(crate) seen: watch::Sender<Store<K>>,
}

impl<K: Metadata<Ty = ObjectMeta> + Send + Sync + 'static> Reflector<K> {
    /// Follows objects that may always change. `of` says which, with what the log calls them.
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
                    let event = self.list().await.unwrap_or_else(|error| self.failed("listed", &error));
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
        tracing::warn!(kind = self.what, err = %error, "Failed to list or watch objects: cannot be {what}");
        ReflectorEvent::Failed
    }

    async fn list(&self) -> ClusterResult<ReflectorEvent> {
        let listed = (self.of)(&*self.cluster).list(&self.selection).await?;
        let objects = listed.items.into_iter().map(|object| (key_of(&object), Arc::new(object))).collect();
        self.seen.send_modify(|seen| {
            let known = std::mem::replace(&mut seen.objects, objects);
            // Objects that are the same stay the same, for those who compare pointers.
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
            Err(error) => return self.note(reflector, self.failed("watched", &error)),
        };
        self.note(reflector, ReflectorEvent::WatchStarted);
        while let Some(change) = changes.next().await {
            match change {
                Ok(change) => {
                    let resource_version = self.take(change);
                    self.note(reflector, ReflectorEvent::Reached { resource_version });
                    if self.is_done() {
                        return;
                    }
                }
                Err(error) => return self.note(reflector, self.failed("watched", &error)),
            }
        }
        self.note(reflector, ReflectorEvent::Ended);
    }

    /// Takes a change over, and says which version that is.
    fn take(&self, change: Change<K>) -> String {
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
