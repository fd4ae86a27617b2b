//! Metrics of ResourceClaims: operations for pods, calls of drivers, and claims in use.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use stats_core::exposition::{Kind, Value, family, line};

use base_agent::metrics::{Family, Histograms};

const OPERATIONS: Family = Family::new(
    "dra_operations_duration_seconds",
    &["operation_name", "is_error"],
    "Duration in seconds of preparing or unpreparing the ResourceClaims of a pod, by operation and whether it failed.",
);
const CALLS: Family = Family::new(
    "dra_grpc_operations_duration_seconds",
    &["driver_name", "method_name", "grpc_status_code"],
    "Duration in seconds of gRPC calls to DRA drivers, by driver, method and status code.",
);
const IN_USE: &str = "dra_resource_claims_in_use";
/// The row of all drivers.
const ANY_DRIVER: &str = "<any>";
/// From 0.1 to 40 seconds, each 40 / 0.1 to the power of 1/14 times the one before.
const BUCKETS: &[f64] = &[
    0.1,
    0.153_412_740_463_439_1,
    0.235_354_689_365_025_24,
    0.361_064_078_764_099_46,
    0.553_918_298_061_075_2,
    0.849_781_240_983_936_3,
    1.303_672_689_737_678,
    1.999_999_999_999_999_3,
    3.068_254_809_268_781,
    4.707_093_787_300_503,
    7.221_281_575_281_985,
    11.078_365_961_221_5,
    16.995_624_819_678_717,
    26.073_453_794_753_55,
    40.0,
];

#[derive(Debug)]
pub struct ClaimMetrics {
    operations: Histograms,
    calls: Histograms,
    in_use: Mutex<BTreeMap<String, u64>>,
}

impl Default for ClaimMetrics {
    fn default() -> Self {
        Self {
            operations: Histograms::new(BUCKETS),
            calls: Histograms::new(BUCKETS),
            in_use: Mutex::new([(ANY_DRIVER.to_owned(), 0)].into()),
        }
    }
}

impl ClaimMetrics {
    pub fn operation(&self, name: &str, is_error: bool, took: Duration) {
        let is_error = if is_error { "true" } else { "false" };
        self.operations.observe(&[name, is_error], took);
    }

    pub fn called(&self, driver: &str, method: &str, code: &str, took: Duration) {
        self.calls.observe(&[driver, method, code], took);
    }

    /// Numbers of prepared claims.
    pub(crate) fn set_in_use(&self, mut by_driver: BTreeMap<String, u64>, all: u64) {
        by_driver.insert(ANY_DRIVER.to_owned(), all);
        *self.in_use.lock() = by_driver;
    }

    pub fn write(&self, text: &mut String) {
        self.operations.write(text, OPERATIONS);
        self.calls.write(text, CALLS);
        family(
            text,
            IN_USE,
            Kind::Gauge,
            "Number of prepared ResourceClaims, by driver; <any> counts those of all.",
        );
        for (driver, count) in &*self.in_use.lock() {
            line(text, IN_USE, &[("driver_name", driver)], Value::Integer(*count), None);
        }
    }
}
