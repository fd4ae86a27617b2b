//! The garbage collector: deletes the objects whose owners are gone, and ends the deletion of owners that wait for their dependents or leave
//! them behind. The rules are pure functions over one object and all others.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::Value;

use super::Controller;
use crate::api::Api;
use crate::object::{self, items, text};
use crate::registry::deletion::{self, Decision, DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use crate::registry::namespaces;
use crate::resources::{self, RESOURCES};
use crate::store::{Change, Event, Key, NotStored, Objects, Write};

pub(super) struct Garbage;

/// What is to be done with one object.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Decide(Decision),
    /// Examine these objects; their changes lead back to this one.
    Visit(Vec<Key>),
}

/// The owner that a reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// It exists, or nothing is known of its kind.
    Present,
    Absent,
    /// It is being deleted and leaves its dependents behind.
    Orphaning,
    /// It is being deleted and waits until its dependents are gone.
    Waiting,
}

/// Where the owner of a reference in this namespace is stored; `None` if its kind is not served, or has no place for such a reference.
fn key_of(reference: &Value, namespace: &str) -> Option<Key> {
    let version = text(reference, "/apiVersion");
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let kind = text(reference, "/kind");
    let served = |resource: &&resources::Resource| resource.advice.is_none() && !resource.review;
    let resource =
        RESOURCES.iter().filter(served).find(|known| known.group == group && known.kind == kind)?;
    // An object of the whole cluster cannot have an owner in a namespace.
    if resource.namespaced && namespace.is_empty() {
        return None;
    }
    let namespace = if resource.namespaced { namespace } else { "" };
    Some(Key::new(resource.name, namespace, text(reference, "/name")))
}

fn owner(reference: &Value, namespace: &str, objects: &Objects) -> Owner {
    let Some(key) = key_of(reference, namespace) else { return Owner::Present };
    let found = objects.get(&key).filter(|found| object::uid(found) == text(reference, "/uid"));
    match found {
        None => Owner::Absent,
        Some(found) if !object::is_terminating(found) => Owner::Present,
        Some(found) if has_finalizer(found, ORPHAN) => Owner::Orphaning,
        Some(found) if has_finalizer(found, FOREGROUND) => Owner::Waiting,
        Some(_) => Owner::Present,
    }
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    object::finalizers(object).iter().any(|finalizer| finalizer == name)
}

fn step(key: &Key, current: &Value, objects: &Objects, now: Timestamp) -> Step {
    let references = items(current, "/metadata/ownerReferences");
    let owners: Vec<Owner> =
        references.iter().map(|reference| owner(reference, &key.namespace, objects)).collect();
    if owners.contains(&Owner::Orphaning) {
        return keep_owners(current, &owners, |owner| owner != Owner::Orphaning);
    }
    if object::is_terminating(current) {
        return finish(current, objects);
    }
    if owners.is_empty() || owners.iter().all(|owner| *owner == Owner::Present) {
        return Step::Nothing;
    }
    if owners.contains(&Owner::Present) {
        return keep_owners(current, &owners, |owner| owner == Owner::Present);
    }
    let Some(resource) = resources::stored(key.resource) else { return Step::Nothing };
    let mut dependents = objects.owned_by(object::uid(current)).peekable();
    let waits = owners.contains(&Owner::Waiting) && dependents.peek().is_some();
    let propagation = waits.then_some(Propagation::Foreground);
    let options = DeleteOptions { propagation, ..DeleteOptions::default() };
    let waits_for = |key: &Key| {
        objects.get(key).is_some_and(|dependent| {
            object::is_terminating(dependent) && has_finalizer(dependent, FOREGROUND)
        })
    };
    // Owners in a circle would wait for each other.
    let current = match waits && dependents.any(waits_for) {
        true => unblocking(current),
        false => current.clone(),
    };
    Step::Decide(deletion::decide(resource, &current, &options, now))
}

