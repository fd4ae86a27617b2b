//! Sources of ConfigMaps and Secrets, by the three strategies of `configMapAndSecretChangeDetectionStrategy`
//! (docs/behaviour/volumes.md).
//!
//! Owns one source for each object that some pod refers to, shared by these pods; it ends with the last of them. Never
//! requests an object that no pod refers to.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api_core::reflector::ObjectKey;
use api_core::retry::compute_retry_delay;
use base_agent::context::Context;
use k8s_openapi::Metadata;
use model::MonoTime;
use model::k8s::{ConfigMap, Node, ObjectMeta, Secret};
use parking_lot::Mutex;
use ports::cluster::{ClusterError, Collection, Selection};
use ports::{Clock, Cluster};
use tokio::sync::watch;
use volumes_core::object_ttl;

use super::ObjectError;
use crate::reflector::{CollectionOf, Reflector, Store, StoreReader, own_node};

/// How long a pod waits for the first list of an object; then its step fails and is retried.
const SYNC_TIMEOUT: Duration = Duration::from_secs(1);

/// How changes of objects are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// A watch for each object.
    Watch,
    /// A cached object that is read again once it is too old.
    Cache,
    /// A read on every use.
    Get,
}

impl Strategy {
    /// Validation rejects unknown names; an unknown name counts as the default.
    pub(crate) fn parse(name: &str) -> Self {
        match name {
            "Cache" => Self::Cache,
            "Get" => Self::Get,
            _ => Self::Watch,
        }
    }
}

/// ConfigMap or Secret.
pub(crate) trait Kind: Metadata<Ty = ObjectMeta> + std::fmt::Debug + Send + Sync + 'static {
    /// The name in messages.
    const NAME: &'static str;
    const TASK: &'static str;
    fn of(cluster: &dyn Cluster) -> &dyn Collection<Self>;
    /// The object is `immutable`: it does not change until it is deleted.
    fn is_immutable(&self) -> bool;
}

impl Kind for ConfigMap {
    const NAME: &'static str = "configmap";
    const TASK: &'static str = "ConfigMap reflector";

