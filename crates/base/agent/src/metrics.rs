//! The metrics of all subsystems (docs/behaviour/metrics.md).
//!
//! Each owner of metrics has a struct with the values of its families, which writes them as text with what is here; the registry has
//! one of each. What a scrape writes, in which order, is up to the exporter.

mod histogram;
mod table;

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub use histogram::{Histogram, write_plain};
pub use table::{Counts, Family, Histograms, one};

/// The metrics of every owner: one value of each type, made when it is first used. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    by_type: Arc<Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>>,
}

impl Metrics {
    /// The metrics of one owner.
    #[must_use]
    pub fn get<M: Default + Send + Sync + 'static>(&self) -> Arc<M> {
        let known =
            self.by_type.lock().entry(TypeId::of::<M>()).or_insert_with(|| Arc::new(M::default())).clone();
        // The entry of a type is of that type.
        known.downcast().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn all_who_use_the_metrics_of_one_owner_share_them() {
        let metrics = Metrics::default();
        metrics.get::<AtomicU64>().store(7, Ordering::Relaxed);
        assert_eq!(metrics.clone().get::<AtomicU64>().load(Ordering::Relaxed), 7);
    }
}
