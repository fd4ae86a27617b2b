//! A Prometheus histogram with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stats_core::exposition;
use stats_core::exposition::{Kind, Value, family};

#[derive(Debug)]
pub struct Histogram {
    limits: &'static [f64],
    /// One for each limit, and one for values above all limits.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    /// Durations are summed in nanoseconds. Counts, bytes and ages are not: years in nanoseconds would overflow.
    sums_nanoseconds: bool,
}

impl Histogram {
    /// For durations.
    pub fn new(limits: &'static [f64]) -> Self {
        let counts = (0..=limits.len()).map(|_| AtomicU64::new(0)).collect();
        Self { limits, counts, sum: AtomicU64::new(0), sums_nanoseconds: true }
    }

    /// For counts, bytes and whole seconds.
    pub fn of_numbers(limits: &'static [f64]) -> Self {
        Self { sums_nanoseconds: false, ..Self::new(limits) }
    }

    pub fn observe(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let sum = if self.sums_nanoseconds { nanoseconds } else { took.as_secs() };
        self.record(took.as_secs_f64(), sum);
    }

    pub fn observe_number(&self, number: u64) {
        #[expect(clippy::cast_precision_loss, reason = "only compared with the limits; the sum is exact")]
        self.record(number as f64, number);
    }

    fn record(&self, value: f64, sum: u64) {
        let index = self.limits.partition_point(|limit| *limit < value);
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(sum, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub fn write(&self, text: &mut String, name: &str, labels: &[(&str, &str)]) {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = self.sum.load(Ordering::Relaxed);
        let sum = if self.sums_nanoseconds { Value::Nanoseconds(sum) } else { Value::Integer(sum) };
        exposition::histogram(text, name, labels, self.limits, &counts, sum);
    }
}

/// Families of one histogram each, without labels: name, help, values.
pub fn write_plain(text: &mut String, families: &[(&str, &str, &Histogram)]) {
    for (name, help, histogram) in families {
        family(text, name, Kind::Histogram, help);
        histogram.write(text, name, &[]);
    }
}
