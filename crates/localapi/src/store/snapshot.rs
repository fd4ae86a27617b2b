//! The store as one JSON document, so that a server that was stopped can go on where it was, its history included.
//! Written when it stops and read when it starts; between, nothing is on disk.

use std::sync::Arc;

use serde_json::{Value, json};

use super::history::History;
use super::{Change, Event, Key, Revision, Store};
use crate::{object, resources};

/// A document that is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSnapshot {
    #[error("it has no whole numbers `revision` and `compacted`")]
    Revision,
    #[error("it has no arrays `objects` and `history`")]
    Lists,
    #[error("entry {0} of `objects` needs a known `resource`, and an `object` with a name")]
    Object(usize),
    #[error("entry {0} of `history` needs `revision`, `resource`, `object` and perhaps `previous`")]
    Event(usize),
}

impl Store {
    pub(crate) fn snapshot(&self) -> Value {
        let state = self.state.lock();
        let objects: Vec<Value> = state
            .objects
            .0
            .iter()
            .map(|(key, object)| json!({"resource": key.resource, "object": **object}))
            .collect();
        let history: Vec<Value> = state.history.all().map(event_to_value).collect();
        json!({
            "revision": state.revision,
            "compacted": state.history.compacted(),
            "objects": objects,
            "history": history,
        })
    }

    /// The store that `snapshot` shows, with room for `limit` changes.
    pub(crate) fn restore(snapshot: &Value, limit: usize) -> Result<Self, BadSnapshot> {
        let number = |field: &str| snapshot[field].as_u64().ok_or(BadSnapshot::Revision);
        let list = |field: &str| snapshot[field].as_array().ok_or(BadSnapshot::Lists);
        let mut history = History::new(limit, number("compacted")?);
        for (index, entry) in list("history")?.iter().enumerate() {
            history.push(event_of(entry).ok_or(BadSnapshot::Event(index))?);
        }
        let store = Self::new(limit);
        {
            let mut state = store.state.lock();
            for (index, entry) in list("objects")?.iter().enumerate() {
                let object = &entry["object"];
                let key = key_of(entry, object).ok_or(BadSnapshot::Object(index))?;
                state.objects.0.insert(key, Arc::new(object.clone()));
            }
            state.revision = number("revision")?;
            state.history = history;
        }
        Ok(store)
    }
}

fn key_of(entry: &Value, object: &Value) -> Option<Key> {
    let resource = resources::stored(entry["resource"].as_str()?)?;
    let name = object::name(object);
    (!name.is_empty()).then(|| Key::new(resource.name, object::namespace(object), name))
}

fn event_to_value(event: &Event) -> Value {
    json!({
        "revision": event.revision,
        "resource": event.key.resource,
        "deleted": event.change == Change::Deleted,
        "object": *event.object,
        "previous": event.previous.as_deref(),
    })
}

fn event_of(entry: &Value) -> Option<Event> {
    let revision: Revision = entry["revision"].as_u64()?;
    let previous = Some(&entry["previous"]).filter(|previous| !previous.is_null());
    let change = match (entry["deleted"].as_bool()?, previous) {
        (true, _) => Change::Deleted,
        (false, Some(_)) => Change::Modified,
        (false, None) => Change::Added,
    };
    Some(Event {
        revision,
        key: key_of(entry, &entry["object"])?,
        change,
        object: Arc::new(entry["object"].clone()),
        previous: previous.cloned().map(Arc::new),
    })
}
