//! The order in which pod statuses are written to the API, and when a rejected status is sent again.
//!
//! Owns: the urgency of a status, the order of the pods that wait for a call, the back-off after a failed call. Never: the
//! content of the status (`status_patch`), the calls themselves.

use std::time::Duration;

use model::MonoTime;
use model::k8s::PodStatus;
use model::pod_status::{has_ended, is_ready};

use sources_core::ApiPod;

#[cfg(test)]
mod tests;

/// A routine status waits this long behind an urgent one that comes after it, and never longer: no pod starves.
const HEAD_START: Duration = Duration::from_secs(1);

/// Back-off after a call that may succeed later.
const RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(10);
/// Back-off after the API rejected the status itself: the same status is rejected again until something changes.
const REJECTED_RETRY: Duration = Duration::from_secs(1);
const MAX_REJECTED_RETRY: Duration = Duration::from_secs(300);

/// How urgently other components need a status. Controllers wait for the end of a pod, Services for readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusUrgency {
    /// The pod ended, or is being deleted.
    Ended,
    /// The pod becomes ready, or ceases to be.
    Readiness,
    Routine,
}

/// A pod whose status waits for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingStatus {
    pub since: MonoTime,
    pub urgency: StatusUrgency,
}

/// The urgency of `found`, given the pod in the API.
#[must_use]
pub fn compute_status_urgency(in_api: &ApiPod, found: &PodStatus) -> StatusUrgency {
    let current = in_api.status.as_ref();
    let had_ended = current.is_some_and(|status| has_ended(status));
    if in_api.pod.metadata.deletion_timestamp.is_some() || (has_ended(found) && !had_ended) {
        return StatusUrgency::Ended;
    }
    let was_ready = current.is_some_and(|status| is_ready(status));
    if is_ready(found) == was_ready { StatusUrgency::Routine } else { StatusUrgency::Readiness }
}

/// The pods, by their index, in the order in which they get a call: those that wait longest first, after a head start for
/// urgent ones. A pod that has just had a call comes after all that waited in the meantime.
#[must_use]
pub fn compute_status_order(waiting: &[WaitingStatus]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..waiting.len()).collect();
    order.sort_by_key(|index| {
        let WaitingStatus { since, urgency } = waiting[*index];
        let behind = match urgency {
            StatusUrgency::Ended => Duration::ZERO,
            StatusUrgency::Readiness => HEAD_START,
            StatusUrgency::Routine => HEAD_START * 2,
        };
        (since + behind, urgency)
    });
    order
}

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFailure {
    /// The same call may succeed later.
    Temporary,
    /// The API does not accept this status of this object.
    Rejected,
}

/// How long to wait after a failed call, given the delay after the failed call before it. A rejected status that has
/// changed since is a new one: `before` is then `None`.
#[must_use]
pub fn compute_status_retry(before: Option<Duration>, failure: StatusFailure) -> Duration {
    let (first, max) = match failure {
        StatusFailure::Temporary => (RETRY, MAX_RETRY),
        StatusFailure::Rejected => (REJECTED_RETRY, MAX_REJECTED_RETRY),
    };
    before.map_or(first, |before| before.saturating_mul(2).clamp(first, max))
}
