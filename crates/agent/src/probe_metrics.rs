//! `/metrics/probes`: outcomes and durations of each probe. Kept as long as the pod has a worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubelet_core::pods::probe::outcome::Outcome;
use kubelet_core::pods::probe::results::ProbeKind;
use model::{PodRef, PodUid};
use parking_lot::Mutex;
use stats_core::exposition::{DEFAULT_BUCKETS, Kind, Value, family, line};

use base_agent::metrics::Histogram;

/// Shared by all probes. There are as many entries as probes.
#[derive(Clone, Debug, Default)]
pub struct ProbeMetrics {
    probes: Arc<Mutex<BTreeMap<Key, Arc<ProbeRecord>>>>,
}

/// The UID is last, so that series that would collide are next to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    namespace: Arc<str>,
    pod: Arc<str>,
    container: Box<str>,
    kind: &'static str,
    uid: PodUid,
}

/// Outcomes and durations of one probe.
#[derive(Debug)]
pub(crate) struct ProbeRecord {
    /// In the order of [`RESULTS`].
    results: [AtomicU64; 3],
    took: Histogram,
}

const RESULTS: [&str; 3] = ["successful", "failed", "unknown"];

impl ProbeRecord {
    pub(crate) fn count(&self, outcome: &Outcome, took: Duration) {
        let index = match outcome {
            Outcome::Success | Outcome::Warning(_) => 0,
            Outcome::Failure(_) => 1,
            Outcome::Error(_) => 2,
        };
        self.results[index].fetch_add(1, Ordering::Relaxed);
        self.took.observe(took);
    }
}

const fn name(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Liveness => "Liveness",
        ProbeKind::Readiness => "Readiness",
        ProbeKind::Startup => "Startup",
    }
}

impl ProbeMetrics {
    /// The record of that probe: the same one over all instances of its container.
    pub(crate) fn of(&self, pod: &PodRef, container: &str, kind: ProbeKind) -> Arc<ProbeRecord> {
        let key = Key {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            container: container.into(),
            kind: name(kind),
            uid: pod.uid.clone(),
        };
        let new = || ProbeRecord { results: Default::default(), took: Histogram::new(DEFAULT_BUCKETS) };
        self.probes.lock().entry(key).or_insert_with(|| Arc::new(new())).clone()
    }

    /// The pod has no probes any more.
    pub(crate) fn forget(&self, pod: &PodRef) {
        self.probes.lock().retain(|known, _| known.uid != pod.uid);
    }

    pub(crate) fn write(&self, text: &mut String) {
        let probes = self.probes.lock();
        text.reserve(256 + probes.len() * 1024);
        let total = "prober_probe_total";
        family(
            text,
            total,
            Kind::Counter,
            "Cumulative number of a liveness, readiness or startup probe for a container by result.",
        );
        for (key, record) in &*probes {
            for (result, count) in RESULTS.iter().zip(&record.results) {
                let count = count.load(Ordering::Relaxed);
                // Results that never occurred have no sample.
                if count == 0 {
                    continue;
                }
                let labels = [
                    ("container", &*key.container),
                    ("namespace", &*key.namespace),
                    ("pod", &*key.pod),
                    ("pod_uid", key.uid.as_str()),
                    ("probe_type", key.kind),
                    ("result", result),
                ];
                line(text, total, &labels, Value::Integer(count), None);
            }
        }
        let duration = "prober_probe_duration_seconds";
        family(text, duration, Kind::Histogram, "Duration in seconds for a probe response.");
        let mut known = None;
        for (key, record) in &*probes {
            // The labels lack the UID. While a pod terminates and another of its name starts, only the first is written.
            let labels = [
                ("container", &*key.container),
                ("namespace", &*key.namespace),
                ("pod", &*key.pod),
                ("probe_type", key.kind),
            ];
            let is_repeated = known.replace(labels).is_some_and(|before| before == labels);
            if !is_repeated {
                record.took.write(text, duration, &labels);
            }
        }
    }
}
