//! Metrics of the calls to the container runtime, and of what it lacks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base_agent::metrics::{Counts, Family, Histogram, one};
use kubelet_core::node::cgroup_driver::LOSING_SUPPORT_IN;
use parking_lot::Mutex;
use ports::runtime::CallObserver;
use stats_core::exposition::{Kind, Value, family, line};
use stats_core::operations::operation_type;

/// Buckets for calls to the runtime, in seconds: each is 2.5 times the one before.
const RUNTIME_CALL: &[f64] = &[
    0.005,
    0.0125,
    0.031_25,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
    298.023_223_876_953_1,
    745.058_059_692_382_8,
];
const MALFORMED_ENTRIES: Family = Family::new(
    "kubelet_rs_runtime_entries_malformed_total",
    &["call"],
    "Number of malformed entries in answers of the container runtime that were left out, by call.",
);

#[derive(Debug, Default)]
pub(crate) struct RuntimeMetrics {
    loses_support: AtomicBool,
    by_operation: Mutex<BTreeMap<&'static str, Calls>>,
    /// By call.
    malformed_entries: Counts,
}

#[derive(Debug)]
struct Calls {
    took: Histogram,
    failed: u64,
}

impl RuntimeMetrics {
    /// The runtime is too old for a future release.
    pub(crate) fn loses_support(&self) {
        self.loses_support.store(true, Ordering::Relaxed);
    }

    pub(super) fn write(&self, text: &mut String) {
        if self.loses_support.load(Ordering::Relaxed) {
            let labels = [("version", LOSING_SUPPORT_IN)];
            let help = "Set to 1 if the container runtime lacks an API that is required from the Kubernetes release in the label.";
            one(text, "kubelet_cri_losing_support", Kind::Gauge, help, &labels, 1);
        }
        let calls = self.by_operation.lock();
        let name = "kubelet_runtime_operations_duration_seconds";
        family(text, name, Kind::Histogram, "Duration in seconds of runtime operations, by operation type.");
        for (operation, calls) in &*calls {
            calls.took.write(text, name, &[("operation_type", operation)]);
        }
        let name = "kubelet_runtime_operations_total";
        family(text, name, Kind::Counter, "Number of runtime operations, by operation type.");
        for (operation, calls) in &*calls {
            line(text, name, &[("operation_type", operation)], Value::Integer(calls.took.count()), None);
        }
        let name = "kubelet_runtime_operations_errors_total";
        family(text, name, Kind::Counter, "Number of failed runtime operations, by operation type.");
        for (operation, calls) in calls.iter().filter(|(_, calls)| calls.failed > 0) {
            line(text, name, &[("operation_type", operation)], Value::Integer(calls.failed), None);
        }
        self.malformed_entries.write(text, Kind::Counter, MALFORMED_ENTRIES);
    }
}

impl CallObserver for RuntimeMetrics {
    fn called(&self, call: &'static str, took: Duration, is_ok: bool) {
        let mut calls = self.by_operation.lock();
        let new = || Calls { took: Histogram::new(RUNTIME_CALL), failed: 0 };
        let known = calls.entry(operation_type(call)).or_insert_with(new);
        known.took.observe(took);
        known.failed += u64::from(!is_ok);
    }

    fn entry_malformed(&self, call: &'static str) {
        self.malformed_entries.add(&[call]);
    }
}
