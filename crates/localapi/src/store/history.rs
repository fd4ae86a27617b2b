//! The last changes, so that an interrupted watch can resume. Bounded: the newest change replaces the oldest.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::{Key, Revision, RevisionExpired};
use crate::object;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) revision: Revision,
    pub(crate) key: Key,
    pub(crate) change: Change,
    /// The object after the change; its last state if it was deleted.
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
}

impl Event {
    /// The object gets the revision as its resourceVersion.
    pub(super) fn new(
        revision: Revision,
        key: &Key,
        change: Change,
        mut object: Value,
        previous: Option<Arc<Value>>,
    ) -> Self {
        object::metadata(&mut object)
            .insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        Self { revision, key: key.clone(), change, object: Arc::new(object), previous }
    }
}

/// A ring of events in the order of their revisions.
#[derive(Debug)]
pub(super) struct History {
    limit: usize,
    /// The revision of the last discarded change: the history is complete after it.
    compacted: Revision,
    events: VecDeque<Event>,
}

impl History {
    pub(super) fn new(limit: usize, compacted: Revision) -> Self {
        Self { limit, compacted, events: VecDeque::new() }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push_back(event);
        while self.events.len() > self.limit {
            if let Some(discarded) = self.events.pop_front() {
                self.compacted = discarded.revision;
            }
        }
    }

    /// All changes after `revision`, the oldest first.
    pub(super) fn after(&self, revision: Revision) -> Result<impl Iterator<Item = &Event>, RevisionExpired> {
        self.reaches(revision)?;
        let from = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(from..))
    }

    /// All changes after `revision`, the newest first: undoing each leads back to `revision`.
    pub(super) fn back_to(
        &self,
        revision: Revision,
    ) -> Result<impl Iterator<Item = &Event>, RevisionExpired> {
        self.reaches(revision)?;
        Ok(self.events.iter().rev().take_while(move |event| event.revision > revision))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Discards all changes up to and including `revision`.
    pub(super) fn compact(&mut self, revision: Revision) {
        self.compacted = self.compacted.max(revision);
        self.events.retain(|event| event.revision > revision);
    }

    fn reaches(&self, requested: Revision) -> Result<(), RevisionExpired> {
        if requested >= self.compacted {
            Ok(())
        } else {
            Err(RevisionExpired { requested, oldest: self.compacted })
        }
    }
}
