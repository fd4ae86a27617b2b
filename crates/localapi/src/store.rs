//! The objects, their revision counter, and their watchers, in memory; with [`disk`], each change is on disk before a client sees it.
//!
//! It knows keys, JSON and revisions; no rules of kinds, no selectors, no HTTP.

pub(crate) mod backup;
pub(crate) mod disk;
mod history;
mod objects;
mod queue;
pub(crate) mod seal;
mod snapshot;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::object;
pub(crate) use disk::NotStored;
use disk::{Disk, Saved};
use history::History;
pub(crate) use history::{Change, Event, StoredEvent};
pub(crate) use objects::Objects;
use queue::Sender;
pub(crate) use queue::{Item, Nothing, Receiver};
pub(crate) use stored::Stored;
use stored::{Meter, Recent};

/// The number of the last change, over all objects.
pub(crate) type Revision = u64;

/// The bounds of what the store keeps besides the objects. Bytes are those of JSON texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) history_events: usize,
    pub(crate) history_bytes: usize,
    /// Events that the client of one watcher has not taken; a watcher with more is closed and resumes from the history.
    pub(crate) watcher_events: usize,
    pub(crate) watcher_bytes: usize,
    /// Versions of objects that only watchers still need, all together; of watchers with more, that with the most is closed.
    pub(crate) undelivered_bytes: usize,
}

/// What a change in the history may have on average: most are of Leases, Events and small objects, and count with the version before.
const BYTES_OF_CHANGE: usize = 2 << 10;
const MAX_HISTORY_BYTES: usize = 16 << 20;

impl Limits {
    pub(crate) const fn of_history(history_events: usize) -> Self {
        Self {
            history_events,
            history_bytes: if history_events < MAX_HISTORY_BYTES / BYTES_OF_CHANGE {
                history_events * BYTES_OF_CHANGE
            } else {
                MAX_HISTORY_BYTES
            },
            watcher_events: 1024,
            watcher_bytes: 16 << 20,
            undelivered_bytes: 32 << 20,
        }
    }

    const fn history(&self, compacted: Revision) -> History {
        History::new(self.history_events, self.history_bytes, compacted)
    }
}

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

/// One watch: what exists or was missed, then what changes, until it closes.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) live: Receiver,
    /// How many of the first items are existing objects.
    pub(crate) existing: usize,
    /// The store's revision when the watch began.
    pub(crate) revision: Revision,
}

/// The objects of one kind at one revision, in the order of their keys.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) revision: Revision,
    pub(crate) objects: Vec<(Key, Arc<Stored>)>,
}

/// What a watcher watches.
#[derive(Debug)]
struct Wanted {
    /// `None`: all kinds.
    resource: Option<&'static str>,
    namespace: Option<String>,
}

impl Wanted {
    fn includes(&self, key: &Key) -> bool {
        self.resource.is_none_or(|wanted| wanted == key.resource)
            && self.namespace.as_ref().is_none_or(|wanted| *wanted == key.namespace)
    }
}

