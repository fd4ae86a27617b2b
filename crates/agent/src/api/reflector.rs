//! Reflectors: the store of a collection of API objects, kept up to date by list and watch.
//!
//! Owns the open watch. What to request next, and how long to wait, is decided in `kubelet_core::api::reflector`. Never acts on
//! objects: other tasks wait for changes of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::Metadata;
use kubelet_core::api::reflector::{ObjectKey, ReflectorEvent, ReflectorState, ReflectorStep};
use kubelet_core::object_version::ObjectVersion;
use kubelet_core::sources::ApiPod;
use model::k8s::{Node, ObjectMeta, Pod};
use ports::Cluster;
use ports::cluster::{Change, ClusterError, ClusterResult, Collection, Selection};
use tokio::sync::watch;

use super::meta::key_of;
use crate::context::Context;

/// The objects as last listed or watched.
#[derive(Debug)]
pub struct Store<T> {
    pub objects: BTreeMap<ObjectKey, Arc<T>>,
    /// A full list has succeeded once: an object that is missing here does not exist.
    pub is_complete: bool,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), is_complete: false }
    }
}

/// Reads a store; clones share it.
pub type StoreReader<T> = watch::Receiver<Store<T>>;

/// The Node, from a store that holds no other.
pub(crate) fn own_node(seen: &Store<Node>) -> Option<Arc<Node>> {
    seen.objects.values().next().cloned()
}

/// Selects the collection of a client.
pub(crate) type Of<K> = fn(&dyn Cluster) -> &dyn Collection<K>;

/// What the store keeps of an object, given what it has of the object of that name. An unchanged object keeps its pointer, because
/// readers compare them.
pub(crate) type Keep<K, T> = fn(K, Option<&Arc<T>>, Timestamp) -> Arc<T>;

fn keep_whole<K: Metadata<Ty = ObjectMeta>>(object: K, known: Option<&Arc<K>>, _now: Timestamp) -> Arc<K> {
    let version = ObjectVersion::of(&object);
    match known.filter(|known| ObjectVersion::of(&***known).is_same_as(version)) {
        Some(known) => known.clone(),
        None => Arc::new(object),
    }
}

/// Shares with the version before what the kubelet acts on.
pub(crate) fn keep_pod(pod: Pod, known: Option<&Arc<ApiPod>>, now: Timestamp) -> Arc<ApiPod> {
    let version = ObjectVersion::of(&pod);
    match known.filter(|known| known.version().is_same_as(version)) {
        Some(known) => known.clone(),
        None => Arc::new(ApiPod::new(pod, known.map(|known| &**known), now)),
    }
}

/// Keeps the store `seen` up to date until dropped, or until its object cannot change any more.
pub(crate) struct Reflector<K, T = K> {
    pub(crate) ctx: Arc<Context>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) of: Of<K>,
    /// The kind in plural, for log messages.
    pub(crate) what: &'static str,
    pub(crate) selection: Selection,
    /// Whether an object cannot change any more: once the store holds one, the watch ends.
    pub(crate) is_settled: fn(&T) -> bool,
    pub(crate) keep: Keep<K, T>,
    pub(crate) seen: watch::Sender<Store<T>>,
}

impl<K: Metadata<Ty = ObjectMeta> + Send + Sync + 'static> Reflector<K> {
    /// For objects that may always change and are kept as they are.
    pub(crate) fn new(
        ctx: &Arc<Context>,
        cluster: &Arc<dyn Cluster>,
        of: (Of<K>, &'static str),
        selection: Selection,
        seen: watch::Sender<Store<K>>,
    ) -> Self {
        Self::keeping(ctx, cluster, of, selection, (keep_whole, seen))
    }
}

impl<K: Metadata<Ty = ObjectMeta> + Send + Sync + 'static, T: Send + Sync + 'static> Reflector<K, T> {
    /// For objects that may always change. `of` selects the collection and has its name for log messages.
    pub(crate) fn keeping(
        ctx: &Arc<Context>,
        cluster: &Arc<dyn Cluster>,
        of: (Of<K>, &'static str),
        selection: Selection,
        store: (Keep<K, T>, watch::Sender<Store<T>>),
    ) -> Self {
        let ((of, what), (keep, seen)) = (of, store);
        let (ctx, cluster) = (ctx.clone(), cluster.clone());
        Self { ctx, cluster, of, what, selection, is_settled: |_| false, keep, seen }
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
        let now = self.ctx.clock.now().wall;
        self.seen.send_modify(|seen| {
            let known = std::mem::take(&mut seen.objects);
            let kept = listed.items.into_iter().map(|object| {
                let key = key_of(&object);
                let object = (self.keep)(object, known.get(&key), now);
                (key, object)
            });
            seen.objects = kept.collect();
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
                let (key, version) = (key_of(&object), version_of(&object));
                let now = self.ctx.clock.now().wall;
                self.seen.send_modify(|seen| {
                    let object = (self.keep)(object, seen.objects.get(&key), now);
                    seen.objects.insert(key, object);
                });
                version
            }
            Change::Deleted(object) => {
                self.seen.send_modify(|seen| {
                    seen.objects.remove(&key_of(&object));
                });
                version_of(&object)
            }
        }
    }
}

fn version_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> String {
    ObjectVersion::of(object).resource_version.to_owned()
}
