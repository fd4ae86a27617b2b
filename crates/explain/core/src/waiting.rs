//! How many pods wait, for what and how long: the explanations of all pods, added up for metrics.

use std::collections::BTreeMap;

use jiff::Timestamp;
use model::explain::{PodExplanation, Verdict};

/// Reasons are words of Kubernetes and of this node. Further ones than these are counted together.
const MAX_REASONS: usize = 64;
const OTHER: &str = "Other";
/// A pod that waits without a cause.
const UNKNOWN: &str = "Unknown";

/// The pods that wait for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub pods: u64,
    /// How long the one that waits longest has waited.
    pub longest_seconds: u64,
}

/// The pods that wait, by the reason of their first cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingPods(BTreeMap<String, Waiting>);

impl WaitingPods {
    /// Adds a pod, if it waits.
    pub fn add(&mut self, pod: &PodExplanation, now: Timestamp) {
        if pod.verdict != Verdict::Waiting {
            return;
        }
        let reason = pod.causes.first().map_or(UNKNOWN, |cause| &cause.reason);
        let is_full = self.0.len() >= MAX_REASONS && !self.0.contains_key(reason);
        let row = self.0.entry(if is_full { OTHER } else { reason }.to_owned()).or_default();
        let waited = pod.since.map_or(0, |since| now.duration_since(since).as_secs());
        row.pods += 1;
        row.longest_seconds = row.longest_seconds.max(u64::try_from(waited).unwrap_or(0));
    }

    /// By reason.
    pub fn rows(&self) -> impl Iterator<Item = (&str, Waiting)> {
        self.0.iter().map(|(reason, waiting)| (reason.as_str(), *waiting))
    }
}

#[cfg(test)]
mod tests {
    use model::explain::Cause;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(verdict: Verdict, reason: &str, since: i64) -> PodExplanation {
        let cause = Cause { reason: reason.to_owned(), ..Cause::default() };
        let causes = if reason.is_empty() { Vec::new() } else { vec![cause] };
        PodExplanation { verdict, causes, since: Some(at(since)), ..PodExplanation::default() }
    }

    #[test]
    fn pods_that_wait_are_counted_by_reason_with_the_longest_wait() {
        let mut waiting = WaitingPods::default();
        for (verdict, reason, since) in [
            (Verdict::Waiting, "ImagePullBackOff", 40),
            (Verdict::Waiting, "ImagePullBackOff", 10),
            (Verdict::Waiting, "FailedMount", 95),
            (Verdict::Waiting, "", 300),
            (Verdict::Fine, "", 0),
            (Verdict::Failed, "Evicted", 0),
        ] {
            waiting.add(&pod(verdict, reason, since), at(100));
        }
        let rows: Vec<String> = waiting
            .rows()
            .map(|(reason, Waiting { pods, longest_seconds })| format!("{reason} {pods} {longest_seconds}"))
            .collect();
        assert_eq!(rows, ["FailedMount 1 5", "ImagePullBackOff 2 90", "Unknown 1 0"]);
    }

    #[test]
    fn reasons_are_bounded() {
        let mut waiting = WaitingPods::default();
        for number in 0..1000 {
            waiting.add(&pod(Verdict::Waiting, &format!("Reason{number}"), 0), at(1));
        }
        let rows: Vec<_> = waiting.rows().collect();
        assert_eq!((rows.len(), rows.iter().map(|(_, row)| row.pods).sum::<u64>()), (MAX_REASONS + 1, 1000));
    }
}
