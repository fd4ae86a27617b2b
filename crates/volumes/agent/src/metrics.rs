//! Metrics of volumes: duration of operations, reconstruction after a restart, and the clean-up of orphaned pods.

mod selinux;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::PodUid;
use parking_lot::Mutex;
use stats_core::exposition::{DEFAULT_BUCKETS, Kind, Value, family, line};

use base_agent::metrics::{Family, Histograms};
pub use selinux::SelinuxCount;
use selinux::SelinuxMetrics;

/// Buckets for volume operations, in seconds.
const LIMITS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

const OPERATIONS: Family = Family::new(
    "storage_operation_duration_seconds",
    &["migrated", "operation_name", "status", "volume_plugin"],
    "Duration in seconds of volume operations, by volume plugin, operation name and status.",
);
const MOUNTS: Family = Family::new(
    "volume_operation_total_seconds",
    &["operation_name", "plugin_name"],
    "Duration in seconds from the request of a volume until it was mounted, including retries.",
);
const CALLS: Family = Family::new(
    "csi_operations_seconds",
    &["driver_name", "grpc_status_code", "method_name", "migrated"],
    "Duration in seconds of calls to CSI drivers, by driver, method and gRPC status code.",
);

#[derive(Debug)]
pub struct VolumeMetrics {
    took: Histograms,
    /// By type, from the first request to the mounted volume.
    mounted: Histograms,
    /// By driver, method and code.
    calls: Histograms,
    measured: Histograms,
    pub(crate) selinux: SelinuxMetrics,
    reconstructed: AtomicU64,
    not_reconstructed: AtomicU64,
    force_cleaned: AtomicU64,
    force_clean_errors: AtomicU64,
    orphans: Mutex<Orphans>,
}

/// Orphaned pods that have volumes.
#[derive(Debug, Default)]
struct Orphans {
    /// Since the last sweep of the pod directories began.
    cleaned: u64,
    /// Pods whose volumes could not be removed.
    stuck: BTreeSet<PodUid>,
}

impl Default for VolumeMetrics {
    fn default() -> Self {
        let (reconstructed, not_reconstructed, force_cleaned, force_clean_errors, orphans) =
            Default::default();
        Self {
            took: Histograms::new(LIMITS),
            mounted: Histograms::new(LIMITS),
            calls: Histograms::new(LIMITS),
            measured: Histograms::new(DEFAULT_BUCKETS),
            selinux: SelinuxMetrics::default(),
            reconstructed,
            not_reconstructed,
            force_cleaned,
            force_clean_errors,
            orphans,
        }
    }
}

impl VolumeMetrics {
    /// `plugin` is the type of the volume, with the name of the driver for a CSI volume; `is_migrated`: the volume is of an in-tree type
    /// that has moved to a CSI driver.
    pub(crate) fn operated(
        &self,
        act: &'static str,
        plugin: &str,
        is_migrated: bool,
        is_ok: bool,
        took: Duration,
    ) {
        let status = if is_ok { "success" } else { "fail-unknown" };
        self.took.observe(&[migrated(is_migrated), act, status, plugin], took);
    }

    /// A call to a CSI driver ended with that gRPC code.
    pub(crate) fn called_driver(
        &self,
        driver: &str,
        is_migrated: bool,
        method: &str,
        code: &str,
        took: Duration,
    ) {
        self.calls.observe(&[driver, code, method, migrated(is_migrated)], took);
    }

    /// A volume is mounted; `took` is the time since it was first requested, with all attempts that failed.
    pub fn mounted(&self, plugin: &str, took: Duration) {
        self.mounted.observe(&["overall_volume_mount", plugin], took);
    }

    /// A volume of an earlier kubelet was found on disk; `is_known`: its type is supported.
    pub fn found(&self, is_known: bool) {
        self.reconstructed.fetch_add(1, Ordering::Relaxed);
        if !is_known {
            self.not_reconstructed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A volume of an earlier kubelet with an unsupported type was unmounted with its pod, or could not be unmounted.
    pub(crate) fn force_cleaned(&self, is_ok: bool) {
        self.force_cleaned.fetch_add(1, Ordering::Relaxed);
        self.force_clean_errors.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
    }

    /// A sweep of the pod directories for orphaned pods begins.
    pub fn orphan_sweep_started(&self) {
        self.orphans.lock().cleaned = 0;
    }

    /// The volumes of an orphaned pod were removed, or could not be removed.
    pub fn orphan_released(&self, uid: &PodUid, is_ok: bool) {
        let mut orphans = self.orphans.lock();
        if is_ok {
            orphans.cleaned += 1;
            orphans.stuck.remove(uid);
        } else {
            orphans.stuck.insert(uid.clone());
        }
    }

    /// A volume was measured; `kind` is its directory: `kubernetes.io~empty-dir`.
    pub fn volume_measured(&self, kind: &str, took: Duration) {
        self.measured.observe(&[&kind.replacen('~', "/", 1)], took);
    }

    pub fn write_measured(&self, text: &mut String) {
        let name = "kubelet_volume_metric_collection_duration_seconds";
        let of = Family::new(
            name,
            &["metric_source"],
            "Duration in seconds of the measurement of a volume's usage, by volume plugin.",
        );
        self.measured.write(text, of);
    }

    pub fn write(&self, text: &mut String) {
        self.took.write(text, OPERATIONS);
        self.mounted.write(text, MOUNTS);
        self.calls.write(text, CALLS);
        self.selinux.write(text);
        let counters = [
            (
                "reconstruct_volume_operations_total",
                "Number of volumes that were reconstructed from the disk after a restart of the kubelet.",
                &self.reconstructed,
            ),
            (
                "reconstruct_volume_operations_errors_total",
                "Number of volumes found on disk after a restart of the kubelet that could not be reconstructed, because their type is not supported.",
                &self.not_reconstructed,
            ),
            (
                "force_cleaned_failed_volume_operations_total",
                "Number of volumes that were cleaned up by force after their reconstruction failed.",
                &self.force_cleaned,
            ),
            (
                "force_cleaned_failed_volume_operation_errors_total",
                "Number of volumes that could not be cleaned up after their reconstruction failed.",
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
                "Number of orphaned pods whose volumes were cleaned up in the last sweep.",
                orphans.cleaned,
            ),
            (
                "kubelet_orphan_pod_cleaned_volumes_errors",
                "Number of orphaned pods whose volumes could not be cleaned up in the last sweep.",
                orphans.stuck.len() as u64,
            ),
        ];
        for (name, help, number) in gauges {
            family(text, name, Kind::Gauge, help);
            line(text, name, &[], Value::Integer(number), None);
        }
    }
}

const fn migrated(is_migrated: bool) -> &'static str {
    if is_migrated { "true" } else { "false" }
}
