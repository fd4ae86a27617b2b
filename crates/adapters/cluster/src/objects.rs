//! Collections: path, query and body of each verb.

use std::fmt;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use model::k8s::ObjectMeta;
use ports::cluster::{
    Changes, ClusterError, ClusterResult, Collection, Deletion, ListWatch, Part, Patch, ReadItem, Selection,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Call, Client};
use crate::connection::Answer;
use crate::decode::{self, Decoded, EachItem, ItemText, ListScanner, MAX_OBJECT, Object};
use crate::encode::percent;
use crate::rng::Rng;
use crate::watch;

pub(crate) const JSON: &str = "application/json";
const MALFORMED: &str = "malformed response";
/// The timeout of a watch is this long to twice as long, so that watches do not end at the same time.
const WATCH_SECONDS: u64 = 300;
/// How much longer than its timeout a watch may last before the client ends it.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// Whether a kind is namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespaced,
}

/// The objects of one kind: what is parsed into its type. All else is in [`Endpoint`], which is compiled once and not for each kind.
pub(crate) struct Objects<K> {
    endpoint: Endpoint,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Objects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.endpoint.plural)
    }
}

impl<K: Object> Objects<K> {
    pub(crate) fn new(client: &Arc<Client>, rng: &Arc<Rng>, scope: Scope) -> Self {
        let endpoint = Endpoint {
            client: Arc::clone(client),
            rng: Arc::clone(rng),
            scope,
            plural: K::URL_PATH_SEGMENT,
            kind: K::KIND,
            root: if K::GROUP.is_empty() { "/api" } else { "/apis" },
            version: K::API_VERSION,
            older: None,
            is_older: AtomicBool::new(false),
        };
        Self { endpoint, kind: PhantomData }
    }

    /// Decodes the objects as another type, which can only be listed and watched.
    pub(crate) fn decoded_as<T: Decoded>(self) -> Objects<T> {
        Objects { endpoint: self.endpoint, kind: PhantomData }
    }

    /// Uses this version of the API if the server does not have that of the kind. Objects of both must have the same fields.
    pub(crate) fn or(mut self, older: &'static str) -> Self {
        self.endpoint.older = Some(older);
        self
    }
}

/// Where the objects of one kind are, and the calls for them, with their objects as JSON.
struct Endpoint {
    client: Arc<Client>,
    rng: Arc<Rng>,
    scope: Scope,
    plural: &'static str,
    kind: &'static str,
    root: &'static str,
    version: &'static str,
    /// An older version of the API that the server may have instead.
    older: Option<&'static str>,
    /// The server has only the older version.
    is_older: AtomicBool,
}

