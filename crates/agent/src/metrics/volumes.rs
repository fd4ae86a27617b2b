//! Counters about volumes: how long acts took, what was found from an earlier kubelet, and what became of the volumes of pods
//! that nobody asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubelet_core::stats::exposition::{Kind, Value, family, line};
use model::PodUid;
use parking_lot::Mutex;

use super::Histogram;

/// Limits for acts on volumes, in seconds.
const LIMITS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// Act, type and whether it succeeded: names of ours, so there is a bound to them.
type Key = (&'static str, &'static str, bool);

#[derive(Debug, Default)]
pub(crate) struct VolumeMetrics {
    took: Mutex<BTreeMap<Key, Histogram>>,
    /// By type, from the first request to the mounted volume.
    mounted: Mutex<BTreeMap<&'static str, Histogram>>,
    reconstructed: AtomicU64,
    not_reconstructed: AtomicU64,
    force_cleaned: AtomicU64,
    force_clean_errors: AtomicU64,
    orphans: Mutex<Orphans>,
}

/// Pods that were found and that nobody asks for.
#[derive(Debug, Default)]
struct Orphans {
    /// Since directories were last looked through.
    cleaned: u64,
    /// Their volumes do not go.
    stuck: BTreeSet<PodUid>,
}

impl VolumeMetrics {
    pub(crate) fn operated(&self, act: &'static str, plugin: &'static str, is_ok: bool, took: Duration) {
        let mut by_key = self.took.lock();
        by_key.entry((act, plugin, is_ok)).or_insert_with(|| Histogram::new(LIMITS)).observe(took);
    }

    /// A volume is mounted; `took` is the time since it was first requested, with all attempts that failed.
    pub(crate) fn mounted(&self, plugin: &'static str, took: Duration) {
        self.mounted.lock().entry(plugin).or_insert_with(|| Histogram::new(LIMITS)).observe(took);
    }

    /// A volume of an earlier kubelet was found on disk; `is_known`: it is of a type that we have.
    pub(crate) fn found(&self, is_known: bool) {
        self.reconstructed.fetch_add(1, Ordering::Relaxed);
        if !is_known {
            self.not_reconstructed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A volume of an earlier kubelet, of no type that we have, was taken down with its pod, or would not go.
    pub(crate) fn force_cleaned(&self, is_ok: bool) {
        self.force_cleaned.fetch_add(1, Ordering::Relaxed);
        self.force_clean_errors.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
    }

    /// Directories are looked through for pods that nobody asks for.
    pub(crate) fn sweep_begins(&self) {
        self.orphans.lock().cleaned = 0;
    }

    /// The volumes of a pod that nobody asks for were to be taken down.
    pub(crate) fn orphan_released(&self, uid: &PodUid, is_ok: bool) {
        let mut orphans = self.orphans.lock();
        if is_ok {
            orphans.cleaned += 1;
            orphans.stuck.remove(uid);
        } else {
            orphans.stuck.insert(uid.clone());
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
        let name = "volume_operation_total_seconds";
        family(
            text,
            name,
            Kind::Histogram,
            "How long volumes took from the request to the mount, with retries.",
        );
        for (plugin, histogram) in &*self.mounted.lock() {
            let labels = [("operation_name", "overall_volume_mount"), ("plugin_name", *plugin)];
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
            (
                "force_cleaned_failed_volume_operations_total",
                "Volumes of an earlier kubelet, of no known type, that were to be taken down with their pods.",
                &self.force_cleaned,
            ),
            (
                "force_cleaned_failed_volume_operation_errors_total",
                "Those of them that did not go.",
                &self.force_clean_errors,
            ),
        ];
        for (name, help, counter) in counters {
            family(text, name, Kind::Counter, help);
            line(text, name, &[], Value::Integer(counter.load(Ordering::Relaxed)), None);
        }
        let orphans = self.orphans.lock();
        let gauges = [
            (
                "kubelet_orphan_pod_cleaned_volumes",
                "Pods that nobody asks for whose volumes were taken down since directories were last looked through.",
                orphans.cleaned,
            ),
            (
                "kubelet_orphan_pod_cleaned_volumes_errors",
                "Pods that nobody asks for whose volumes do not go.",
                orphans.stuck.len() as u64,
            ),
        ];
        for (name, help, number) in gauges {
            family(text, name, Kind::Gauge, help);
            line(text, name, &[], Value::Integer(number), None);
        }
    }
}