#[derive(Debug)]
struct Watcher {
    wanted: Wanted,
    queue: Sender,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    revision: Revision,
    objects: Objects,
    /// Counts the objects, and all older versions of them that the history and watchers hold.
    meter: Meter,
    recent: Recent,
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
        Self::of(None, Saved { revision: 1, ..Saved::default() }, Limits::of_history(history))
    }

    /// The store of a database, which has everything but the history: a watch from before must list again.
    pub(crate) fn on_disk(disk: Disk, saved: Saved, history: usize) -> Self {
        Self::of(Some(disk), saved, Limits::of_history(history))
    }

    fn of(disk: Option<Disk>, saved: Saved, limits: Limits) -> Self {
        let Saved { revision, objects: saved, .. } = saved;
        let (meter, mut objects) = (Meter::default(), Objects::default());
        for (key, object) in saved {
            objects.insert(key, Stored::of_text(object, &meter));
        }
        let history = limits.history(revision);
        let state = State {
            limits,
            revision,
            objects,
            meter,
            recent: Recent::default(),
            history,
            watchers: Vec::new(),
        };
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
        // Decoded without the lock.
        self.stored(key).map(|object| object.tree())
    }

    pub(crate) fn stored(&self, key: &Key) -> Option<Arc<Stored>> {
        self.state.lock().objects.stored(key).cloned()
    }

    /// Everything at this moment, with these texts.
    pub(crate) fn saved(&self, identity: BTreeMap<String, Vec<u8>>) -> Saved {
        let state = self.state.lock();
        let objects =
            state.objects.all().map(|(key, object)| (key.clone(), Arc::clone(object.text()))).collect();
        Saved { revision: state.revision, objects, identity }
    }

    /// Reads several objects at one revision.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Objects) -> T) -> T {
        let mut state = self.state.lock();
        let result = read(&state.objects);
        state.objects.drop_trees();
        result
    }

    pub(crate) fn list(&self, resource: &'static str, namespace: Option<&str>) -> Listing {
        let state = self.state.lock();
        let objects = state.objects.stored_of(resource, namespace);
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
        let mut objects: BTreeMap<Key, Arc<Stored>> = state
            .objects
            .stored_of(resource, namespace)
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
        let (current, decided, revision, meter) = {
            let mut state = self.state.lock();
            let current = state.objects.stored(key).map(|stored| (stored.tree(), Arc::clone(stored)));
            let decided = decide(&state.objects, current.as_ref().map(|(tree, _)| tree));
            state.objects.drop_trees();
            (current, decided?, state.revision + 1, state.meter.clone())
        };
        let (change, mut object) = match decided {
            Write::Keep => {
                return Ok(Written { object: current.map(|(tree, _)| tree), removed: false });
            }
            Write::Put(object) if current.is_some() => (Change::Modified, object),
            Write::Put(object) => (Change::Added, object),
            Write::Remove(object) if current.is_some() => (Change::Deleted, object),
            Write::Remove(_) => return Ok(Written { object: None, removed: false }),
        };
        object::set_resource_version(&mut object, revision);
        let object = Arc::new(object);
        let stored = Stored::of_tree(&object, &meter).map_err(NotStored::new)?;
        let (before, previous) = current.unzip();
        let event = StoredEvent { revision, key: key.clone(), change, object: stored, previous };
        if let Some(disk) = disk.as_mut() {
            disk.store(&event)?;
        }
        let mut state = self.state.lock();
        if let Some((tree, stored)) = before.zip(event.previous.as_ref()) {
            state.recent.keep(tree, stored.bytes());
        }
        state.recent.keep(Arc::clone(&object), event.object.bytes());
        state.apply(event);
        Ok(Written { object: Some(object), removed: change == Change::Deleted })
    }

    pub(crate) fn watch(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
        from: From,
    ) -> Result<Subscription, RevisionExpired> {
        let mut state = self.state.lock();
        let wanted = Wanted { resource: Some(resource), namespace: namespace.map(str::to_owned) };
        let mut items = VecDeque::new();
        let mut existing = 0;
        match from {
            From::Everything => {
                let objects = state.objects.stored_of(resource, namespace);
                items.extend(objects.map(|(_, object)| Item::Existing(Arc::clone(object))));
                existing = items.len();
            }
            From::Now => {}
            From::After(revision) => {
                state.known(revision)?;
                let missed = state.history.after(revision)?.filter(|event| wanted.includes(&event.key));
                items.extend(missed.cloned().map(Item::Event));
            }
        }
        let (queue, live) = queue::queue(items);
        state.watchers.push(Watcher { wanted, queue });
        Ok(Subscription { live, existing, revision: state.revision })
    }

    /// All later changes of all objects.
    pub(crate) fn watch_everything(&self) -> Receiver {
        let (queue, live) = queue::queue(VecDeque::new());
        let wanted = Wanted { resource: None, namespace: None };
        self.state.lock().watchers.push(Watcher { wanted, queue });
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
    fn apply(&mut self, event: StoredEvent) {
        self.revision = event.revision;
        match event.change {
            Change::Added | Change::Modified => {
                self.objects.insert(event.key.clone(), Arc::clone(&event.object));
            }
            Change::Deleted => self.objects.remove(&event.key),
        }
        let event = Arc::new(event);
        let limits = self.limits;
        // A closed or slow watcher is removed.
        self.watchers.retain(|watcher| {
            if watcher.wanted.includes(&event.key) {
                watcher.queue.push(&event, limits.watcher_events, limits.watcher_bytes)
            } else {
                watcher.queue.is_open()
            }
        });
        self.history.push(event);
        self.close_slowest();
    }

    /// Closes the watchers that have taken the least, until what only watchers hold is within its bound.
    fn close_slowest(&mut self) {
        let kept = |state: &Self| state.objects.bytes() + state.history.bytes();
        while self.meter.bytes().saturating_sub(kept(self)) > self.limits.undelivered_bytes {
            let slowest = self.watchers.iter().enumerate().max_by_key(|(_, watcher)| watcher.queue.bytes());
            // Without a queue the memory belongs to responses, which end by themselves.
            let Some((index, _)) = slowest.filter(|(_, watcher)| watcher.queue.bytes() > 0) else { return };
            tracing::info!("closed a watch whose client is too slow; it resumes from the history");
            self.watchers.swap_remove(index);
        }
    }
}
