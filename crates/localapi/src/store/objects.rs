//! All objects by key, and which of them name an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use super::Key;
use super::stored::Stored;
use crate::object;

/// All objects. Writers read other objects through it, under the same lock.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    by_key: BTreeMap<Key, Arc<Stored>>,
    /// The objects that name an owner, by the UID of the owner.
    by_owner: BTreeMap<String, BTreeSet<Key>>,
    bytes: usize,
}

impl Objects {
    pub(super) fn insert(&mut self, key: Key, object: Arc<Stored>) {
        self.remove(&key);
        for owner in object::owner_uids(object.tree()) {
            self.by_owner.entry(owner.to_owned()).or_default().insert(key.clone());
        }
        self.bytes += object.bytes();
        self.by_key.insert(key, object);
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let Some(object) = self.by_key.remove(key) else { return };
        self.bytes -= object.bytes();
        for owner in object::owner_uids(object.tree()) {
            let Some(owned) = self.by_owner.get_mut(owner) else { continue };
            owned.remove(key);
            if owned.is_empty() {
                self.by_owner.remove(owner);
            }
        }
    }

    /// The size of all objects.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        self.by_key.iter()
    }

    pub(super) fn stored(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.by_key.get(key)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.by_key.get(key).map(|object| object.tree())
    }

    /// The objects of a kind, of all namespaces or of one, in the order of their keys.
    pub(crate) fn of(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.stored_of(resource, namespace).map(|(key, object)| (key, object.tree()))
    }

    pub(super) fn stored_of(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        let from = Key::new(resource, namespace.unwrap_or_default(), "");
        let namespace = namespace.map(str::to_owned);
        self.by_key.range((Bound::Included(from), Bound::Unbounded)).take_while(move |(key, _)| {
            key.resource == resource && namespace.as_ref().is_none_or(|wanted| *wanted == key.namespace)
        })
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
            .filter(|(key, object)| select(key, object.tree()))
            .map(|(key, _)| key.clone())
            .collect()
    }
}
