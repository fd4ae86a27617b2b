//! The last changes, so that an interrupted watch can resume. Bounded in number and bytes: the newest change replaces the oldest.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::stored::Stored;
use super::{Key, Revision, RevisionExpired};

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
    pub(crate) key: Key,
    pub(crate) change: Change,
    /// The object after the change; its last state if it was deleted.
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
}

/// A change as it is kept: in the history, and in the queues of watchers.
#[derive(Clone, Debug)]
pub(crate) struct StoredEvent {
    pub(crate) revision: Revision,
    pub(crate) key: Key,
    pub(crate) change: Change,
    /// The object after the change; its last state if it was deleted.
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
}

impl StoredEvent {
    pub(crate) fn event(&self) -> Event {
        Event {
            key: self.key.clone(),
            change: self.change,
            object: self.object.tree(),
            previous: self.previous.as_ref().map(|previous| previous.tree()),
        }
    }

    /// What it keeps in memory at most: each version may be that of another event or a present one, too.
    fn bytes(&self) -> usize {
        self.object.bytes() + self.previous.as_ref().map_or(0, |previous| previous.bytes())
    }
}

/// A ring of events in the order of their revisions.
#[derive(Debug)]
pub(super) struct History {
    max_events: usize,
    max_bytes: usize,
    /// The revision of the last discarded change: the history is complete after it.
    compacted: Revision,
    events: VecDeque<Arc<StoredEvent>>,
    bytes: usize,
}

impl History {
    pub(super) const fn new(max_events: usize, max_bytes: usize, compacted: Revision) -> Self {
        Self { max_events, max_bytes, compacted, events: VecDeque::new(), bytes: 0 }
    }

    /// The last change stays, whatever its size.
    pub(super) fn push(&mut self, event: Arc<StoredEvent>) {
        self.bytes += event.bytes();
        self.events.push_back(event);
        while self.events.len() > self.max_events || (self.bytes > self.max_bytes && self.events.len() > 1) {
            let Some(discarded) = self.events.pop_front() else { return };
            self.discard(&discarded);
        }
    }

    fn discard(&mut self, event: &StoredEvent) {
        self.bytes -= event.bytes();
        self.compacted = self.compacted.max(event.revision);
    }

    /// What the history keeps in memory at most.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// All changes after `revision`, the oldest first.
    pub(super) fn after(
        &self,
        revision: Revision,
    ) -> Result<impl Iterator<Item = &Arc<StoredEvent>>, RevisionExpired> {
        self.reaches(revision)?;
        let from = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(from..))
    }

    /// All changes after `revision`, the newest first: undoing each leads back to `revision`.
    pub(super) fn back_to(
        &self,
        revision: Revision,
    ) -> Result<impl Iterator<Item = &Arc<StoredEvent>>, RevisionExpired> {
        self.reaches(revision)?;
        Ok(self.events.iter().rev().take_while(move |event| event.revision > revision))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<StoredEvent>> {
        self.events.iter()
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Discards all changes up to and including `revision`.
    pub(super) fn compact(&mut self, revision: Revision) {
        while let Some(event) = self.events.pop_front_if(|event| event.revision <= revision) {
            self.discard(&event);
        }
        self.compacted = self.compacted.max(revision);
    }

    fn reaches(&self, requested: Revision) -> Result<(), RevisionExpired> {
        if requested >= self.compacted {
            Ok(())
        } else {
            Err(RevisionExpired { requested, oldest: self.compacted })
        }
    }
}
