//! Reflectors: the store of a collection of API objects, kept up to date by list and watch.
//!
//! Owns the open watch. What to request next, and how long to wait, is decided in `kubelet_core::api::reflector`. Never acts on
//! objects: other tasks wait for changes of the store. An object that cannot be decoded is left out, counted and logged, and its last
//! readable version stays (docs/SECURITY.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::Metadata;
use kubelet_core::api::reflector::{
    ObjectKey, ReflectorEvent, ReflectorState, ReflectorStep, keeps_last_version,
};
use kubelet_core::object_version::ObjectVersion;
use kubelet_core::sources::ApiPod;
use model::k8s::{Node, ObjectMeta, Pod};
use model::{MalformedObject, RateLimiter};
use parking_lot::Mutex;
use ports::Cluster;
use ports::cluster::{Change, ClusterError, ClusterResult, Collection, Selection};
use tokio::sync::watch;

use super::meta::key_of;
use crate::context::Context;

/// Objects of a store that cannot be decoded of which is remembered why; others are only counted.
const MAX_MALFORMED: usize = 1000;
/// Lines about objects that cannot be decoded: this many at once, then one a second.
const LOG_BURST: u32 = 25;

/// The objects as last listed or watched.
#[derive(Debug)]
pub struct Store<T> {
    /// In the last version that could be decoded.
    pub objects: BTreeMap<ObjectKey, Arc<T>>,
    /// Objects whose present version cannot be decoded.
    pub malformed: BTreeMap<ObjectKey, MalformedObject>,
    /// A full list has succeeded once: an object that is missing here does not exist.
    pub is_complete: bool,
}

impl<T> Store<T> {
    /// The object; `None` if it does not exist.
    ///
    /// # Errors
    /// It exists, but no version of it could be decoded.
    pub(crate) fn find(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, String> {
        match (self.objects.get(key), self.malformed.get(key)) {
            (Some(object), _) => Ok(Some(object.clone())),
            (None, Some(object)) => Err(object.problem.clone()),
            (None, None) => Ok(None),
        }
    }
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), malformed: BTreeMap::new(), is_complete: false }
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

/// The UID of an object as the store has it.
pub(crate) type UidOf<T> = fn(&T) -> Option<&str>;

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
    pub(crate) uid_of: UidOf<T>,
    pub(crate) seen: watch::Sender<Store<T>>,
    /// Limits the log lines about objects that cannot be decoded, each new version of which has one.
    pub(crate) log_limit: Mutex<RateLimiter>,
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
        let uid_of: UidOf<K> = |object| object.metadata().uid.as_deref();
        Self::keeping(ctx, cluster, of, selection, (keep_whole, uid_of, seen))
    }
}