impl Endpoint {
    fn version(&self) -> &'static str {
        self.older.filter(|_| self.is_older.load(Ordering::Relaxed)).unwrap_or(self.version)
    }

    /// `get pods default/web`.
    fn name_call(&self, verb: &str, namespace: &str, name: &str) -> String {
        let plural = self.plural;
        match self.scope {
            Scope::Namespaced => format!("{verb} {plural} {namespace}/{name}"),
            Scope::Cluster => format!("{verb} {plural} {name}"),
        }
    }

    fn path(&self, namespace: Option<&str>) -> String {
        let (root, plural) = (self.root, self.plural);
        match (self.scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => {
                format!("{root}/{}/namespaces/{}/{plural}", self.version(), percent(namespace))
            }
            (Scope::Namespaced, None) | (Scope::Cluster, _) => format!("{root}/{}/{plural}", self.version()),
        }
    }

    /// A call for one object. An empty name would select the whole collection.
    fn about(&self, method: Method, verb: &str, namespace: &str, name: &str) -> ClusterResult<Call> {
        let call = self.name_call(verb, namespace, name);
        let missing = match self.scope {
            _ if name.is_empty() => Some("the name"),
            Scope::Namespaced if namespace.is_empty() => Some("the namespace"),
            Scope::Namespaced | Scope::Cluster => None,
        };
        if let Some(missing) = missing {
            let message = format!("{missing} of the {} is missing", self.kind);
            return Err(ClusterError::Invalid { call, message });
        }
        let target = format!("{}/{}", self.path(Some(namespace)), percent(name));
        let gzip = method == Method::GET;
        Ok(Call { name: call, method, target, body: None, most: MAX_OBJECT, gzip })
    }

    fn selected(&self, verb: &str, selection: &Selection) -> (String, String) {
        let mut name = format!("{verb} {}", self.plural);
        let mut query = String::new();
        if let Some(namespace) = &selection.namespace {
            name.push_str(&format!(" in {namespace}"));
        }
        for (key, selector) in [("fieldSelector", &selection.fields), ("labelSelector", &selection.labels)] {
            if let Some(selector) = selector {
                name.push_str(&format!(" with {selector}"));
                query.push_str(&format!("&{key}={}", percent(selector)));
            }
        }
        (name, query)
    }

    async fn list_once(
        &self,
        selection: &Selection,
        version: Option<&str>,
        each: &mut EachItem<'_>,
    ) -> ClusterResult<String> {
        let (name, mut query) = self.selected("list", selection);
        if let Some(version) = version {
            query.push_str(&format!("&resourceVersion={}", percent(version)));
        }
        let query = query.strip_prefix('&').map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("{}{query}", self.path(selection.namespace.as_deref()));
        let call = Call { name, method: Method::GET, target, body: None, most: 0, gzip: true };
        let writer = ListWriter { scanner: ListScanner::new(MAX_OBJECT), each };
        let scanner = self.client.stream(&call, writer).await?.scanner;
        let metadata = scanner.finish().map_err(|problem| malformed(&call, &problem))?;
        decode::list_version(&metadata).map_err(|error| malformed(&call, &error))
    }

    async fn list(
        &self,
        selection: &Selection,
        version: Option<&str>,
        each: &mut EachItem<'_>,
    ) -> ClusterResult<String> {
        match (self.list_once(selection, version, each).await, self.older) {
            // An empty collection is not an error; "not found" means that the server does not have this version.
            (Err(ClusterError::NotFound { .. }), Some(_)) => {
                self.is_older.fetch_xor(true, Ordering::Relaxed);
                self.list_once(selection, version, each).await
            }
            (listed, _) => listed,
        }
    }

    /// The call, the body of its response, and when it has to end.
    async fn watch(&self, selection: &Selection, since: &str) -> ClusterResult<(String, Answer, Instant)> {
        let (name, query) = self.selected("watch", selection);
        let seconds = WATCH_SECONDS + self.rng.below(WATCH_SECONDS);
        let target = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={seconds}{query}",
            self.path(selection.namespace.as_deref()),
            percent(since),
        );
        let call = Call { name, method: Method::GET, target, body: None, most: 0, gzip: false };
        let body = self.client.open(&call).await?;
        Ok((call.name, body, Instant::now() + Duration::from_secs(seconds) + WATCH_GRACE))
    }

    async fn get(&self, namespace: &str, name: &str) -> ClusterResult<Response> {
        self.answer(self.about(Method::GET, "get", namespace, name)?).await
    }

    async fn create(
        &self,
        namespace: &str,
        metadata: &ObjectMeta,
        object: Json<'_>,
    ) -> ClusterResult<Response> {
        // With `generateName` the server chooses a name.
        let name = metadata.name.as_deref().or(metadata.generate_name.as_deref()).unwrap_or_default();
        let mut call = self.about(Method::POST, "create", namespace, name)?;
        call.target = self.path(Some(namespace));
        call.body = Some(encoded(&call.name, object())?);
        self.answer(call).await
    }

    async fn update(
        &self,
        namespace: &str,
        metadata: &ObjectMeta,
        object: Json<'_>,
    ) -> ClusterResult<Response> {
        let name = metadata.name.as_deref().unwrap_or_default();
        let mut call = self.about(Method::PUT, "update", namespace, name)?;
        call.body = Some(encoded(&call.name, object())?);
        self.answer(call).await
    }

    async fn patch(&self, namespace: &str, name: &str, part: Part, patch: &Patch) -> ClusterResult<Response> {
        let verb = match part {
            Part::Whole => "patch",
            Part::Status => "patch status of",
        };
        let mut call = self.about(Method::PATCH, verb, namespace, name)?;
        if part == Part::Status {
            call.target.push_str("/status");
        }
        let (content_type, patch) = match patch {
            Patch::Merge(patch) => ("application/merge-patch+json", patch),
            Patch::Strategic(patch) => ("application/strategic-merge-patch+json", patch),
            Patch::Json(patch) => ("application/json-patch+json", patch),
        };
        let (_, json) = json_body(&call.name, patch)?;
        call.body = Some((content_type, json));
        self.answer(call).await
    }

    async fn delete(&self, namespace: &str, name: &str, deletion: &Deletion) -> ClusterResult<()> {
        let mut call = self.about(Method::DELETE, "delete", namespace, name)?;
        call.body = Some(json_body(&call.name, &options(deletion))?);
        // The response is the deleted object or a Status, which the caller does not need.
        self.client.answer(&call).await.map(drop)
    }

    async fn answer(&self, call: Call) -> ClusterResult<Response> {
        let json = self.client.answer(&call).await?;
        Ok(Response { call, json })
    }
}

