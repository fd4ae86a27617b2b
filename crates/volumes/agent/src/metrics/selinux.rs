//! Metrics of volumes on nodes with SELinux: which are mounted with a label, and which pods want another one.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use stats_core::exposition::{Kind, Value, family, line};

/// Drivers and access modes that are counted apart.
const MAX_ROWS: usize = 1000;

/// What is counted. `is_refused`: the pod does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelinuxCount {
    PodMismatch { is_refused: bool },
    VolumeMismatch { is_refused: bool },
    Admitted,
}

type Row = (SelinuxCount, String, &'static str);

#[derive(Debug, Default)]
pub(crate) struct SelinuxMetrics {
    rows: Mutex<BTreeMap<Row, u64>>,
}

const FAMILIES: [(SelinuxCount, &str, &str); 5] = [
    (
        SelinuxCount::PodMismatch { is_refused: true },
        "volume_manager_selinux_pod_context_mismatch_errors_total",
        "Number of attempts to start a pod whose containers want different SELinux labels for one volume, which is refused.",
    ),
    (
        SelinuxCount::PodMismatch { is_refused: false },
        "volume_manager_selinux_pod_context_mismatch_warnings_total",
        "Number of attempts to start a pod whose containers want different SELinux labels for one volume, which will be refused when volumes of all access modes are mounted with a label.",
    ),
    (
        SelinuxCount::VolumeMismatch { is_refused: true },
        "volume_manager_selinux_volume_context_mismatch_errors_total",
        "Number of attempts to start a pod that wants another SELinux label for a volume than it is mounted with, which is refused.",
    ),
    (
        SelinuxCount::VolumeMismatch { is_refused: false },
        "volume_manager_selinux_volume_context_mismatch_warnings_total",
        "Number of pods that want another SELinux label for a volume than the pods that use it, which will be refused when volumes of all access modes are mounted with a label.",
    ),
    (
        SelinuxCount::Admitted,
        "volume_manager_selinux_volumes_admitted_total",
        "Number of volumes that are mounted with an SELinux label, or would be if their access modes were enough.",
    ),
];

impl SelinuxMetrics {
    /// `access_mode`: the short name of the access mode.
    pub(crate) fn count(&self, what: SelinuxCount, driver: &str, access_mode: &'static str) {
        let driver = match what {
            SelinuxCount::PodMismatch { .. } => String::new(),
            SelinuxCount::VolumeMismatch { .. } | SelinuxCount::Admitted => {
                format!("kubernetes.io/csi/{driver}")
            }
        };
        let mut rows = self.rows.lock();
        let row = (what, driver, access_mode);
        if rows.len() < MAX_ROWS || rows.contains_key(&row) {
            *rows.entry(row).or_default() += 1;
        }
    }

    pub(crate) fn write(&self, text: &mut String) {
        let rows = self.rows.lock();
        for (what, name, help) in FAMILIES {
            let mut of_family = rows.iter().filter(|((row, ..), _)| *row == what).peekable();
            if of_family.peek().is_none() {
                continue;
            }
            family(text, name, Kind::Gauge, help);
            for ((_, driver, access_mode), number) in of_family {
                let labels = [("access_mode", *access_mode), ("volume_plugin", &**driver)];
                let labels = if driver.is_empty() { &labels[..1] } else { &labels[..] };
                line(text, name, labels, Value::Integer(*number), None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_counted_by_driver_and_access_mode() {
        let metrics = SelinuxMetrics::default();
        metrics.count(SelinuxCount::Admitted, "d.example", "RWOP");
        metrics.count(SelinuxCount::Admitted, "d.example", "RWOP");
        metrics.count(SelinuxCount::PodMismatch { is_refused: true }, "d.example", "RWOP");
        let mut text = String::new();
        metrics.write(&mut text);
        for line in [
            "volume_manager_selinux_volumes_admitted_total{access_mode=\"RWOP\",volume_plugin=\"kubernetes.io/csi/d.example\"} 2",
            "volume_manager_selinux_pod_context_mismatch_errors_total{access_mode=\"RWOP\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(!text.contains("warnings"), "{text}");
    }
}
