//! What measuring costs (docs/behaviour/metrics.md). The Go kubelet does not have this family.

use std::time::Duration;

use base_agent::metrics::Histogram;
use stats_core::exposition::{DEFAULT_BUCKETS, Kind, family};

const TOOK: &str = "kubelet_rs_sampling_duration_seconds";

#[derive(Debug)]
pub struct StatsMetrics {
    cgroups: Histogram,
    disks: Histogram,
}

impl Default for StatsMetrics {
    fn default() -> Self {
        Self { cgroups: Histogram::new(DEFAULT_BUCKETS), disks: Histogram::new(DEFAULT_BUCKETS) }
    }
}

impl StatsMetrics {
    pub(crate) fn cgroups_sampled(&self, took: Duration) {
        self.cgroups.observe(took);
    }

    pub(crate) fn disks_sampled(&self, took: Duration) {
        self.disks.observe(took);
    }

    pub fn write(&self, text: &mut String) {
        family(text, TOOK, Kind::Histogram, "Duration in seconds of samples of cgroups and of disks.");
        self.cgroups.write(text, TOOK, &[("what", "cgroups")]);
        self.disks.write(text, TOOK, &[("what", "disks")]);
    }
}
