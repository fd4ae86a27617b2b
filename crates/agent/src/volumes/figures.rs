//! Counters about volumes: how long acts took, and what was found from an earlier kubelet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubelet_core::stats::exposition::{Kind, Value, family, line};
use parking_lot::Mutex;

use crate::metrics::Histogram;

/// Limits for acts on volumes, in seconds.
const LIMITS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// Act, type and whether it succeeded: names of ours, so there is a bound to them.
type Key = (&'static str, &'static str, bool);

#[derive(Debug, Default)]
pub struct VolumeFigures {
    took: Mutex<BTreeMap<Key, Histogram>>,
    reconstructed: AtomicU64,
    not_reconstructed: AtomicU64,
}

impl VolumeFigures {
    pub(crate) fn operated(&self, act: &'static str, plugin: &'static str, is_ok: bool, took: Duration) {
        let mut by_key = self.took.lock();
        by_key.entry((act, plugin, is_ok)).or_insert_with(|| Histogram::new(LIMITS)).observe(took);
    }

    /// A volume of an earlier kubelet was found on disk; `is_known`: it is of a type that we have.
    pub(crate) fn found(&self, is_known: bool) {
        self.reconstructed.fetch_add(1, Ordering::Relaxed);
        if !is_known {
            self.not_reconstructed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn render(&self, text: &mut String) {
        let name = "storage_operation_duration_seconds";
        let took = self.took.lock();
        if !took.is_empty() {
            family(text, name, Kind::Histogram, "How long acts on volumes took.");
        }
        for ((act, plugin, is_ok), histogram) in &*took {
            let status = if *is_ok { "success" } else { "fail-unknown" };
            let labels = [
                ("migrated", "false"),
                ("operation_name", *act),
                ("status", status),
                ("volume_plugin", *plugin),
            ];
            histogram.write(text, name, &labels);
        }
        let counters = [
            (
                "reconstruct_volume_operations_total",
                "Volumes of an earlier kubelet that were found on disk.",
                &self.reconstructed,
            ),
            (
                "reconstruct_volume_operations_errors_total",
                "Those of them whose type is not known.",
                &self.not_reconstructed,
            ),
        ];
        for (name, help, counter) in counters {
            family(text, name, Kind::Counter, help);
            line(text, name, &[], Value::Integer(counter.load(Ordering::Relaxed)), None);
        }
    }
}
