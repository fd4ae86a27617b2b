//! The queue of one watcher: what its client has not taken yet. It is bounded in number and bytes; one that is full is closed, and the client
//! resumes from the history.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::history::StoredEvent;
use super::stored::Stored;

/// What a watcher receives.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// An object that existed when the watch began.
    Existing(Arc<Stored>),
    Event(Arc<StoredEvent>),
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Existing(object) => object.bytes(),
            Self::Event(event) => event.object.bytes(),
        }
    }
}

/// Why a receiver has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// Nothing yet.
    Empty,
    /// Nothing more: changes may be missing.
    Closed,
}

#[derive(Debug)]
struct State {
    items: VecDeque<Item>,
    /// The bytes of all items.
    bytes: usize,
    /// Items with which the watch began. They are no sign of a slow client.
    first: usize,
    /// The bytes of all other items.
    new_bytes: usize,
    is_open: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Notify,
}

/// The end of the store.
#[derive(Debug)]
pub(super) struct Sender(Arc<Shared>);

/// The end of the watcher.
#[derive(Debug)]
pub(crate) struct Receiver(Arc<Shared>);

/// A queue that begins with these items, however many they are.
pub(super) fn queue(items: VecDeque<Item>) -> (Sender, Receiver) {
    let bytes = items.iter().map(Item::bytes).sum();
    let state = State { bytes, first: items.len(), new_bytes: 0, items, is_open: true };
    let shared = Arc::new(Shared { state: Mutex::new(state), wake: Notify::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl Sender {
    /// Adds an event; closes the queue instead if that has more than `max_events` or `max_bytes` then. Returns whether it is open.
    pub(super) fn push(&self, event: &Arc<StoredEvent>, max_events: usize, max_bytes: usize) -> bool {
        let mut state = self.0.state.lock();
        let bytes = event.object.bytes();
        let is_full = state.items.len() - state.first >= max_events
            || state.new_bytes.saturating_add(bytes) > max_bytes;
        if is_full {
            drop(state);
            self.close();
            return false;
        }
        if state.is_open {
            state.items.push_back(Item::Event(Arc::clone(event)));
            state.bytes += bytes;
            state.new_bytes += bytes;
        }
        let is_open = state.is_open;
        drop(state);
        self.0.wake.notify_one();
        is_open
    }

    /// The bytes of what the client has not taken.
    pub(super) fn bytes(&self) -> usize {
        self.0.state.lock().bytes
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.state.lock().is_open
    }

    /// Ends the watch, and discards what is queued: the client resumes after what it has taken.
    pub(super) fn close(&self) {
        self.0.close();
    }
}

impl Shared {
    fn close(&self) {
        let mut state = self.state.lock();
        state.is_open = false;
        let discarded = std::mem::take(&mut state.items);
        (state.bytes, state.first, state.new_bytes) = (0, 0, 0);
        drop(state);
        drop(discarded);
        self.wake.notify_one();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Receiver {
    pub(crate) fn try_recv(&mut self) -> Result<Item, Nothing> {
        let mut state = self.0.state.lock();
        let Some(item) = state.items.pop_front() else {
            return Err(if state.is_open { Nothing::Empty } else { Nothing::Closed });
        };
        state.bytes -= item.bytes();
        if state.first > 0 {
            state.first -= 1;
        } else {
            state.new_bytes -= item.bytes();
        }
        Ok(item)
    }

    /// The next item; `None` once the queue is closed.
    pub(crate) async fn recv(&mut self) -> Option<Item> {
        loop {
            match self.try_recv() {
                Ok(item) => return Some(item),
                Err(Nothing::Closed) => return None,
                // A push since then has left its mark.
                Err(Nothing::Empty) => self.0.wake.notified().await,
            }
        }
    }

    /// The next event. Existing objects are left out.
    pub(crate) async fn event(&mut self) -> Option<Arc<StoredEvent>> {
        loop {
            if let Item::Event(event) = self.recv().await? {
                return Some(event);
            }
        }
    }

    pub(crate) fn try_event(&mut self) -> Option<Arc<StoredEvent>> {
        loop {
            if let Item::Event(event) = self.try_recv().ok()? {
                return Some(event);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        !self.0.state.lock().is_open
    }
}
