//! Metrics of resizes of pods in place.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::pods::resize::requested::RequestedResize;
use stats_core::exposition::Kind;

use base_agent::metrics::{Counts, Family, Histograms};

/// Milliseconds.
const DURATION: &[f64] = &[
    10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0, 120_000.0,
    300_000.0, 600_000.0,
];
const REQUESTED: Family = Family::new(
    "kubelet_container_requested_resizes_total",
    &["resource", "requirement", "operation"],
    "Changes of requests and limits that the API requested for containers, by resource and by what changed.",
);
const TRIED: Family = Family::new(
    "kubelet_pod_resize_duration_milliseconds",
    &["success"],
    "Duration of attempts to resize a pod in place, in milliseconds.",
);
const PENDING: Family =
    Family::new("kubelet_pod_pending_resizes", &["reason"], "Resizes that wait or are never carried out.");
const IN_PROGRESS: Family =
    Family::new("kubelet_pod_in_progress_resizes", &[], "Pods that are being resized in place.");
const INFEASIBLE: Family = Family::new(
    "kubelet_pod_infeasible_resizes_total",
    &["reason_detail"],
    "Resizes that this node never carries out.",
);
const ACCEPTED: Family = Family::new(
    "kubelet_pod_deferred_accepted_resizes_total",
    &["retry_trigger"],
    "Resizes that got their resources after they had to wait.",
);

#[derive(Debug)]
pub(crate) struct ResizeMetrics {
    requested: Counts,
    tried: Histograms,
    pending: Counts,
    in_progress: Counts,
    infeasible: Counts,
    accepted: Counts,
}

impl Default for ResizeMetrics {
    fn default() -> Self {
        let in_progress = Counts::default();
        in_progress.set(&[], 0);
        Self {
            requested: Counts::default(),
            tried: Histograms::of_numbers(DURATION),
            pending: Counts::default(),
            in_progress,
            infeasible: Counts::default(),
            accepted: Counts::default(),
        }
    }
}

impl ResizeMetrics {
    pub(crate) fn requested(&self, changes: &[RequestedResize]) {
        for change in changes {
            self.requested.add(&[change.resource, change.requirement, change.operation]);
        }
    }

    pub(crate) fn tried(&self, is_done: bool, took: Duration) {
        let success = if is_done { "true" } else { "false" };
        self.tried.observe_number(&[success], u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    }

    pub(crate) fn infeasible(&self, detail: &str) {
        self.infeasible.add(&[detail]);
    }

    pub(crate) fn accepted_after_waiting(&self, trigger: &str) {
        self.accepted.add(&[trigger]);
    }

    pub(super) fn write(&self, text: &mut String) {
        self.requested.write(text, Kind::Counter, REQUESTED);
        self.tried.write(text, TRIED);
        self.pending.write(text, Kind::Gauge, PENDING);
        self.in_progress.write(text, Kind::Gauge, IN_PROGRESS);
        self.infeasible.write(text, Kind::Counter, INFEASIBLE);
        self.accepted.write(text, Kind::Counter, ACCEPTED);
    }
}

/// How one pod is counted among those that wait and those in progress; not at all once this is dropped.
#[derive(Debug)]
pub(crate) struct ResizeCount {
    metrics: Arc<ResizeMetrics>,
    pending: Option<String>,
    is_in_progress: bool,
}

impl ResizeCount {
    pub(crate) const fn new(metrics: Arc<ResizeMetrics>) -> Self {
        Self { metrics, pending: None, is_in_progress: false }
    }

    /// `pending`: the reason, as the condition has it.
    pub(crate) fn update(&mut self, pending: Option<&str>, is_in_progress: bool) {
        let metrics = &self.metrics;
        let is_same = match (&self.pending, pending) {
            (Some(counted), Some(now)) => counted.eq_ignore_ascii_case(now),
            (counted, now) => counted.is_none() && now.is_none(),
        };
        if !is_same {
            let counted = std::mem::replace(&mut self.pending, pending.map(str::to_ascii_lowercase));
            counted.iter().for_each(|reason| metrics.pending.take(&[reason]));
            self.pending.iter().for_each(|reason| metrics.pending.add(&[reason]));
        }
        if std::mem::replace(&mut self.is_in_progress, is_in_progress) != is_in_progress {
            match is_in_progress {
                true => metrics.in_progress.add(&[]),
                false => metrics.in_progress.take(&[]),
            }
        }
    }
}

impl Drop for ResizeCount {
    fn drop(&mut self) {
        self.update(None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_is_counted_where_its_resize_stands() {
        let metrics = Arc::new(ResizeMetrics::default());
        let shown = || {
            let mut text = String::new();
            metrics.write(&mut text);
            let lines = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut count = ResizeCount::new(metrics.clone());
        assert!(shown().is_empty());
        count.update(Some("Deferred"), true);
        count.update(Some("Deferred"), true);
        let deferred = "kubelet_pod_pending_resizes{reason=\"deferred\"} 1";
        assert_eq!(shown(), [deferred, "kubelet_pod_in_progress_resizes 1"]);
        count.update(Some("Infeasible"), false);
        assert_eq!(shown(), ["kubelet_pod_pending_resizes{reason=\"infeasible\"} 1"]);
        drop(count);
        assert!(shown().is_empty());
    }
}
