//! One version of an object as its JSON text, and the bytes of all versions that are still in memory. A tree of the same object takes about
//! ten times as much, so that trees are made when they are needed; those of the last changes are kept, because their followers need them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::Value;

use crate::json;

/// The JSON text of an object.
pub(crate) type Text = Arc<[u8]>;

/// A tree that has no text, or one that could not be read again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncodeError {
    #[error("the object has more than {} levels", json::MAX_DEPTH)]
    TooDeep,
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The bytes of all versions of objects in memory, whoever holds them: the store, its history, or the queue of a watcher.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter(Arc<AtomicUsize>);

impl Meter {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One version of an object.
#[derive(Debug)]
pub(crate) struct Stored {
    text: Text,
    /// Its tree, as long as a transaction, a watcher or [`Recent`] has it.
    tree: Mutex<Weak<Value>>,
    meter: Meter,
}

impl Stored {
    /// Of a text that can be decoded.
    pub(super) fn of_text(text: Text, meter: &Meter) -> Arc<Self> {
        meter.0.fetch_add(text.len(), Ordering::Relaxed);
        Arc::new(Self { text, tree: Mutex::default(), meter: meter.clone() })
    }

    pub(super) fn of_tree(tree: &Arc<Value>, meter: &Meter) -> Result<Arc<Self>, EncodeError> {
        let stored = Self::of_text(encode(tree)?, meter);
        *stored.tree.lock() = Arc::downgrade(tree);
        Ok(stored)
    }

    pub(crate) fn text(&self) -> &Text {
        &self.text
    }

    pub(crate) fn tree(&self) -> Arc<Value> {
        let mut known = self.tree.lock();
        if let Some(tree) = known.upgrade() {
            return tree;
        }
        let tree = Arc::new(decode(&self.text));
        *known = Arc::downgrade(&tree);
        tree
    }

    /// Whether these bytes are in the text: a test that needs no tree.
    pub(super) fn mentions(&self, word: &str) -> bool {
        std::str::from_utf8(&self.text).is_ok_and(|text| text.contains(word))
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.meter.0.fetch_sub(self.text.len(), Ordering::Relaxed);
    }
}

/// The text of a tree, which can be decoded again: it has no more levels than a decoder takes.
pub(crate) fn encode(tree: &Value) -> Result<Text, EncodeError> {
    if !json::is_shallow(tree) {
        return Err(EncodeError::TooDeep);
    }
    Ok(Text::from(serde_json::to_vec(tree)?))
}

/// The tree of a text of this store.
pub(crate) fn decode(text: &[u8]) -> Value {
    json::decode(text).unwrap_or_else(|error| {
        tracing::error!(err = %error, "an object in memory is no JSON");
        Value::Null
    })
}

/// The bytes of the texts of trees that are kept.
const RECENT_BYTES: usize = 16 << 10;

/// Keeps the trees of the last changes, for the controllers and selectors that look at each.
#[derive(Debug, Default)]
pub(super) struct Recent {
    trees: VecDeque<(Arc<Value>, usize)>,
    bytes: usize,
}

impl Recent {
    pub(super) fn keep(&mut self, tree: Arc<Value>, bytes: usize) {
        self.trees.push_back((tree, bytes));
        self.bytes += bytes;
        while self.bytes > RECENT_BYTES {
            let Some((_, bytes)) = self.trees.pop_front() else { return };
            self.bytes -= bytes;
        }
    }
}
