//! A histogram: how many of what was measured lies in which range.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubelet_core::stats::exposition;

#[derive(Debug)]
pub(crate) struct Histogram {
    limits: &'static [f64],
    /// One for each limit, and one for what lies above them all.
    counts: Box<[AtomicU64]>,
    sum_nanoseconds: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(limits: &'static [f64]) -> Self {
        let counts = (0..=limits.len()).map(|_| AtomicU64::new(0)).collect();
        Self { limits, counts, sum_nanoseconds: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = self.limits.partition_point(|limit| *limit < seconds);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The same for what is no time.
    pub(crate) fn observe_number(&self, number: u64) {
        self.observe(Duration::from_secs(number));
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn write(&self, text: &mut String, name: &str, labels: &[(&str, &str)]) {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = self.sum_nanoseconds.load(Ordering::Relaxed);
        exposition::histogram(text, name, labels, self.limits, (&counts, sum));
    }
}
