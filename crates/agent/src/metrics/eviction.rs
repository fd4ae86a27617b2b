//! Metrics of evictions and of system OOM kills.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stats_core::exposition::{DEFAULT_BUCKETS, Kind, Value, family, line};

use base_agent::metrics::Histogram;

/// Keys are names of eviction signals, so their number is bounded.
#[derive(Debug, Default)]
pub(crate) struct EvictionMetrics {
    evictions: Mutex<BTreeMap<&'static str, u64>>,
    ages: Mutex<BTreeMap<&'static str, Histogram>>,
    system_ooms: AtomicU64,
}

impl EvictionMetrics {
    /// A pod was evicted; `age` is that of the sample that the decision was based on.
    pub(crate) fn evicted(&self, signal: &'static str, age: Option<Duration>) {
        *self.evictions.lock().entry(signal).or_default() += 1;
        if let Some(age) = age {
            let mut ages = self.ages.lock();
            ages.entry(signal).or_insert_with(|| Histogram::new(DEFAULT_BUCKETS)).observe(age);
        }
    }

    /// The kernel killed a process because the whole machine was out of memory.
    pub(crate) fn system_oom(&self) {
        self.system_ooms.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn write(&self, text: &mut String) {
        let name = "kubelet_evictions";
        family(text, name, Kind::Counter, "Number of pod evictions by eviction signal.");
        for (signal, count) in &*self.evictions.lock() {
            line(text, name, &[("eviction_signal", signal)], Value::Integer(*count), None);
        }
        let name = "kubelet_eviction_stats_age_seconds";
        family(
            text,
            name,
            Kind::Histogram,
            "Age of the stats at the time of a pod eviction in seconds, by eviction signal.",
        );
        for (signal, ages) in &*self.ages.lock() {
            ages.write(text, name, &[("eviction_signal", signal)]);
        }
        let name = "kubelet_rs_system_oom_events_total";
        family(
            text,
            name,
            Kind::Counter,
            "Number of processes killed because the machine was out of memory.",
        );
        line(text, name, &[], Value::Integer(self.system_ooms.load(Ordering::Relaxed)), None);
    }
}
