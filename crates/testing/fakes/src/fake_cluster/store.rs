//! The objects with their versions, and their history.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::Metadata;
use localapi::patch::{self, PatchKind};
use model::MalformedObject;
use model::k8s::{ObjectMeta, Time};
use ports::cluster::{ClusterError, ClusterResult, Deletion, Part, Patch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::select::Selector;

/// Every kind of the API.
pub trait FakeObject:
    Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
}
impl<K: Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static>
    FakeObject for K
{
}

/// The number of changes that are kept in the history; older ones are compacted.
const HISTORY: usize = 100_000;
/// Kinds without namespaces.
const OF_THE_CLUSTER: [&str; 8] = [
    "nodes",
    "runtimeclasses",
    "certificatesigningrequests",
    "clustertrustbundles",
    "persistentvolumes",
    "csidrivers",
    "csinodes",
    "volumeattachments",
];
/// Kinds whose status is only changed through the status subresource.
const WITH_STATUS: [&str; 7] = [
    "resourceclaims",
    "pods",
    "nodes",
    "certificatesigningrequests",
    "podcertificaterequests",
    "persistentvolumeclaims",
    "volumeattachments",
];
/// Kinds whose updates must have a resource version.
const WITH_VERSION: [&str; 3] = ["leases", "csinodes", "volumeattachments"];
/// Fields that only the server writes.
const SERVERS_OWN: [&str; 6] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
];

/// Plural, namespace, name.
type Key = (&'static str, String, String);

#[derive(Default)]
pub(super) struct Store {
    objects: BTreeMap<Key, Value>,
    revision: u64,
    /// Revisions up to this one are compacted.
    compacted: u64,
    history: VecDeque<Happened>,
    on_change: Option<OnChange>,
    /// Fields of a status that this server drops.
    dropped_status_fields: Vec<&'static str>,
}

/// Called at the very moment of every change, with the collection, the object before and the object after. It must not call the
/// cluster: the cluster has not finished the change.
pub(super) type OnChange = Box<dyn Fn(&str, Option<&Value>, Option<&Value>) + Send + Sync>;

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub(super) revision: u64,
    pub(super) plural: &'static str,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
}

pub(super) fn is_namespaced(plural: &str) -> bool {
    !OF_THE_CLUSTER.contains(&plural)
}

fn key<K: FakeObject>(namespace: &str, name: &str) -> Key {
    let namespace = if is_namespaced(K::URL_PATH_SEGMENT) { namespace } else { "" };
    (K::URL_PATH_SEGMENT, namespace.to_owned(), name.to_owned())
}

pub(super) fn invalid(call: &str, message: impl fmt::Display) -> ClusterError {
    ClusterError::Invalid { call: call.to_owned(), message: message.to_string() }
}

fn conflict(call: &str, message: &str) -> ClusterError {
    ClusterError::Conflict { call: call.to_owned(), message: message.to_owned() }
}

fn typed<K: FakeObject>(call: &str, value: &Value) -> ClusterResult<K> {
    serde_json::from_value(value.clone()).map_err(|error| invalid(call, error))
}

/// As a client decodes it from a list or watch.
pub(super) fn decode<K: DeserializeOwned>(value: &Value) -> Result<K, MalformedObject> {
    serde_json::from_value(value.clone()).map_err(|error| {
        let text = |field: &str| value["metadata"][field].as_str().map(str::to_owned);
        MalformedObject {
            namespace: text("namespace").unwrap_or_default(),
            name: text("name").unwrap_or_default(),
            uid: text("uid"),
            resource_version: text("resourceVersion").unwrap_or_default(),
            problem: error.to_string(),
        }
    })
}

fn tree<K: FakeObject>(call: &str, object: &K) -> ClusterResult<Value> {
    serde_json::to_value(object).map_err(|error| invalid(call, error))
}

impl Store {
    pub(super) fn watch(&mut self, on_change: OnChange) {
        self.on_change = Some(on_change);
    }

