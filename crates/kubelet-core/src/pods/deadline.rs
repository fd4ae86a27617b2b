//! How long a pod may be active (docs/behaviour/pod-lifecycle.md). The state of its containers does not matter.

use std::time::Duration;

use jiff::Timestamp;
use model::containers::spec_of;
use model::k8s::Pod;

/// `status.reason` of a pod that exceeded its deadline.
pub const REASON: &str = "DeadlineExceeded";
/// Its `status.message`.
pub const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// The instant at which the pod has been active for `spec.activeDeadlineSeconds`, measured from its
/// `status.startTime`; `None` if it has no such limit. A deadline beyond the representable time counts as none.
#[must_use]
pub fn deadline(pod: &Pod, start_time: Timestamp) -> Option<Timestamp> {
    let seconds = u64::try_from(spec_of(pod).active_deadline_seconds?).unwrap_or(0);
    start_time.checked_add(Duration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: Option<i64>, expected: Option<&str>) {
        let mut pod = crate::pods::fixture::pod("main:a");
        pod.spec.as_mut().unwrap().active_deadline_seconds = seconds;
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(deadline(&pod, start), expected.map(|at| at.parse().unwrap()));
    }

    #[test]
    fn active_deadline_counts_from_the_start_time() {
        check(None, None);
        check(Some(90), Some("2026-01-01T00:01:30Z"));
        check(Some(0), Some("2026-01-01T00:00:00Z"));
        check(Some(-5), Some("2026-01-01T00:00:00Z"));
        check(Some(i64::MAX), None);
    }
}
