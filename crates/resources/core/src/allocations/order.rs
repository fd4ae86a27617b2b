//! The order in which resizes that wait are tried.

use std::cmp::{Ordering, Reverse};

use model::QosClass;
use model::containers::spec_of;
use model::k8s::Pod;

use crate::requests::{Requests, pod_requests};

/// A resize that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<'a, T> {
    pub(super) requested: &'a Pod,
    pub(super) allocated: &'a Pod,
    /// Since when it is known to wait; `None` for one that was not tried yet.
    pub(super) since: Option<T>,
}

/// Resizes that request no more come first; then pods of higher priority, Guaranteed pods before others, and those that have
/// waited for longer.
pub(super) fn compare<T: Ord>(a: &Waiting<'_, T>, b: &Waiting<'_, T>) -> Ordering {
    let key = |waiting: &Waiting<'_, T>| {
        if !is_increase(waiting) {
            return (false, Reverse(0), false);
        }
        let priority = spec_of(waiting.requested).priority.unwrap_or(0);
        (true, Reverse(priority), QosClass::of(waiting.requested) != QosClass::Guaranteed)
    };
    // One that was not tried yet has waited for the shortest time.
    let by_time = || match (&a.since, &b.since) {
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    key(a).cmp(&key(b)).then_with(by_time)
}

/// The resize requests more CPU or memory for the pod.
fn is_increase<T>(waiting: &Waiting<'_, T>) -> bool {
    let (from, to) = (pod_requests(waiting.allocated), pod_requests(waiting.requested));
    let amount = |requests: &Requests, name: &str| requests.get(name).copied().unwrap_or_default();
    ["cpu", "memory"].into_iter().any(|name| amount(&to, name) > amount(&from, name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(cpu: &str, priority: i32, is_guaranteed: bool) -> Pod {
        let amounts = json!({"cpu": cpu, "memory": "1Gi"});
        let limits = if is_guaranteed { amounts.clone() } else { json!({}) };
        let container = json!({"name": "c", "resources": {"requests": amounts, "limits": limits}});
        serde_json::from_value(json!({"spec": {"priority": priority, "containers": [container]}})).unwrap()
    }

    /// The cases of the Go kubelet's test of its order of pending resizes.
    #[test]
    fn decreases_come_first_then_priority_then_guaranteed_pods_then_the_oldest() {
        let small = pod("1", 0, false);
        let requested = [
            ("decrease", pod("500m", 0, false), Some(9)),
            ("important", pod("2", 100, false), Some(8)),
            ("guaranteed", pod("2", 0, true), Some(7)),
            ("oldest", pod("2", 0, false), Some(1)),
            ("younger", pod("2", 0, false), Some(2)),
            ("new", pod("2", 0, false), None),
        ];
        let waiting = requested
            .iter()
            .map(|(name, requested, since)| (*name, Waiting { requested, allocated: &small, since: *since }));
        let mut all: Vec<_> = waiting.collect();
        for rotation in 0..all.len() {
            all.rotate_left(rotation);
            all.sort_by(|(_, a), (_, b)| compare(a, b));
            let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, ["decrease", "important", "guaranteed", "oldest", "younger", "new"]);
        }
    }
}
