//! The objects of one kind, as the port shows them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use model::k8s::Service;
use model::{MalformedObject, ServiceObject};
use ports::cluster::{
    Change, Changes, ClusterError, ClusterResult, Collection, Deletion, ListWatch, Part, Patch, ReadItem,
    Selection,
};
use serde_json::Value;
use tokio::sync::watch;

use super::Shared;
use super::faults::{Outage, Verb};
use super::select::Selector;
use super::store::{FakeObject, Happened, decode, invalid, is_namespaced};

/// After how long without an answer a client treats its connection as dead.
const PING: Duration = Duration::from_secs(45);

/// The objects of one kind.
#[derive(Clone)]
pub struct FakeObjects<K> {
    shared: Arc<Shared>,
    kind: PhantomData<fn() -> K>,
}

impl<K: FakeObject> fmt::Debug for FakeObjects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeObjects({})", K::URL_PATH_SEGMENT)
    }
}

impl<K: FakeObject> FakeObjects<K> {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), kind: PhantomData }
    }

    fn subject(namespace: &str, name: &str) -> String {
        if is_namespaced(K::URL_PATH_SEGMENT) { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    /// A call for one object. A change notifies the watches.
    async fn call<T>(
        &self,
        verb: Verb,
        part: Part,
        subject: &str,
        act: impl FnOnce(&Shared, &str) -> ClusterResult<T>,
    ) -> ClusterResult<T> {
        let plural = K::URL_PATH_SEGMENT;
        let (resource, call) = match part {
            Part::Whole => (plural.to_owned(), format!("{verb} {plural} {subject}")),
            Part::Status => (format!("{plural}/status"), format!("{verb} status of {plural} {subject}")),
        };
        let announced = |shared: &Shared| {
            let done = act(shared, &call);
            shared.announce();
            done
        };
        self.shared.act(verb, &resource, subject, &call, announced).await
    }
}

fn selector<K: FakeObject>(call: &str, selection: &Selection) -> ClusterResult<Selector> {
    Selector::parse(selection, K::URL_PATH_SEGMENT).map_err(|error| invalid(call, error))
}

/// As in the call log: the selector, without spaces at its ends.
fn brief(selection: &Selection) -> String {
    let parts = [&selection.namespace, &selection.fields, &selection.labels];
    parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[async_trait]
impl<K: FakeObject> ListWatch<K> for FakeObjects<K> {
    async fn read_list(
        &self,
        selection: &Selection,
        _version: Option<&str>,
        item: &mut ReadItem<'_, K>,
    ) -> ClusterResult<String> {
        let (plural, subject) = (K::URL_PATH_SEGMENT, brief(selection));
        let call = format!("list {plural}");
        let list = |shared: &Shared| {
            let selector = selector::<K>(&call, selection)?;
            Ok(shared.store.lock().list(&selector))
        };
        let (items, version) = self.shared.act(Verb::List, plural, &subject, &call, list).await?;
        items.into_iter().for_each(item);
        Ok(version)
    }

    async fn watch(&self, selection: &Selection, since: &str) -> ClusterResult<Changes<K>> {
        let (plural, subject) = (K::URL_PATH_SEGMENT, brief(selection));
        let call = format!("watch {plural}");
        let begin = |shared: &Shared| {
            let message = format!("resourceVersion: {since:?} is no version");
            let since: u64 =
                since.parse().map_err(|_| ClusterError::Invalid { call: call.clone(), message })?;
            if shared.store.lock().since(since).is_none() {
                return Err(expired(&call, since));
            }
            let script = shared.script.lock();
            let (ends, breaks, bookmarks) = (script.ends, script.breaks, script.bookmarks);
            drop(script);
            Ok(Watch {
                shared: Arc::clone(&self.shared),
                changes: shared.changes.subscribe(),
                selector: selector::<K>(&call, selection)?,
                call: call.clone(),
                since,
                ends,
                breaks,
                bookmarks,
                kind: PhantomData,
            })
        };
        let watch: Watch<K> = self.shared.act(Verb::Watch, plural, &subject, &call, begin).await?;
        Ok(futures_util::stream::unfold(Some(watch), |watch| async move {
            let mut watch = watch?;
            match watch.next().await? {
                Ok(change) => Some((Ok(change), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed())
    }
}

/// As the port shows Services.
#[async_trait]
impl ListWatch<ServiceObject> for FakeObjects<Service> {
    async fn read_list(
        &self,
        selection: &Selection,
        version: Option<&str>,
        item: &mut ReadItem<'_, ServiceObject>,
    ) -> ClusterResult<String> {
        let mut each = |service: Result<Service, MalformedObject>| item(service.and_then(reduced));
        ListWatch::<Service>::read_list(self, selection, version, &mut each).await
    }

    async fn watch(&self, selection: &Selection, since: &str) -> ClusterResult<Changes<ServiceObject>> {
        let changes = ListWatch::<Service>::watch(self, selection, since).await?;
        Ok(changes.map(|change| change.map(reduced_change)).boxed())
    }
}

fn reduced(service: Service) -> Result<ServiceObject, MalformedObject> {
    decode(&serde_json::to_value(service).unwrap_or_default())
}

fn reduced_change(change: Change<Service>) -> Change<ServiceObject> {
    let is_deleted = matches!(change, Change::Deleted(_));
    let (kind, service): (fn(ServiceObject) -> Change<ServiceObject>, _) = match change {
        Change::Added(service) => (Change::Added, service),
        Change::Modified(service) => (Change::Modified, service),
        Change::Deleted(service) => (Change::Deleted, service),
        Change::Malformed { object, is_deleted } => return Change::Malformed { object, is_deleted },
        Change::Bookmark { resource_version } => return Change::Bookmark { resource_version },
    };
    reduced(service).map_or_else(|object| Change::Malformed { object, is_deleted }, kind)
}

#[async_trait]
impl<K: FakeObject> Collection<K> for FakeObjects<K> {
    async fn get(&self, namespace: &str, name: &str) -> ClusterResult<K> {
        let subject = Self::subject(namespace, name);
        let get = |shared: &Shared, call: &str| shared.store.lock().get(call, namespace, name);
        self.call(Verb::Get, Part::Whole, &subject, get).await
    }

    async fn create(&self, namespace: &str, object: &K) -> ClusterResult<K> {
        let metadata = object.metadata();
        let name = metadata.name.as_deref().or(metadata.generate_name.as_deref()).unwrap_or_default();
        let create = |shared: &Shared, call: &str| {
            let now = shared.clock.now().wall;
            shared.store.lock().create(call, namespace, object, now)
        };
        self.call(Verb::Create, Part::Whole, &Self::subject(namespace, name), create).await
    }

    async fn update(&self, namespace: &str, object: &K) -> ClusterResult<K> {
        let name = object.metadata().name.as_deref().unwrap_or_default();
        let update = |shared: &Shared, call: &str| shared.store.lock().update(call, namespace, object);
        self.call(Verb::Update, Part::Whole, &Self::subject(namespace, name), update).await
    }

    async fn patch(&self, namespace: &str, name: &str, part: Part, patch: &Patch) -> ClusterResult<K> {
        let subject = Self::subject(namespace, name);
        let apply =
            |shared: &Shared, call: &str| shared.store.lock().patch(call, namespace, name, part, patch);
        self.call(Verb::Patch, part, &subject, apply).await
    }

    async fn delete(&self, namespace: &str, name: &str, deletion: &Deletion) -> ClusterResult<()> {
        let subject = Self::subject(namespace, name);
        let delete = |shared: &Shared, call: &str| {
            let now = shared.clock.now().wall;
            shared.store.lock().delete::<K>(call, namespace, name, deletion, now)
        };
        self.call(Verb::Delete, Part::Whole, &subject, delete).await
    }
}

fn expired(call: &str, since: u64) -> ClusterError {
    ClusterError::Expired { call: call.to_owned(), message: format!("too old resource version: {since}") }
}

struct Watch<K> {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    selector: Selector,
    call: String,
    since: u64,
    ends: u64,
    breaks: u64,
    bookmarks: u64,
    kind: PhantomData<fn() -> K>,
}

impl<K: FakeObject> Watch<K> {
    async fn next(&mut self) -> Option<ClusterResult<Change<K>>> {
        loop {
            self.changes.mark_unchanged();
            match self.poll() {
                Polled::Change(change) => return Some(change),
                Polled::End => return None,
                Polled::Nothing => {}
            }
            match tokio::time::timeout(PING, self.changes.changed()).await {
                Ok(changed) => changed.ok()?,
                Err(_) if self.is_silent() => return Some(Err(self.broken("ping timed out"))),
                Err(_) => {}
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.shared.script.lock().outage == Some(Outage::Silent)
    }

    fn broken(&self, message: &str) -> ClusterError {
        ClusterError::Unreachable { call: self.call.clone(), message: message.to_owned() }
    }

    fn poll(&mut self) -> Polled<K> {
        let script = self.shared.script.lock();
        let (outage, ends, breaks, bookmarks) = (script.outage, script.ends, script.breaks, script.bookmarks);
        drop(script);
        if outage == Some(Outage::Silent) {
            return Polled::Nothing;
        }
        if breaks != self.breaks {
            return Polled::Change(Err(self.broken("connection reset by peer")));
        }
        if let Some(change) = self.history() {
            return Polled::Change(change);
        }
        if ends != self.ends {
            return Polled::End;
        }
        if bookmarks != self.bookmarks {
            self.bookmarks = bookmarks;
            let resource_version = self.since.to_string();
            return Polled::Change(Ok(Change::Bookmark { resource_version }));
        }
        Polled::Nothing
    }

    /// The next change of a selected object. Without one, everything so far is known.
    fn history(&mut self) -> Option<ClusterResult<Change<K>>> {
        let shared = Arc::clone(&self.shared);
        let store = shared.store.lock();
        let Some(happened) = store.since(self.since) else {
            return Some(Err(expired(&self.call, self.since)));
        };
        for happened in happened.filter(|happened| happened.plural == K::URL_PATH_SEGMENT) {
            if let Some(change) = self.change(happened) {
                self.since = happened.revision;
                return Some(change);
            }
        }
        self.since = store.revision();
        None
    }

    /// The change as it appears to a client that sees only selected objects.
    fn change(&self, happened: &Happened) -> Option<ClusterResult<Change<K>>> {
        let seen = |value: &Option<Value>| value.clone().filter(|value| self.selector.matches(value));
        let (value, kind): (Value, fn(K) -> Change<K>) = match (seen(&happened.before), seen(&happened.after))
        {
            (None, None) => return None,
            (None, Some(after)) => (after, Change::Added),
            (Some(_), Some(after)) => (after, Change::Modified),
            (Some(mut before), None) => {
                before["metadata"]["resourceVersion"] = happened.revision.to_string().into();
                (before, Change::Deleted)
            }
        };
        let is_deleted = seen(&happened.after).is_none();
        Some(Ok(decode(&value).map_or_else(|object| Change::Malformed { object, is_deleted }, kind)))
    }
}

enum Polled<K> {
    Change(ClusterResult<Change<K>>),
    End,
    Nothing,
}
