//! Metrics of device plugins: registrations and duration of Allocate calls.

use std::time::Duration;

use stats_core::exposition::{DEFAULT_BUCKETS, Kind};

use base_agent::metrics::{Counts, Family, Histograms};

const REGISTRATIONS: Family = Family::new(
    "kubelet_device_plugin_registration_total",
    &["resource_name"],
    "Number of registrations of device plugins by resource name, successful or not.",
);
const ALLOCATIONS: Family = Family::new(
    "kubelet_device_plugin_alloc_duration_seconds",
    &["resource_name"],
    "Duration of Allocate calls to device plugins in seconds, by resource name.",
);

#[derive(Debug)]
pub struct DeviceMetrics {
    registrations: Counts,
    allocations: Histograms,
}

impl Default for DeviceMetrics {
    fn default() -> Self {
        Self { registrations: Counts::default(), allocations: Histograms::new(DEFAULT_BUCKETS) }
    }
}

impl DeviceMetrics {
    pub fn registered(&self, resource: &str) {
        self.registrations.add(&[resource]);
    }

    pub fn allocated(&self, resource: &str, took: Duration) {
        self.allocations.observe(&[resource], took);
    }

    pub fn write(&self, text: &mut String) {
        self.registrations.write(text, Kind::Counter, REGISTRATIONS);
        self.allocations.write(text, ALLOCATIONS);
    }
}