/// The object without the wish that an owner waits for it.
fn unblocking(current: &Value) -> Value {
    let mut object = current.clone();
    let references = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    for reference in references.map(Vec::as_mut_slice).unwrap_or_default() {
        reference["blockOwnerDeletion"] = Value::Bool(false);
    }
    object
}

/// Removes the other references.
fn keep_owners(current: &Value, owners: &[Owner], keep: impl Fn(Owner) -> bool) -> Step {
    let references = items(current, "/metadata/ownerReferences").iter().zip(owners);
    let kept = references.filter(|(_, owner)| keep(**owner)).map(|(reference, _)| reference.clone());
    let mut object = current.clone();
    object::set_list(object::metadata(&mut object), "ownerReferences", kept.collect());
    Step::Decide(Decision::Mark(object))
}

/// The next step of an object that is being deleted.
fn finish(current: &Value, objects: &Objects) -> Step {
    let uid = object::uid(current);
    let blocks = |key: &&Key| {
        let Some(dependent) = objects.get(key) else { return false };
        let blocks = |owner: &Value| text(owner, "/uid") == uid && owner["blockOwnerDeletion"] == true;
        items(dependent, "/metadata/ownerReferences").iter().any(blocks)
    };
    let (finalizer, dependents): (_, Vec<Key>) = if has_finalizer(current, ORPHAN) {
        (ORPHAN, objects.owned_by(uid).cloned().collect())
    } else if has_finalizer(current, FOREGROUND) {
        (FOREGROUND, objects.owned_by(uid).filter(blocks).cloned().collect())
    } else {
        return Step::Nothing;
    };
    if !dependents.is_empty() {
        return Step::Visit(dependents);
    }
    let mut finalizers = object::finalizers(current).to_vec();
    finalizers.retain(|held| held != finalizer);
    Step::Decide(deletion::with_finalizers(current, finalizers))
}

impl Controller for Garbage {
    const NAME: &'static str = "garbage";

    fn concerns(_: &Key, object: &Value) -> bool {
        !items(object, "/metadata/ownerReferences").is_empty()
            || (object::is_terminating(object)
                && (has_finalizer(object, ORPHAN) || has_finalizer(object, FOREGROUND)))
    }

    fn affected(event: &Event, objects: &Objects) -> Vec<Key> {
        const FIELDS: [&str; 3] =
            ["/metadata/ownerReferences", "/metadata/finalizers", "/metadata/deletionTimestamp"];
        let previous = event.previous.as_deref();
        let is_removed = event.change == Change::Deleted;
        let same = |previous: &Value| {
            FIELDS.iter().all(|field| previous.pointer(field) == event.object.pointer(field))
        };
        if !is_removed && previous.is_some_and(same) {
            return Vec::new();
        }
        let mut keys = Vec::new();
        if is_removed {
            keys.extend(objects.owned_by(object::uid(&event.object)).cloned());
        } else if Self::concerns(&event.key, &event.object) {
            keys.push(event.key.clone());
        }
        // An owner may wait for this.
        for object in [Some(&*event.object), previous].into_iter().flatten() {
            let references = items(object, "/metadata/ownerReferences").iter();
            keys.extend(references.filter_map(|reference| key_of(reference, &event.key.namespace)));
        }
        keys
    }

    fn execute(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
        let mut next = Vec::new();
        let now = api.now();
        let written = api.store.write(key, |objects, current| {
            let Some(current) = current else { return Ok(Write::Keep) };
            Ok::<_, NotStored>(match step(key, current, objects, now) {
                Step::Decide(Decision::Remove(last)) => Write::Remove(last),
                Step::Decide(Decision::Mark(marked)) => Write::Put(marked),
                Step::Decide(Decision::Leave) | Step::Nothing => Write::Keep,
                Step::Visit(keys) => {
                    next = keys;
                    Write::Keep
                }
            })
        })?;
        if written.removed {
            namespaces::after_removal(api, key);
        }
        Ok(next)
    }
}
