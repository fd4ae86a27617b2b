//! Metrics of the PLEG: its listings, and the runtime's stream of events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base_agent::metrics::{Histogram, one, write_plain};
use jiff::Timestamp;
use stats_core::exposition::{DEFAULT_BUCKETS, Kind};

#[derive(Debug)]
pub(crate) struct PlegMetrics {
    relist_took: Histogram,
    relist_interval: Histogram,
    /// Seconds since 1970.
    relisted_at: AtomicU64,
    hint_streams: AtomicU64,
    hint_stream_errors: AtomicU64,
    hint_stream_took: Histogram,
}

impl Default for PlegMetrics {
    fn default() -> Self {
        let (relisted_at, hint_streams, hint_stream_errors) = Default::default();
        let usual = || Histogram::new(DEFAULT_BUCKETS);
        Self {
            relist_took: usual(),
            relist_interval: usual(),
            relisted_at,
            hint_streams,
            hint_stream_errors,
            hint_stream_took: usual(),
        }
    }
}

impl PlegMetrics {
    /// A relist has ended. `since_last` is from the beginning of the one before.
    pub(crate) fn relisted(&self, took: Duration, since_last: Option<Duration>, now: Timestamp) {
        self.relist_took.observe(took);
        if let Some(interval) = since_last {
            self.relist_interval.observe(interval);
        }
        self.relisted_at.store(u64::try_from(now.as_second()).unwrap_or(0), Ordering::Relaxed);
    }

    /// The runtime's stream of events was requested.
    pub(crate) fn hint_stream_requested(&self, took: Duration, is_ok: bool) {
        if is_ok {
            self.hint_streams.fetch_add(1, Ordering::Relaxed);
            self.hint_stream_took.observe(took);
        } else {
            self.hint_stream_errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn write(&self, text: &mut String) {
        let plain = [
            (
                "kubelet_pleg_relist_duration_seconds",
                "Duration in seconds of PLEG relists.",
                &self.relist_took,
            ),
            (
                "kubelet_pleg_relist_interval_seconds",
                "Interval in seconds between the starts of PLEG relists.",
                &self.relist_interval,
            ),
            (
                "kubelet_evented_pleg_connection_latency_seconds",
                "Duration in seconds until the runtime opened its stream of container events.",
                &self.hint_stream_took,
            ),
        ];
        write_plain(text, &plain);
        let name = "kubelet_pleg_last_seen_seconds";
        let help = "Time when the PLEG was last active: end of the last relist, in Unix seconds.";
        one(text, name, Kind::Gauge, help, &[], self.relisted_at.load(Ordering::Relaxed));
        let help = "Number of discarded PLEG events; always 0, because the next relist finds every change.";
        one(text, "kubelet_pleg_discard_events", Kind::Counter, help, &[], 0);
        let name = "kubelet_evented_pleg_connection_success_count";
        let help = "Number of times the runtime opened its stream of container events.";
        one(text, name, Kind::Counter, help, &[], self.hint_streams.load(Ordering::Relaxed));
        let name = "kubelet_evented_pleg_connection_error_count";
        let help = "Number of times the runtime failed to open its stream of container events.";
        one(text, name, Kind::Counter, help, &[], self.hint_stream_errors.load(Ordering::Relaxed));
    }
}