impl<K: Metadata<Ty = ObjectMeta> + Send + Sync + 'static, T: Send + Sync + 'static> Reflector<K, T> {
    /// For objects that may always change. `of` selects the collection and has its name for log messages.
    pub(crate) fn keeping(
        ctx: &Arc<Context>,
        cluster: &Arc<dyn Cluster>,
        of: (Of<K>, &'static str),
        selection: Selection,
        store: (Keep<K, T>, UidOf<T>, watch::Sender<Store<T>>),
    ) -> Self {
        let ((of, what), (keep, uid_of, seen)) = (of, store);
        let (ctx, cluster) = (ctx.clone(), cluster.clone());
        let log_limit = Mutex::new(RateLimiter::new(1.0, LOG_BURST, ctx.clock.mono()));
        Self { ctx, cluster, of, what, selection, is_settled: |_| false, keep, uid_of, seen, log_limit }
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
        let now = self.ctx.clock.now().wall;
        let (mut objects, mut malformed) = (Vec::new(), BTreeMap::new());
        let mut is_one_unknown = false;
        let mut item = |item: Result<K, MalformedObject>| match item {
            Ok(object) => {
                let key = key_of(&object);
                let known = self.known(&key);
                objects.push((key, (self.keep)(object, known.as_ref(), now)));
            }
            Err(object) => {
                self.report(&object);
                is_one_unknown |= object.name.is_empty();
                let key = key_of_malformed(&object);
                let last = self.known(&key).filter(|known| keeps_last_version((self.uid_of)(known), &object));
                objects.extend(last.map(|last| (key.clone(), last)));
                if malformed.len() < MAX_MALFORMED {
                    malformed.insert(key, object);
                }
            }
        };
        let resource_version = (self.of)(&*self.cluster).read_list(&self.selection, &mut item).await?;
        self.seen.send_modify(|seen| {
            let known = std::mem::take(&mut seen.objects);
            seen.objects = objects.into_iter().collect();
            if is_one_unknown {
                // Any object that is missing may be the one without a name: what is unknown is not absent.
                for (key, last) in known {
                    seen.objects.entry(key).or_insert(last);
                }
            }
            seen.malformed = malformed;
            seen.is_complete = true;
        });
        Ok(ReflectorEvent::Listed { resource_version })
    }

    /// What the store has of the object.
    fn known(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.seen.borrow().objects.get(key).cloned()
    }

    /// Counts and logs an object that cannot be decoded, each version of it once.
    fn report(&self, object: &MalformedObject) {
        let is_known = self.seen.borrow().malformed.get(&key_of_malformed(object)) == Some(object);
        if is_known {
            return;
        }
        self.ctx.metrics.object_malformed(K::URL_PATH_SEGMENT);
        if self.log_limit.lock().try_take(self.ctx.clock.mono()) {
            let (object, version) = (object.to_string(), &*object.resource_version);
            tracing::error!(kind = self.what, version, err = object, "Failed to decode object of the API");
        }
    }

    async fn watch(&self, reflector: &mut ReflectorState, since: &str) {
        let mut changes = match (self.of)(&*self.cluster).watch(&self.selection, since).await {
            Ok(changes) => changes,
            Err(error) => return self.note(reflector, self.watch_failed(&error)),
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
                Err(error) => return self.note(reflector, self.watch_failed(&error)),
            }
        }
        self.note(reflector, ReflectorEvent::Ended);
    }

    /// Whether watching from the same resource version may succeed later, or the server sends, or will send, what cannot be used.
    fn watch_failed(&self, error: &ClusterError) -> ReflectorEvent {
        match (self.failed("watch", error), error) {
            (
                ReflectorEvent::Failed,
                ClusterError::Failed { .. }
                | ClusterError::Invalid { .. }
                | ClusterError::NotFound { .. }
                | ClusterError::AlreadyExists { .. }
                | ClusterError::Conflict { .. },
            ) => ReflectorEvent::Lost,
            (event, _) => event,
        }
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
                    seen.malformed.remove(&key);
                    seen.objects.insert(key, object);
                });
                version
            }
            Change::Deleted(object) => {
                self.remove(&key_of(&object));
                version_of(&object)
            }
            Change::Malformed { object, is_deleted: true } => {
                self.remove(&key_of_malformed(&object));
                object.resource_version
            }
            Change::Malformed { object, is_deleted: false } => {
                self.report(&object);
                let version = object.resource_version.clone();
                self.seen.send_modify(|seen| {
                    let key = key_of_malformed(&object);
                    let is_replaced = |last: &Arc<T>| !keeps_last_version((self.uid_of)(last), &object);
                    if seen.objects.get(&key).is_some_and(is_replaced) {
                        seen.objects.remove(&key);
                    }
                    if seen.malformed.len() < MAX_MALFORMED || seen.malformed.contains_key(&key) {
                        seen.malformed.insert(key, object);
                    }
                });
                version
            }
        }
    }

    fn remove(&self, key: &ObjectKey) {
        self.seen.send_modify(|seen| {
            seen.objects.remove(key);
            seen.malformed.remove(key);
        });
    }
}

fn key_of_malformed(object: &MalformedObject) -> ObjectKey {
    ObjectKey { namespace: object.namespace.clone(), name: object.name.clone() }
}

fn version_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> String {
    ObjectVersion::of(object).resource_version.to_owned()
}
