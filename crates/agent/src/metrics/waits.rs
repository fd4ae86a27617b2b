//! Metrics of pods that wait: those that do now, as `kubelet why` explains them, and the waits that lasted.

use base_agent::metrics::{Counts, Family};
use explain_core::waiting::WaitingPods;
use parking_lot::Mutex;
use stats_core::exposition::{Kind, Value, family, line};

const SECONDS: Family = Family::new(
    "kubelet_rs_pod_waiting_seconds",
    &["reason"],
    "How long the pod that waits longest has waited, by the reason that kubelet why names first.",
);
const PODS: Family = Family::new(
    "kubelet_rs_waiting_pods",
    &["reason"],
    "Number of pods that are not as desired and that the node goes on trying, by the reason that kubelet why names first.",
);
const REPORTED: Family = Family::new(
    "kubelet_rs_pod_waits_total",
    &["reason"],
    "Number of waits of pods that lasted longer than ten seconds without an error, by the reason of their event.",
);

#[derive(Debug, Default)]
pub(crate) struct WaitMetrics {
    waiting: Mutex<WaitingPods>,
    reported: Counts,
}

impl WaitMetrics {
    /// An event named a wait for the first time.
    pub(crate) fn reported(&self, reason: &str) {
        self.reported.add(&[reason]);
    }

    /// The pods that wait at the time of a scrape.
    pub(crate) fn set_waiting(&self, waiting: WaitingPods) {
        *self.waiting.lock() = waiting;
    }

    pub(super) fn write(&self, text: &mut String) {
        let waiting = self.waiting.lock().clone();
        family(text, SECONDS.name, Kind::Gauge, SECONDS.help);
        for (reason, row) in waiting.rows() {
            line(text, SECONDS.name, &[("reason", reason)], Value::Integer(row.longest_seconds), None);
        }
        family(text, PODS.name, Kind::Gauge, PODS.help);
        for (reason, row) in waiting.rows() {
            line(text, PODS.name, &[("reason", reason)], Value::Integer(row.pods), None);
        }
        self.reported.write(text, Kind::Counter, REPORTED);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use model::explain::{Cause, PodExplanation, Verdict};

    use super::*;

    #[test]
    fn waiting_pods_are_written_by_reason() {
        let metrics = WaitMetrics::default();
        let mut waiting = WaitingPods::default();
        let pod = PodExplanation {
            verdict: Verdict::Waiting,
            since: Some(Timestamp::UNIX_EPOCH),
            causes: vec![Cause { reason: "FailedMount".to_owned(), ..Cause::default() }],
            ..PodExplanation::default()
        };
        waiting.add(&pod, Timestamp::from_second(90).unwrap());
        metrics.set_waiting(waiting);
        metrics.reported("WaitingForSandbox");
        let mut text = String::new();
        metrics.write(&mut text);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "kubelet_rs_pod_waiting_seconds{reason=\"FailedMount\"} 90",
                "kubelet_rs_waiting_pods{reason=\"FailedMount\"} 1",
                "kubelet_rs_pod_waits_total{reason=\"WaitingForSandbox\"} 1",
            ]
        );
    }
}