    pub(super) const fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.revision;
    }

    /// The changes after `since`, or an error if they are compacted.
    pub(super) fn since(&self, since: u64) -> Option<impl Iterator<Item = &Happened>> {
        (since >= self.compacted).then(|| {
            let first = self.history.partition_point(|happened| happened.revision <= since);
            self.history.range(first..)
        })
    }

    pub(super) fn all<K: FakeObject>(&self) -> Vec<K> {
        let of_kind = self.objects.iter().filter(|((plural, ..), _)| *plural == K::URL_PATH_SEGMENT);
        of_kind.filter_map(|(_, value)| serde_json::from_value(value.clone()).ok()).collect()
    }

    /// The selected objects, and the resource version of the list.
    pub(super) fn list<K: FakeObject>(
        &self,
        selector: &Selector,
    ) -> (Vec<Result<K, MalformedObject>>, String) {
        let of_kind = self.objects.iter().filter(|((plural, ..), _)| *plural == K::URL_PATH_SEGMENT);
        let selected = of_kind.map(|(_, value)| value).filter(|value| selector.matches(value));
        (selected.map(decode).collect(), self.revision.to_string())
    }

    pub(super) fn get<K: FakeObject>(&self, call: &str, namespace: &str, name: &str) -> ClusterResult<K> {
        typed(call, self.find::<K>(call, namespace, name)?)
    }

    fn find<K: FakeObject>(&self, call: &str, namespace: &str, name: &str) -> ClusterResult<&Value> {
        self.objects.get(&key::<K>(namespace, name)).ok_or_else(|| ClusterError::NotFound {
            call: call.to_owned(),
            message: format!("{} {name:?} not found", K::URL_PATH_SEGMENT),
        })
    }

    pub(super) fn create<K: FakeObject>(
        &mut self,
        call: &str,
        namespace: &str,
        object: &K,
        now: Timestamp,
    ) -> ClusterResult<K> {
        let mut new = self.born::<K>(tree(call, object)?, namespace, now);
        if K::URL_PATH_SEGMENT == "pods" {
            new["status"] = json!({"phase": "Pending"});
        }
        let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(invalid(call, "metadata.name: Required value"));
        }
        let key = key::<K>(namespace, &name);
        if self.objects.contains_key(&key) {
            let message = format!("{} {name:?} already exists", K::URL_PATH_SEGMENT);
            return Err(ClusterError::AlreadyExists { call: call.to_owned(), message });
        }
        typed(call, &self.write(key, Some(new)).unwrap_or_default())
    }

    /// With the fields that a server sets for a new object.
    fn born<K: FakeObject>(&self, mut new: Value, namespace: &str, now: Timestamp) -> Value {
        let next = self.revision + 1;
        let metadata = &mut new["metadata"];
        if metadata["name"].as_str().is_none_or(str::is_empty)
            && let Some(prefix) = metadata["generateName"].as_str()
        {
            metadata["name"] = json!(format!("{prefix}{next:05}"));
        }
        if is_namespaced(K::URL_PATH_SEGMENT) {
            metadata["namespace"] = json!(namespace);
        }
        metadata["uid"] = json!(format!("00000000-0000-4000-8000-{next:012x}"));
        metadata["creationTimestamp"] = json!(Time(now));
        if K::URL_PATH_SEGMENT == "pods" {
            metadata["generation"] = json!(1);
        }
        new
    }

    /// Creates or replaces the whole object, with its status, without any checks.
    pub(super) fn put<K: FakeObject>(&mut self, object: &K, now: Timestamp) -> K {
        let (namespace, name) = self.put_json::<K>(tree("put", object).unwrap_or_default(), now);
        self.get("put", &namespace, &name)
            .unwrap_or_else(|error| unreachable!("it was just inserted: {error}"))
    }

    /// As [`Self::put`], for JSON that may not be an object of the kind. Returns namespace and name.
    pub(super) fn put_json<K: FakeObject>(&mut self, object: Value, now: Timestamp) -> (String, String) {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let mut new = self.born::<K>(object, &namespace, now);
        let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = key::<K>(&namespace, &name);
        if let Some(old) = self.objects.get(&key) {
            keep_servers_own(&mut new, old);
        }
        strip_nulls(&mut new);
        if let Some(old) = self.objects.get(&key).filter(|_| K::URL_PATH_SEGMENT == "pods") {
            record_generation(&mut new, old);
        }
        self.write(key, Some(new));
        (namespace, name)
    }

    pub(super) fn update<K: FakeObject>(
        &mut self,
        call: &str,
        namespace: &str,
        object: &K,
    ) -> ClusterResult<K> {
        let new = tree(call, object)?;
        let name = object.metadata().name.clone().unwrap_or_default();
        let must_say_version = WITH_VERSION.contains(&K::URL_PATH_SEGMENT);
        if must_say_version && object.metadata().resource_version.as_deref().is_none_or(str::is_empty) {
            return Err(invalid(call, "metadata.resourceVersion: must be specified for an update"));
        }
        self.replace(call, namespace, &name, Part::Whole, new)
    }

    pub(super) fn patch<K: FakeObject>(
        &mut self,
        call: &str,
        namespace: &str,
        name: &str,
        part: Part,
        change: &Patch,
    ) -> ClusterResult<K> {
        let old = self.find::<K>(call, namespace, name)?;
        let (kind, change) = match change {
            Patch::Merge(change) => (PatchKind::Merge, change),
            Patch::Strategic(change) => (PatchKind::Strategic, change),
            Patch::Json(operations) => (PatchKind::Json, operations),
        };
        let new = patch::apply(kind, K::URL_PATH_SEGMENT, old, change);
        let new = new.map_err(|problem| invalid(call, problem))?;
        self.replace(call, namespace, name, part, new)
    }

    fn replace<K: FakeObject>(
        &mut self,
        call: &str,
        namespace: &str,
        name: &str,
        part: Part,
        mut new: Value,
    ) -> ClusterResult<K> {
        let old = self.find::<K>(call, namespace, name)?;
        for (field, message) in [
            (
                "resourceVersion",
                "the object has been modified; please apply your changes to the latest version",
            ),
            ("uid", "the UID in the precondition is not that of the object"),
        ] {
            let wanted = new["metadata"][field].as_str().unwrap_or_default();
            if !wanted.is_empty() && old["metadata"][field] != wanted {
                return Err(conflict(call, message));
            }
        }
        keep_servers_own(&mut new, old);
        match part {
            Part::Whole if WITH_STATUS.contains(&K::URL_PATH_SEGMENT) => {
                new["status"] = old["status"].clone();
            }
            Part::Whole => {}
            Part::Status => {
                new["spec"] = old["spec"].clone();
                if let Some(status) = new["status"].as_object_mut() {
                    status.retain(|field, _| !self.dropped_status_fields.contains(&field.as_str()));
                }
            }
        }
        strip_nulls(&mut new);
        if K::URL_PATH_SEGMENT == "pods" {
            record_generation(&mut new, old);
        }
        // Unknown fields are not stored.
        let new = tree(call, &typed::<K>(call, &new)?)?;
        let finished = new["metadata"]["deletionTimestamp"].is_string()
            && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
            && !has_finalizers(&new);
        let key = key::<K>(namespace, name);
        let written = self.write(key.clone(), Some(new));
        if finished {
            self.write(key, None);
        }
        typed(call, &written.unwrap_or_default())
    }

    pub(super) fn drop_status_field(&mut self, field: &'static str) {
        self.dropped_status_fields.push(field);
    }

    pub(super) fn delete<K: FakeObject>(
        &mut self,
        call: &str,
        namespace: &str,
        name: &str,
        deletion: &Deletion,
        now: Timestamp,
    ) -> ClusterResult<()> {
        let old = self.find::<K>(call, namespace, name)?;
        if let Some(uid) = &deletion.uid
            && old["metadata"]["uid"] != uid.as_str()
        {
            return Err(conflict(call, "the UID in the precondition is not that of the object"));
        }
        let grace = if K::URL_PATH_SEGMENT == "pods" { grace_of_pod(old, deletion) } else { 0 };
        let key = key::<K>(namespace, name);
        if grace == 0 && !has_finalizers(old) {
            self.write(key, None);
            return Ok(());
        }
        let already = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if already.is_some_and(|already| already <= grace) {
            return Ok(());
        }
        let mut new = old.clone();
        let metadata = &mut new["metadata"];
        metadata["deletionTimestamp"] = json!(Time(now + Duration::from_secs(grace.unsigned_abs())));
        metadata["deletionGracePeriodSeconds"] = json!(grace);
        if let Some(generation) = metadata["generation"].as_i64() {
            metadata["generation"] = json!(generation + 1);
        }
        self.write(key, Some(new));
        Ok(())
    }

    /// Stores the object. Writing the present content is no change.
    fn write(&mut self, key: Key, after: Option<Value>) -> Option<Value> {
        let before = self.objects.get(&key).cloned();
        let version = before.as_ref().map(|before| before["metadata"]["resourceVersion"].clone());
        let mut after = after;
        if let Some(after) = &mut after {
            after["metadata"]["resourceVersion"] = version.unwrap_or_default();
            if before.as_ref() == Some(after) {
                return before;
            }
        } else {
            before.as_ref()?;
        }
        self.revision += 1;
        let revision = self.revision;
        if let Some(after) = &mut after {
            after["metadata"]["resourceVersion"] = json!(revision.to_string());
            self.objects.insert(key.clone(), after.clone());
        } else {
            self.objects.remove(&key);
        }
        if self.history.len() == HISTORY
            && let Some(forgotten) = self.history.pop_front()
        {
            self.compacted = forgotten.revision;
        }
        if let Some(on_change) = &self.on_change {
            on_change(key.0, before.as_ref(), after.as_ref());
        }
        self.history.push_back(Happened { revision, plural: key.0, before, after: after.clone() });
        after
    }
}

fn keep_servers_own(new: &mut Value, old: &Value) {
    for field in SERVERS_OWN {
        new["metadata"][field] = old["metadata"][field].clone();
    }
}

/// Each change of the spec is a new generation.
fn record_generation(new: &mut Value, old: &Value) {
    if new["spec"] != old["spec"] {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = json!(generation);
    }
}

/// A null field does not exist.
fn strip_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(strip_nulls);
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// In seconds; none for a pod without a node, or one that has ended.
fn grace_of_pod(pod: &Value, deletion: &Deletion) -> i64 {
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    match deletion.grace_seconds.unwrap_or(own) {
        _ if !bound || ended => 0,
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}
