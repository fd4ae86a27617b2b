//! The objects, their revision counter, and their watchers, in memory; with [`disk`], each change is on disk before a client sees it.
//!
//! It knows keys, JSON trees and revisions; no rules of kinds, no selectors, no HTTP.

pub(crate) mod backup;
pub(crate) mod disk;
mod history;
mod objects;
pub(crate) mod seal;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

pub(crate) use disk::NotStored;
use disk::{Disk, Saved};
use history::History;
pub(crate) use history::{Change, Event};
pub(crate) use objects::Objects;

/// The number of the last change, over all objects.
pub(crate) type Revision = u64;

/// Undelivered events of a watcher; a watcher with more is closed and resumes from the history.
const WATCH_QUEUE: usize = 1024;

/// The key of an object. `resource` is the plural; `namespace` is empty for cluster-wide kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) resource: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(resource: &'static str, namespace: &str, name: &str) -> Self {
        Self { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// What a writer decided about one object.
#[derive(Debug)]
pub(crate) enum Write {
    /// Store this tree; the store stamps its resourceVersion.
    Put(Value),
    /// Remove the object; watchers see this tree as its last state.
    Remove(Value),
    /// Leave the object unchanged.
    Keep,
}

/// The result of a write: the stored object, or the last state of a removed one.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) object: Option<Arc<Value>>,
    pub(crate) removed: bool,
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// All existing objects, then all changes.
    Everything,
    /// Only later changes.
    Now,
    /// All changes after this revision.
    After(Revision),
}

/// The history does not contain the changes after `requested`; `oldest` is its first revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {requested} is not in the history, which begins at {oldest}")]
pub(crate) struct RevisionExpired {
    pub(crate) requested: Revision,
    pub(crate) oldest: Revision,
}

/// One watch: first `backlog`, then `live` until it closes.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) initial: Vec<Arc<Value>>,
    pub(crate) backlog: Vec<Event>,
    pub(crate) live: mpsc::Receiver<Event>,
    /// The store's revision when the watch began.
    pub(crate) revision: Revision,
}

/// The objects of one kind at one revision, in the order of their keys.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) revision: Revision,
    pub(crate) objects: Vec<(Key, Arc<Value>)>,
}

#[derive(Debug)]
struct Watcher {
    /// `None`: all kinds.
    resource: Option<&'static str>,
    namespace: Option<String>,
    queue: mpsc::Sender<Event>,
}

impl Watcher {
    fn wants(&self, key: &Key) -> bool {
        self.resource.is_none_or(|wanted| wanted == key.resource)
            && self.namespace.as_ref().is_none_or(|wanted| *wanted == key.namespace)
    }
}

#[derive(Debug)]
struct State {
    revision: Revision,
    objects: Objects,
    history: History,
    watchers: Vec<Watcher>,
}

/// The store. Cheap calls under one lock, which is never held across an await, nor while the disk writes: readers do not wait for it.
#[derive(Debug)]
pub(crate) struct Store {
    /// Held from the decision about a change until the change is seen, so that no other one comes between. `None` in memory only.
    writer: Mutex<Option<Disk>>,
    state: Mutex<State>,
}

impl Store {
    /// An empty store that remembers up to `history` changes.
    pub(crate) fn new(history: usize) -> Self {
        Self::of(None, 1, Objects::default(), history)
    }

    /// The store of a database, which has everything but the history: a watch from before must list again.
    pub(crate) fn on_disk(disk: Disk, saved: Saved, history: usize) -> Self {
        Self::of(Some(disk), saved.revision, Objects::of_map(saved.objects), history)
    }

    fn of(disk: Option<Disk>, revision: Revision, objects: Objects, history: usize) -> Self {
        let history = History::new(history, revision);
        let state = State { revision, objects, history, watchers: Vec::new() };
        Self { writer: Mutex::new(disk), state: Mutex::new(state) }
    }

    /// Whether the last change could be stored. During a change this is not known, and true.
    pub(crate) fn takes_changes(&self) -> bool {
        let writer = self.writer.try_lock();
        writer.is_none_or(|writer| writer.as_ref().is_none_or(Disk::is_open))
    }

    pub(crate) fn revision(&self) -> Revision {
        self.state.lock().revision
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.state.lock().objects.get(key).cloned()
    }

    /// Everything at this moment, with these texts.
    pub(crate) fn saved(&self, identity: BTreeMap<String, Vec<u8>>) -> Saved {
        let state = self.state.lock();
        let objects = state.objects.all().map(|(key, object)| (key.clone(), Arc::clone(object))).collect();
        Saved { revision: state.revision, objects, identity }
    }

