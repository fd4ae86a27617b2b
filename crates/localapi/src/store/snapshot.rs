//! The store as one JSON document, including the history, so that a restarted server continues with the same revisions.
//! It is written when the server stops and read when it starts.

use std::sync::Arc;

use serde_json::{Value, json};

use super::history::StoredEvent;
use super::stored::{self, Meter, Stored};
use super::{Change, Key, Limits, Revision, Store};
use crate::{object, resources};

/// A document that is not a valid snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSnapshot {
    #[error("`revision` and `compacted` must be integers")]
    Revision,
    #[error("`objects` and `history` must be arrays")]
    Lists,
    #[error("entry {0} of `objects` must have a known `resource` and an `object` with a name")]
    Object(usize),
    #[error(
        "entry {0} of `history` must have `revision`, `resource`, `object` and, for an update, `previous`"
    )]
    Event(usize),
}

impl Store {
    pub(crate) fn snapshot(&self) -> Value {
        let state = self.state.lock();
        let objects: Vec<Value> = state
            .objects
            .all()
            .map(|(key, object)| json!({"resource": key.resource, "object": *object.tree()}))
            .collect();
        let history: Vec<Value> = state.history.all().map(|event| event_to_value(event)).collect();
        json!({
            "revision": state.revision,
            "compacted": state.history.compacted(),
            "objects": objects,
            "history": history,
        })
    }

    /// Restores a snapshot, with a history of up to `limit` changes.
    pub(crate) fn restore(snapshot: &Value, limit: usize) -> Result<Self, InvalidSnapshot> {
        let number = |field: &str| snapshot[field].as_u64().ok_or(InvalidSnapshot::Revision);
        let list = |field: &str| snapshot[field].as_array().ok_or(InvalidSnapshot::Lists);
        let store = Self::new(limit);
        {
            let mut state = store.state.lock();
            state.history = Limits::of_history(limit).history(number("compacted")?);
            for (index, entry) in list("history")?.iter().enumerate() {
                let event = event_of(entry, &state.meter).ok_or(InvalidSnapshot::Event(index))?;
                state.history.push(Arc::new(event));
            }
            for (index, entry) in list("objects")?.iter().enumerate() {
                let object = &entry["object"];
                let key = key_of(entry, object).ok_or(InvalidSnapshot::Object(index))?;
                let object = version_of(object, &state.meter).ok_or(InvalidSnapshot::Object(index))?;
                state.objects.insert(key, object);
            }
            state.revision = number("revision")?;
        }
        Ok(store)
    }
}

fn key_of(entry: &Value, object: &Value) -> Option<Key> {
    let resource = resources::stored(entry["resource"].as_str()?)?;
    let name = object::name(object);
    (!name.is_empty()).then(|| Key::new(resource.name, object::namespace(object), name))
}

fn version_of(object: &Value, meter: &Meter) -> Option<Arc<Stored>> {
    Some(Stored::of_text(stored::encode(object).ok()?, meter))
}

fn event_to_value(event: &StoredEvent) -> Value {
    json!({
        "revision": event.revision,
        "resource": event.key.resource,
        "deleted": event.change == Change::Deleted,
        "object": *event.object.tree(),
        "previous": event.previous.as_ref().map(|previous| (*previous.tree()).clone()),
    })
}

fn event_of(entry: &Value, meter: &Meter) -> Option<StoredEvent> {
    let revision: Revision = entry["revision"].as_u64()?;
    let previous = Some(&entry["previous"]).filter(|previous| !previous.is_null());
    let change = match (entry["deleted"].as_bool()?, previous) {
        (true, _) => Change::Deleted,
        (false, Some(_)) => Change::Modified,
        (false, None) => Change::Added,
    };
    Some(StoredEvent {
        revision,
        key: key_of(entry, &entry["object"])?,
        change,
        object: version_of(&entry["object"], meter)?,
        previous: match previous {
            Some(previous) => Some(version_of(previous, meter)?),
            None => None,
        },
    })
}
