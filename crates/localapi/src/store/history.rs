//! The last changes, so that a watch can go on where it was cut off. Bounded: the oldest change makes room for the newest.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::{Key, OutOfHistory, Revision};

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

/// A ring of events in the order of their revisions.
#[derive(Debug)]
pub(super) struct History {
    limit: usize,
    /// The revision of the last change that is forgotten: nothing after it is missing.
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
            if let Some(forgotten) = self.events.pop_front() {
                self.compacted = forgotten.revision;
            }
        }
    }

    /// What changed after `revision`, the oldest first.
    pub(super) fn after(&self, revision: Revision) -> Result<impl Iterator<Item = &Event>, OutOfHistory> {
        self.reaches(revision)?;
        let from = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(from..))
    }

    /// What changed after `revision`, the newest first: undone one by one it leads back there.
    pub(super) fn back_to(&self, revision: Revision) -> Result<impl Iterator<Item = &Event>, OutOfHistory> {
        self.reaches(revision)?;
        Ok(self.events.iter().rev().take_while(move |event| event.revision > revision))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Forgets everything up to and with `revision`.
    pub(super) fn compact(&mut self, revision: Revision) {
        self.compacted = self.compacted.max(revision);
        self.events.retain(|event| event.revision > revision);
    }

    fn reaches(&self, asked: Revision) -> Result<(), OutOfHistory> {
        if asked >= self.compacted { Ok(()) } else { Err(OutOfHistory { asked, oldest: self.compacted }) }
    }
}