    fn of(cluster: &dyn Cluster) -> &dyn Collection<Self> {
        cluster.config_maps()
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Kind for Secret {
    const NAME: &'static str = "secret";
    const TASK: &'static str = "Secret reflector";

    fn of(cluster: &dyn Cluster) -> &dyn Collection<Self> {
        cluster.secrets()
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

/// Access to the API.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub cluster: Arc<dyn Cluster>,
    pub clock: Clock,
    pub strategy: Strategy,
    /// Its annotation `node.alpha.kubernetes.io/ttl` sets the lifetime of cached objects.
    pub own_node: StoreReader<Node>,
}

/// The newest version of one object.
#[derive(Debug)]
pub(crate) struct Source<K> {
    key: ObjectKey,
    access: Access,
    state: State<K>,
}

#[derive(Debug)]
enum State<K> {
    Store(StoreReader<K>),
    Read(Cached<K>),
}

/// The last read with strategy `Cache`; always empty with `Get`.
#[derive(Debug)]
struct Cached<K> {
    last: Mutex<Option<Answer<K>>>,
    /// No read before this time, and why: an overloaded API server refused one.
    refused: Mutex<Option<(MonoTime, ClusterError)>>,
}

#[derive(Debug)]
struct Answer<K> {
    object: Option<Arc<K>>,
    /// `None`: expired, because a pod was registered since.
    read: Option<MonoTime>,
}

impl<K: Kind> Source<K> {
    fn start(ctx: &Arc<Context>, access: &Access, key: &ObjectKey) -> Self {
        let state = match access.strategy {
            Strategy::Watch => State::Store(follow(ctx, access, key)),
            Strategy::Cache | Strategy::Get => {
                State::Read(Cached { last: Mutex::default(), refused: Mutex::default() })
            }
        };
        Self { key: key.clone(), access: access.clone(), state }
    }

    /// The object; `None` if it does not exist.
    pub(crate) async fn get(&self) -> Result<Option<Arc<K>>, ObjectError> {
        match &self.state {
            State::Store(seen) => {
                let mut seen = seen.clone();
                wait_for_sync(self.access.clock, &mut seen, K::NAME).await?;
                let found = seen.borrow().find(&self.key);
                found.map_err(|problem| ObjectError::Malformed {
                    kind: K::NAME,
                    name: self.key.name.clone(),
                    problem,
                })
            }
            State::Read(cached) => self.read(cached).await,
        }
    }

    /// Notifies of every change; `None` if the strategy does not watch.
    pub(crate) fn changes(&self) -> Option<StoreReader<K>> {
        match &self.state {
            State::Store(seen) => Some(seen.clone()),
            State::Read(_) => None,
        }
    }

    /// Expires the cached object, so that a new or updated pod gets the current one.
    fn expire(&self) {
        if let State::Read(cached) = &self.state
            && let Some(answer) = &mut *cached.last.lock()
        {
            answer.read = None;
        }
    }

    async fn read(&self, cached: &Cached<K>) -> Result<Option<Arc<K>>, ObjectError> {
        let now = self.access.clock.mono();
        let keeps = self.access.strategy == Strategy::Cache;
        let ttl = object_ttl(own_node(&self.access.own_node.borrow()).as_deref());
        let is_good = |answer: &&Answer<K>| answer.read.is_some_and(|read| now < read + ttl);
        let last = &cached.last;
        if let Some(answer) = last.lock().as_ref().filter(is_good) {
            return Ok(answer.object.clone());
        }
        let object = match self.get_allowed(cached, now).await {
            Ok(object) => Some(Arc::new(object)),
            Err(ClusterError::NotFound { .. }) => None,
            Err(error) => {
                // The cached object is used while the API does not respond.
                let known = last.lock().as_ref().map(|answer| answer.object.clone());
                return known.ok_or(ObjectError::Api(error));
            }
        };
        if keeps {
            *last.lock() = Some(Answer { object: object.clone(), read: Some(now) });
        }
        Ok(object)
    }
}

impl<K: Kind> Source<K> {
    /// Reads the object, unless the API server has asked to wait. The pods that need it ask again at different times.
    async fn get_allowed(&self, cached: &Cached<K>, now: MonoTime) -> Result<K, ClusterError> {
        if let Some((until, error)) = &*cached.refused.lock()
            && now < *until
        {
            return Err(error.clone());
        }
        let got = K::of(&*self.access.cluster).get(&self.key.namespace, &self.key.name).await;
        let refusal = got.as_ref().err().and_then(|error| Some((error.retry_after()?, error.clone())));
        *cached.refused.lock() = refusal.map(|(retry_after, error)| {
            let delay = compute_retry_delay(Duration::ZERO, Some(retry_after), 0.0);
            (self.access.clock.mono() + delay, error)
        });
        got
    }
}

/// Starts a reflector of one object, which ends when its last reader is dropped.
fn follow<K: Kind>(ctx: &Arc<Context>, access: &Access, key: &ObjectKey) -> StoreReader<K> {
    let (sender, seen) = watch::channel(Store::default());
    let selection = Selection {
        namespace: Some(key.namespace.clone()),
        fields: Some(format!("metadata.name={}", key.name)),
        labels: None,
    };
    let of: CollectionOf<K> = |cluster| K::of(cluster);
    let reflector = Reflector {
        is_settled: K::is_immutable,
        ..Reflector::new(ctx, &access.cluster, of, K::NAME, selection, sender.clone())
    };
    ctx.tasks.spawn_isolated(K::TASK, async move {
        tokio::select! {
            () = reflector.run() => {}
            () = sender.closed() => {}
        }
    });
    seen
}

/// Waits up to [`SYNC_TIMEOUT`] for a store to be complete.
pub(super) async fn wait_for_sync<K>(
    clock: Clock,
    seen: &mut StoreReader<K>,
    kind: &'static str,
) -> Result<(), ObjectError> {
    let synced = seen.wait_for(|seen| seen.is_complete);
    let is_synced = tokio::select! {
        // An error means that the reflector ended before its first list.
        synced = synced => synced.is_ok(),
        () = clock.sleep_until(clock.mono() + SYNC_TIMEOUT) => false,
    };
    if is_synced { Ok(()) } else { Err(ObjectError::NotSynced { kind }) }
}

/// The sources of one kind. Holds weak references; the pods own the sources.
#[derive(Debug)]
pub(crate) struct Sources<K> {
    by_key: Mutex<BTreeMap<ObjectKey, Weak<Source<K>>>>,
}

impl<K> Default for Sources<K> {
    fn default() -> Self {
        Self { by_key: Mutex::default() }
    }
}

impl<K: Kind> Sources<K> {
    /// The source of that object, shared with other pods that refer to it.
    pub(crate) fn of(&self, ctx: &Arc<Context>, access: &Access, key: &ObjectKey) -> Arc<Source<K>> {
        let mut by_key = self.by_key.lock();
        by_key.retain(|_, source| source.strong_count() > 0);
        if let Some(source) = by_key.get(key).and_then(Weak::upgrade) {
            source.expire();
            return source;
        }
        let source = Arc::new(Source::start(ctx, access, key));
        by_key.insert(key.clone(), Arc::downgrade(&source));
        source
    }
}
