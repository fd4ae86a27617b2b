//! All objects by key, and which of them name an owner.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use super::Key;
use super::stored::Stored;
use crate::object;

/// The UIDs of the owners of an object.
fn owners(object: &Stored) -> Vec<String> {
    // Few have any, and none without this word.
    if !object.mentions("ownerReferences") {
        return Vec::new();
    }
    object::owner_uids(&object.tree()).map(str::to_owned).collect()
}

/// One object. Its tree is there from the first look at it in a transaction until that ends.
#[derive(Debug)]
struct Entry {
    stored: Arc<Stored>,
    tree: OnceCell<Arc<Value>>,
}

/// All objects. Writers read other objects through it, under the same lock.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    by_key: BTreeMap<Key, Entry>,
    /// The objects that name an owner, by the UID of the owner.
    by_owner: BTreeMap<String, BTreeSet<Key>>,
    bytes: usize,
    /// The entries with a tree.
    decoded: RefCell<Vec<Key>>,
}

impl Objects {
    pub(super) fn insert(&mut self, key: Key, stored: Arc<Stored>) {
        self.remove(&key);
        for owner in owners(&stored) {
            self.by_owner.entry(owner).or_default().insert(key.clone());
        }
        self.bytes += stored.bytes();
        self.by_key.insert(key, Entry { stored, tree: OnceCell::new() });
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let Some(Entry { stored, .. }) = self.by_key.remove(key) else { return };
        self.bytes -= stored.bytes();
        for owner in owners(&stored) {
            let Some(owned) = self.by_owner.get_mut(&owner) else { continue };
            owned.remove(key);
            if owned.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    /// The size of all objects.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends a transaction: drops the trees that it has looked at.
    pub(super) fn drop_trees(&mut self) {
        for key in self.decoded.take() {
            if let Some(entry) = self.by_key.get_mut(&key) {
                entry.tree.take();
            }
        }
    }

    fn tree<'a>(&'a self, key: &Key, entry: &'a Entry) -> &'a Arc<Value> {
        entry.tree.get_or_init(|| {
            self.decoded.borrow_mut().push(key.clone());
            entry.stored.tree()
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        self.by_key.iter().map(|(key, entry)| (key, &entry.stored))
    }

    pub(super) fn stored(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.by_key.get(key).map(|entry| &entry.stored)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.by_key.get(key).map(|entry| self.tree(key, entry))
    }

    /// The objects of a kind, of all namespaces or of one, in the order of their keys.
    pub(crate) fn of(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.entries_of(resource, namespace).map(|(key, entry)| (key, self.tree(key, entry)))
    }

    pub(super) fn stored_of(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        self.entries_of(resource, namespace).map(|(key, entry)| (key, &entry.stored))
    }

    fn entries_of(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&Key, &Entry)> {
        let from = Key::new(resource, namespace.unwrap_or_default(), "");
        let namespace = namespace.map(str::to_owned);
        self.by_key.range((Bound::Included(from), Bound::Unbounded)).take_while(move |(key, _)| {
            key.resource == resource && namespace.as_ref().is_none_or(|wanted| *wanted == key.namespace)
        })
    }

    /// What `map` makes of each object of a kind. Its trees are dropped one after the other, so that a look at many takes little memory.
    pub(crate) fn map_of<T>(&self, resource: &'static str, map: impl Fn(&Key, &Value) -> T) -> Vec<T> {
        self.stored_of(resource, None).map(|(key, object)| map(key, &object.tree())).collect()
    }

    /// Whether a namespace contains any object.
    pub(crate) fn any_in(&self, namespace: &str) -> bool {
        self.by_key.keys().any(|key| key.namespace == namespace)
    }

    pub(crate) fn keys_in(&self, namespace: &str) -> Vec<Key> {
        self.by_key.keys().filter(|key| key.namespace == namespace).cloned().collect()
    }

    /// The objects that name this UID as an owner.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.by_owner.get(uid).into_iter().flatten()
    }

    /// The keys of all objects for which `select` is true.
    pub(crate) fn select(&self, select: impl Fn(&Key, &Value) -> bool) -> Vec<Key> {
        self.by_key
            .iter()
            .filter(|(key, entry)| select(key, &entry.stored.tree()))
            .map(|(key, _)| key.clone())
            .collect()
    }
}
