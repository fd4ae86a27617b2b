//! Metrics of graceful node shutdown.

use config::{FeatureGates, Features};
use jiff::Timestamp;
use kubelet_core::node::shutdown::ShutdownTimes;
use parking_lot::Mutex;
use stats_core::exposition::Kind;

use base_agent::metrics::one;

#[derive(Debug, Default)]
pub(crate) struct ShutdownMetrics(Mutex<ShutdownTimes>);

impl ShutdownMetrics {
    pub(crate) fn set(&self, times: ShutdownTimes) {
        *self.0.lock() = times;
    }

    /// Returns the new times.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ShutdownTimes)) -> ShutdownTimes {
        let mut times = self.0.lock();
        change(&mut times);
        *times
    }

    /// In whole Unix seconds; 0 for a time that is not known.
    pub(super) fn write(&self, text: &mut String, gates: &FeatureGates) {
        let features = Features::of(gates);
        if !features.graceful_shutdown || !features.graceful_shutdown_by_priority {
            return;
        }
        let ShutdownTimes { began, ended } = *self.0.lock();
        let seconds =
            |time: Option<Timestamp>| time.map_or(0, |time| u64::try_from(time.as_second()).unwrap_or(0));
        let help = "Time when the last graceful node shutdown started, in Unix seconds.";
        one(text, "kubelet_graceful_shutdown_start_time_seconds", Kind::Gauge, help, &[], seconds(began));
        let help = "Time when the last graceful node shutdown ended, in Unix seconds.";
        one(text, "kubelet_graceful_shutdown_end_time_seconds", Kind::Gauge, help, &[], seconds(ended));
    }
}