    /// Reads several objects at one revision.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Objects) -> T) -> T {
        read(&self.state.lock().objects)
    }

    pub(crate) fn list(&self, resource: &'static str, namespace: Option<&str>) -> Listing {
        let state = self.state.lock();
        let objects = state.objects.of(resource, namespace);
        Listing {
            revision: state.revision,
            objects: objects.map(|(key, object)| (key.clone(), Arc::clone(object))).collect(),
        }
    }

    /// The listing at an earlier `revision`: undoes all later changes of the history.
    pub(crate) fn list_at(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
        revision: Revision,
    ) -> Result<Listing, RevisionExpired> {
        let state = self.state.lock();
        let mut objects: BTreeMap<Key, Arc<Value>> = state
            .objects
            .of(resource, namespace)
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        for event in state.history.back_to(revision)? {
            let is_listed = event.key.resource == resource
                && namespace.is_none_or(|wanted| wanted == event.key.namespace);
            if !is_listed {
                continue;
            }
            match &event.previous {
                Some(previous) => drop(objects.insert(event.key.clone(), Arc::clone(previous))),
                None => drop(objects.remove(&event.key)),
            }
        }
        Ok(Listing { revision, objects: objects.into_iter().collect() })
    }

    /// Calls `decide` with the object and all other objects, and executes the returned write, in one transaction. It is stored when this
    /// returns; what cannot be stored has not happened.
    pub(crate) fn write<E: std::convert::From<NotStored>>(
        &self,
        key: &Key,
        decide: impl FnOnce(&Objects, Option<&Arc<Value>>) -> Result<Write, E>,
    ) -> Result<Written, E> {
        let mut disk = self.writer.lock();
        let (current, decided, revision) = {
            let state = self.state.lock();
            let current = state.objects.get(key).cloned();
            let decided = decide(&state.objects, current.as_ref())?;
            (current, decided, state.revision + 1)
        };
        let (change, object) = match decided {
            Write::Keep => return Ok(Written { object: current, removed: false }),
            Write::Put(object) if current.is_some() => (Change::Modified, object),
            Write::Put(object) => (Change::Added, object),
            Write::Remove(object) if current.is_some() => (Change::Deleted, object),
            Write::Remove(_) => return Ok(Written { object: None, removed: false }),
        };
        let event = Event::new(revision, key, change, object, current);
        if let Some(disk) = disk.as_mut() {
            disk.store(&event)?;
        }
        let object = Arc::clone(&event.object);
        self.state.lock().apply(event);
        Ok(Written { object: Some(object), removed: change == Change::Deleted })
    }

    pub(crate) fn watch(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
        from: From,
    ) -> Result<Subscription, RevisionExpired> {
        let mut state = self.state.lock();
        let (queue, live) = mpsc::channel(WATCH_QUEUE);
        let watcher = Watcher { resource: Some(resource), namespace: namespace.map(str::to_owned), queue };
        let (mut initial, mut backlog) = (Vec::new(), Vec::new());
        match from {
            From::Everything => {
                initial =
                    state.objects.of(resource, namespace).map(|(_, object)| Arc::clone(object)).collect();
            }
            From::Now => {}
            From::After(revision) => {
                state.known(revision)?;
                let missed = state.history.after(revision)?;
                backlog = missed.filter(|event| watcher.wants(&event.key)).cloned().collect();
            }
        }
        state.watchers.push(watcher);
        Ok(Subscription { initial, backlog, live, revision: state.revision })
    }

    /// All later changes of all objects.
    pub(crate) fn watch_everything(&self) -> mpsc::Receiver<Event> {
        let (queue, live) = mpsc::channel(WATCH_QUEUE);
        self.state.lock().watchers.push(Watcher { resource: None, namespace: None, queue });
        live
    }

    /// Discards the history: open watches continue, older revisions are expired.
    pub(crate) fn compact(&self) {
        let mut state = self.state.lock();
        let revision = state.revision;
        state.history.compact(revision);
    }

    /// Ends every watch.
    pub(crate) fn end_watches(&self) {
        self.state.lock().watchers.clear();
    }
}

impl State {
    /// A revision above the current one belongs to a previous state of this server: the client must list again.
    fn known(&self, requested: Revision) -> Result<(), RevisionExpired> {
        if requested <= self.revision {
            Ok(())
        } else {
            Err(RevisionExpired { requested, oldest: self.revision })
        }
    }

    /// Makes the change visible to readers and watchers.
    fn apply(&mut self, event: Event) {
        self.revision = event.revision;
        match event.change {
            Change::Added | Change::Modified => {
                self.objects.insert(event.key.clone(), Arc::clone(&event.object));
            }
            Change::Deleted => self.objects.remove(&event.key),
        }
        // A closed or slow watcher is removed; its stream ends after the events that are queued already.
        self.watchers.retain(|watcher| {
            if watcher.wants(&event.key) {
                watcher.queue.try_send(event.clone()).is_ok()
            } else {
                !watcher.queue.is_closed()
            }
        });
        self.history.push(event);
    }
}
