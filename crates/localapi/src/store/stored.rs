//! One version of an object, and the bytes of all versions that are still in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// The bytes of all versions of objects in memory, whoever holds them: the store, its history, or the queue of a watcher.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter(Arc<AtomicUsize>);

impl Meter {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One version of an object. Its size is that of its JSON text.
#[derive(Debug)]
pub(crate) struct Stored {
    tree: Arc<Value>,
    bytes: usize,
    meter: Meter,
}

impl Stored {
    pub(super) fn new(tree: Arc<Value>, meter: &Meter) -> Arc<Self> {
        let mut size = Size(0);
        // Counting cannot fail, and a tree of JSON has a text.
        let _ = serde_json::to_writer(&mut size, &*tree);
        meter.0.fetch_add(size.0, Ordering::Relaxed);
        Arc::new(Self { tree, bytes: size.0, meter: meter.clone() })
    }

    pub(crate) const fn tree(&self) -> &Arc<Value> {
        &self.tree
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.meter.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Counts what is written.
struct Size(usize);

impl std::io::Write for Size {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0 += text.len();
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