/// Encodes an object.
type Json<'a> = &'a (dyn Fn() -> serde_json::Result<Vec<u8>> + Sync);

/// The JSON that answers a call.
struct Response {
    call: Call,
    json: Bytes,
}

impl Response {
    fn read<T>(&self, read: impl FnOnce(&[u8]) -> serde_json::Result<T>) -> ClusterResult<T> {
        read(&self.json).map_err(|error| malformed(&self.call, &error))
    }
}

/// Passes the items of a list on while it arrives.
struct ListWriter<'a, 'f> {
    scanner: ListScanner,
    each: &'a mut EachItem<'f>,
}

impl Write for ListWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fed = self.scanner.feed(bytes, self.each);
        fed.map_err(|problem| io::Error::other(format!("{MALFORMED}: {problem}")))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn malformed(call: &Call, error: &dyn fmt::Display) -> ClusterError {
    let message = format!("{MALFORMED}: {error}");
    ClusterError::Failed { call: call.name.clone(), code: 200, message }
}

pub(crate) fn json_body(call: &str, value: &impl Serialize) -> ClusterResult<(&'static str, Bytes)> {
    encoded(call, serde_json::to_vec(value))
}

fn encoded(call: &str, json: serde_json::Result<Vec<u8>>) -> ClusterResult<(&'static str, Bytes)> {
    match json {
        Ok(json) => Ok((JSON, json.into())),
        Err(error) => Err(ClusterError::Invalid { call: call.to_owned(), message: error.to_string() }),
    }
}

fn options(deletion: &Deletion) -> Value {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if let Some(uid) = &deletion.uid {
        options["preconditions"] = json!({"uid": uid});
    }
    if let Some(seconds) = deletion.grace_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    options
}

#[async_trait]
impl<K: Decoded> ListWatch<K> for Objects<K> {
    async fn read_list(
        &self,
        selection: &Selection,
        version: Option<&str>,
        item: &mut ReadItem<'_, K>,
    ) -> ClusterResult<String> {
        let mut each = |text: ItemText<'_>| item(decode::item(text));
        self.endpoint.list(selection, version, &mut each).await
    }

    async fn watch(&self, selection: &Selection, since: &str) -> ClusterResult<Changes<K>> {
        let (call, body, ends) = self.endpoint.watch(selection, since).await?;
        Ok(watch::changes(call, self.endpoint.kind, body, ends))
    }
}

#[async_trait]
impl<K: Object> Collection<K> for Objects<K> {
    async fn get(&self, namespace: &str, name: &str) -> ClusterResult<K> {
        self.endpoint.get(namespace, name).await?.read(decode::object)
    }

    async fn create(&self, namespace: &str, object: &K) -> ClusterResult<K> {
        let json = || serde_json::to_vec(object);
        self.endpoint.create(namespace, object.metadata(), &json).await?.read(decode::object)
    }

    async fn update(&self, namespace: &str, object: &K) -> ClusterResult<K> {
        let json = || serde_json::to_vec(object);
        self.endpoint.update(namespace, object.metadata(), &json).await?.read(decode::object)
    }

    async fn patch(&self, namespace: &str, name: &str, part: Part, patch: &Patch) -> ClusterResult<K> {
        self.endpoint.patch(namespace, name, part, patch).await?.read(decode::object)
    }

    async fn delete(&self, namespace: &str, name: &str, deletion: &Deletion) -> ClusterResult<()> {
        self.endpoint.delete(namespace, name, deletion).await
    }
}
