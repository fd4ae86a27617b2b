//! Reflectors: the store of a collection of API objects, kept up to date by list and watch.
//!
//! Owns the open watch. What to request next, and how long to wait, is decided in `api_core::reflector`. Never acts on
//! objects: other tasks wait for changes of the store. An object that cannot be decoded is left out, counted and logged, and its last
//! readable version stays (docs/SECURITY.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use api_core::reflector::{ObjectKey, ReflectorEvent, ReflectorState, ReflectorStep, keeps_last_version};
use base_agent::context::Context;
use base_core::object_version::ObjectVersion;
use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::Metadata;
use model::k8s::{ApiObject, Node, ObjectMeta, Pod};
use model::{MalformedObject, RateLimiter};
use parking_lot::Mutex;
use ports::Cluster;
use ports::cluster::{Change, ClusterError, ClusterResult, ListWatch, Selection};
use sources_core::ApiPod;
use tokio::sync::watch;

use super::meta::key_of;
use crate::metrics::ApiMetrics;

/// Objects of a store that cannot be decoded of which is remembered why; others are only counted.
const MAX_MALFORMED: usize = 1000;
/// Lines about objects that cannot be decoded: this many at once, then one a second.
const LOG_BURST: u32 = 25;

/// The objects as last listed or watched.
#[derive(Debug)]
pub struct Store<T> {
    /// In the last version that could be decoded. A list that arrives next to the store shares the keys.
    pub objects: BTreeMap<Arc<ObjectKey>, Arc<T>>,
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
    pub fn find(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, String> {
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
pub fn own_node(seen: &Store<Node>) -> Option<Arc<Node>> {
    seen.objects.values().next().cloned()
}

/// Selects the collection of a client.
pub type CollectionOf<K> = fn(&dyn Cluster) -> &dyn ListWatch<K>;

/// What the store keeps of an object, given what it has of the object of that name. An unchanged object keeps its pointer, because
/// readers compare them.
pub type Keep<K, T> = fn(K, Option<&Arc<T>>, Timestamp) -> Arc<T>;

/// The UID of an object as the store has it.
pub type UidOf<T> = fn(&T) -> Option<&str>;

fn keep_whole<K: Metadata<Ty = ObjectMeta>>(object: K, known: Option<&Arc<K>>, _now: Timestamp) -> Arc<K> {
    let version = ObjectVersion::of(&object);
    match known.filter(|known| ObjectVersion::of(&***known).is_same_as(version)) {
        Some(known) => known.clone(),
        None => Arc::new(object),
    }
}

/// Shares with the version before what the kubelet acts on.
pub fn keep_pod(pod: Pod, known: Option<&Arc<ApiPod>>, now: Timestamp) -> Arc<ApiPod> {
    let version = ObjectVersion::of(&pod);
    match known.filter(|known| known.version().is_same_as(version)) {
        Some(known) => known.clone(),
        None => Arc::new(ApiPod::new(pod, known.map(|known| &**known), now)),
    }
}

/// Keeps the store `seen` up to date until dropped, or until its object cannot change any more.
#[derive(Debug)]
pub struct Reflector<K, T = K> {
    pub ctx: Arc<Context>,
    pub cluster: Arc<dyn Cluster>,
    pub of: CollectionOf<K>,
    /// The kind in plural, for log messages.
    pub what: &'static str,
    pub selection: Selection,
    /// Whether an object cannot change any more: once the store holds one, the watch ends.
    pub is_settled: fn(&T) -> bool,
    pub keep: Keep<K, T>,
    pub uid_of: UidOf<T>,
    pub seen: watch::Sender<Store<T>>,
    /// Limits the log lines about objects that cannot be decoded, each new version of which has one.
    pub(crate) log_limit: Mutex<RateLimiter>,
}

impl<K: Metadata<Ty = ObjectMeta> + Send + Sync + 'static> Reflector<K> {
    /// For objects that may always change and are kept as they are.
    pub fn new(
        ctx: &Arc<Context>,
        cluster: &Arc<dyn Cluster>,
        of: CollectionOf<K>,
        what: &'static str,
        selection: Selection,
        seen: watch::Sender<Store<K>>,
    ) -> Self {
        let uid_of: UidOf<K> = |object| object.metadata().uid.as_deref();
        Self::keeping(ctx, cluster, of, what, selection, keep_whole, uid_of, seen)
    }
}

impl<K: ApiObject, T: Send + Sync + 'static> Reflector<K, T> {
    /// For objects that may always change. `of` selects the collection, `what` is its name for log messages.
    pub fn keeping(
        ctx: &Arc<Context>,
        cluster: &Arc<dyn Cluster>,
        of: CollectionOf<K>,
        what: &'static str,
        selection: Selection,
        keep: Keep<K, T>,
        uid_of: UidOf<T>,
        seen: watch::Sender<Store<T>>,
    ) -> Self {
        let (ctx, cluster) = (ctx.clone(), cluster.clone());
        let log_limit = Mutex::new(RateLimiter::new(1.0, LOG_BURST, ctx.clock.mono()));
        Self { ctx, cluster, of, what, selection, is_settled: |_| false, keep, uid_of, seen, log_limit }
    }

    pub async fn run(self) {
        let mut reflector = ReflectorState::default();
        while !self.is_done() {
            let clock = self.ctx.clock;
            match reflector.next(clock.mono()) {
                ReflectorStep::Wait { until } => clock.sleep_until(until).await,
                ReflectorStep::List { version } => {
                    let listed = self.list(version.as_deref()).await;
                    let event = listed.unwrap_or_else(|error| self.failed("list", &error));
                    self.handle(&mut reflector, event);
                }
                ReflectorStep::Watch { since } => self.watch(&mut reflector, &since).await,
            }
        }
    }

    fn is_done(&self) -> bool {
        self.seen.borrow().objects.values().any(|object| (self.is_settled)(object))
    }

    fn handle(&self, reflector: &mut ReflectorState, event: ReflectorEvent) {
        reflector.handle(event, self.ctx.rng.share(), self.ctx.clock.mono());
    }

    fn failed(&self, what: &str, error: &ClusterError) -> ReflectorEvent {
        if let ClusterError::Expired { .. } = error {
            tracing::info!(kind = self.what, "Watch expired, listing again");
            return ReflectorEvent::Expired;
        }
        tracing::warn!(kind = self.what, err = %error, "Failed to {what} objects");
        match error.retry_after() {
            Some(retry_after) => ReflectorEvent::Refused { retry_after },
            None => ReflectorEvent::Failed,
        }
    }

    async fn list(&self, version: Option<&str>) -> ClusterResult<ReflectorEvent> {
        let now = self.ctx.clock.now().wall;
        let mut arrived = Arrived::default();
        let mut item = |item: Result<K, MalformedObject>| match item {
            Ok(object) => arrived.add(object, self.keep, &self.seen, now),
            Err(object) => {
                self.report(&object);
                arrived.add_malformed(object, self.uid_of, &self.seen);
            }
        };
        let collection = (self.of)(&*self.cluster);
        let resource_version = collection.read_list(&self.selection, version, &mut item).await?;
        self.seen.send_modify(|seen| arrived.replace(seen));
        Ok(ReflectorEvent::Listed { resource_version })
    }

    /// Counts and logs an object that cannot be decoded, each version of it once.
    fn report(&self, object: &MalformedObject) {
        let is_known = self.seen.borrow().malformed.get(&key_of_malformed(object)) == Some(object);
        if is_known {
            return;
        }
        self.ctx.metrics.get::<ApiMetrics>().object_malformed(K::PLURAL);
        if self.log_limit.lock().try_take(self.ctx.clock.mono()) {
            let (object, version) = (object.to_string(), &*object.resource_version);
            tracing::error!(kind = self.what, version, err = object, "Failed to decode object of the API");
        }
    }

    async fn watch(&self, reflector: &mut ReflectorState, since: &str) {
        let mut changes = match (self.of)(&*self.cluster).watch(&self.selection, since).await {
            Ok(changes) => changes,
            Err(error) => return self.handle(reflector, self.watch_failed(&error)),
        };
        self.handle(reflector, ReflectorEvent::WatchStarted);
        while let Some(change) = changes.next().await {
            match change {
                Ok(change) => {
                    let resource_version = self.apply(change);
                    self.handle(reflector, ReflectorEvent::Reached { resource_version });
                    if self.is_done() {
                        return;
                    }
                }
                Err(error) => return self.handle(reflector, self.watch_failed(&error)),
            }
        }
        self.handle(reflector, ReflectorEvent::Ended);
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
                let (key, version) = (key_of(&object), object.resource_version().to_owned());
                let now = self.ctx.clock.now().wall;
                self.seen.send_modify(|seen| {
                    let object = (self.keep)(object, seen.objects.get(&key), now);
                    seen.malformed.remove(&key);
                    seen.objects.insert(Arc::new(key), object);
                });
                version
            }
            Change::Deleted(object) => {
                self.remove(&key_of(&object));
                object.resource_version().to_owned()
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

/// The objects of a list, as far as it has arrived.
struct Arrived<T> {
    /// Not a map yet: one that is built at once, from sorted keys, takes half the memory.
    objects: Vec<(Arc<ObjectKey>, Arc<T>)>,
    malformed: BTreeMap<ObjectKey, MalformedObject>,
    is_one_unknown: bool,
}

impl<T> Default for Arrived<T> {
    fn default() -> Self {
        Self { objects: Vec::new(), malformed: BTreeMap::new(), is_one_unknown: false }
    }
}

impl<T> Arrived<T> {
    fn add<K: ApiObject>(
        &mut self,
        object: K,
        keep: Keep<K, T>,
        seen: &watch::Sender<Store<T>>,
        now: Timestamp,
    ) {
        let (key, seen) = (key_of(&object), seen.borrow());
        let known = seen.objects.get_key_value(&key);
        let kept = keep(object, known.map(|(_, known)| known), now);
        self.objects.push((known.map_or_else(|| Arc::new(key), |(key, _)| key.clone()), kept));
    }

    /// The last readable version of the object stays.
    fn add_malformed(&mut self, object: MalformedObject, uid_of: UidOf<T>, seen: &watch::Sender<Store<T>>) {
        self.is_one_unknown |= object.name.is_empty();
        let key = key_of_malformed(&object);
        let last = seen.borrow().objects.get(&key).cloned();
        let last = last.filter(|last| keeps_last_version(uid_of(last), &object));
        self.objects.extend(last.map(|last| (Arc::new(key.clone()), last)));
        if self.malformed.len() < MAX_MALFORMED {
            self.malformed.insert(key, object);
        }
    }

    fn replace(self, seen: &mut Store<T>) {
        let known = std::mem::take(&mut seen.objects);
        if self.is_one_unknown {
            // Any object that is missing may be the one without a name: what is unknown is not absent.
            seen.objects = known;
            seen.objects.extend(self.objects);
        } else {
            drop(known);
            seen.objects = self.objects.into_iter().collect();
        }
        seen.malformed = self.malformed;
        seen.is_complete = true;
    }
}

fn key_of_malformed(object: &MalformedObject) -> ObjectKey {
    ObjectKey { namespace: object.namespace.clone(), name: object.name.clone() }
}

#[cfg(test)]
mod tests {
    use model::{ServiceEntry, ServiceObject};
    use serde_json::json;

    use super::*;
    use crate::objects::services::keep_entry;

    /// Set in the process that measures.
    const MEASURES: &str = "KUBELET_TEST_MEASURES_SERVICES";
    const COUNT: usize = 100_000;

    /// A line of `/proc/self/status` in KiB.
    fn kib(name: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// As a list or a list after it: the objects arrive one by one, with an annotation that is not kept.
    fn list(seen: &watch::Sender<Store<ServiceEntry>>) {
        let mut arrived = Arrived::default();
        for number in 0..COUNT {
            let (high, low) = (number / 250, number % 250);
            let json = format!(
                r#"{{"metadata":{{"name":"service-{number:06}","namespace":"hostile","resourceVersion":"123456789",
                    "uid":"00000000-0000-4000-8000-000000000000","annotations":{{"note":"nnnnnnnnnnnnnnnnnnnnnnnn"}}}},
                    "spec":{{"clusterIP":"10.1.{high}.{low}","type":"ClusterIP",
                    "ports":[{{"name":"http","port":80,"protocol":"TCP","targetPort":8080}}]}}}}"#
            );
            let service: ServiceObject = serde_json::from_str(&json).unwrap();
            arrived.add(service, keep_entry, seen, Timestamp::UNIX_EPOCH);
        }
        seen.send_modify(|seen| arrived.replace(seen));
    }

