//! The metric of certificates that the kubelet requests for pods (docs/behaviour/metrics.md).
//!
//! Owns the last reported states of each pod, which are counted at each scrape, because some depend on the time. A node without such
//! pods has no such metric.

use std::collections::BTreeMap;
use std::sync::Arc;

use base_agent::metrics::{Counts, Family};
use jiff::Timestamp;
use model::PodUid;
use parking_lot::Mutex;
use stats_core::exposition::Kind;
use volumes_core::pod_certificate::CertificateStatus;

const STATES: Family = Family::new(
    "kubelet_podcertificate_states",
    &["signer_name", "state"],
    "Number of podCertificate sources of pods on this node, by signer and state.",
);

/// The name of the signer, and the state.
type Reported = Vec<(String, CertificateStatus)>;

/// The states of all pods.
#[derive(Debug, Default)]
pub struct PodCertificateMetrics {
    pods: Arc<Mutex<BTreeMap<PodUid, Reported>>>,
}

/// The states of one pod, until dropped.
#[derive(Debug)]
pub(crate) struct PodCertificateReport {
    pods: Arc<Mutex<BTreeMap<PodUid, Reported>>>,
    uid: PodUid,
}

impl PodCertificateReport {
    pub(crate) fn set(&self, states: impl Iterator<Item = (String, CertificateStatus)>) {
        self.pods.lock().insert(self.uid.clone(), states.collect());
    }
}

impl Drop for PodCertificateReport {
    fn drop(&mut self) {
        self.pods.lock().remove(&self.uid);
    }
}

impl PodCertificateMetrics {
    pub(crate) fn pod(&self, uid: &PodUid) -> PodCertificateReport {
        PodCertificateReport { pods: self.pods.clone(), uid: uid.clone() }
    }

    pub fn write(&self, text: &mut String, now: Timestamp) {
        let (counts, pods) = (Counts::default(), self.pods.lock());
        if pods.is_empty() {
            return;
        }
        for (signer, status) in pods.values().flatten() {
            counts.add(&[signer, status.label(now)]);
        }
        counts.write(text, Kind::Gauge, STATES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_certificates_are_counted_by_signer_and_state_until_their_pod_ends() {
        let (metrics, at) =
            (PodCertificateMetrics::default(), |second| Timestamp::from_second(second).unwrap());
        let text = |now| {
            let mut text = String::new();
            metrics.write(&mut text, at(now));
            text
        };
        assert_eq!(text(0), "");
        let (one, two) = (metrics.pod(&PodUid::from("u1")), metrics.pod(&PodUid::from("u2")));
        let issued = CertificateStatus::Issued { refresh_at: at(1000), not_after: at(3000) };
        let signer = || "s.example/x".to_owned();
        one.set([(signer(), issued), (signer(), CertificateStatus::NotIssued)].into_iter());
        two.set([("o\"ther".to_owned(), CertificateStatus::Denied), (signer(), issued)].into_iter());
        let lines = |now| {
            text(now)
                .lines()
                .skip(2)
                .map(|line| line.strip_prefix(STATES.name).unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let other = "{signer_name=\"o\\\"ther\",state=\"denied\"} 1";
        let waiting = "{signer_name=\"s.example/x\",state=\"not_yet_issued\"} 1";
        let of =
            |state: &str, count: u32| format!("{{signer_name=\"s.example/x\",state=\"{state}\"}} {count}");
        assert_eq!(lines(1000), [other, &of("fresh", 2), waiting]);
        assert_eq!(lines(1601), [other, waiting, &of("overdue_for_refresh", 2)]);
        assert_eq!(lines(3001), [other, &of("expired", 2), waiting]);
        drop(two);
        assert_eq!(lines(1000), [&of("fresh", 1), waiting]);
    }
}