    /// Measured in a process of its own: this test runs itself again.
    #[test]
    fn hundred_thousand_services_take_less_than_forty_megabytes_of_memory() {
        if std::env::var_os(MEASURES).is_none() {
            let name = "reflector::tests::hundred_thousand_services_take_less_than_forty_megabytes_of_memory";
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let output = again.args(["--exact", name, "--nocapture"]).env(MEASURES, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the test ran: {output:?}");
            return;
        }
        let seen = watch::Sender::new(Store::default());
        let before = kib("VmRSS");
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        list(&seen);
        let first = kib("VmHWM").saturating_sub(before);
        assert_eq!(seen.borrow().objects.len(), COUNT);
        // A second list next to the store.
        list(&seen);
        let second = kib("VmHWM").saturating_sub(before);
        println!("{first} KiB for a list, {second} KiB for a second one");
        assert!(
            first < 40 << 10 && second < 40 << 10,
            "{first} KiB for a list, {second} KiB for a second one"
        );
    }

    #[test]
    fn list_keeps_the_last_version_of_what_cannot_be_decoded_unless_its_name_has_another_uid() {
        let pod = |name: &str, uid: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "a", "uid": uid}})).unwrap()
        };
        let malformed = |name: &str, uid: &str| MalformedObject {
            namespace: if name.is_empty() { String::new() } else { "a".to_owned() },
            name: name.to_owned(),
            uid: Some(uid.to_owned()),
            ..MalformedObject::default()
        };
        let uid_of: UidOf<Pod> = |pod| pod.metadata.uid.as_deref();
        let names = |bad: &[MalformedObject]| {
            let seen = watch::Sender::new(Store::<Pod>::default());
            let mut arrived = Arrived::default();
            for name in ["kept", "replaced", "gone"] {
                arrived.add(pod(name, "u"), keep_whole, &seen, Timestamp::UNIX_EPOCH);
            }
            seen.send_modify(|seen| arrived.replace(seen));
            let mut arrived = Arrived::default();
            for bad in bad {
                arrived.add_malformed(bad.clone(), uid_of, &seen);
            }
            arrived.add(pod("new", "u"), keep_whole, &seen, Timestamp::UNIX_EPOCH);
            seen.send_modify(|seen| arrived.replace(seen));
            let names = seen.borrow().objects.keys().map(|key| key.name.clone()).collect::<Vec<_>>();
            names.join(" ")
        };
        assert_eq!(
            names(&[malformed("kept", "u"), malformed("replaced", "v"), malformed("bad", "u")]),
            "kept new"
        );
        assert_eq!(
            names(&[malformed("", "u")]),
            "gone kept new replaced",
            "any of them may be the one without a name"
        );
    }
}
