use std::collections::BTreeMap;

use model::k8s::Pod;
use serde_json::json;

use super::*;

fn at(millis: u64) -> MonoTime {
    MonoTime::from_start(Duration::from_millis(millis))
}

fn waits(since: u64, urgency: StatusUrgency) -> WaitingStatus {
    WaitingStatus { since: at(since), urgency }
}

#[test]
fn order_puts_ends_before_readiness_before_routine_statuses() {
    use StatusUrgency::{Ended, Readiness, Routine};
    let order = |waiting: &[WaitingStatus]| compute_status_order(waiting);
    assert_eq!(order(&[waits(0, Routine), waits(0, Readiness), waits(0, Ended)]), [2, 1, 0]);
    assert_eq!(order(&[waits(0, Routine), waits(900, Readiness), waits(1900, Ended)]), [2, 1, 0]);
    assert_eq!(order(&[waits(5, Routine), waits(3, Routine), waits(4, Routine)]), [1, 2, 0]);
    // An urgent status passes a routine one only for as long as the head start.
    assert_eq!(order(&[waits(3000, Ended), waits(0, Routine)]), [1, 0]);
    assert_eq!(order(&[]), [0; 0]);
}

/// Sixteen slots, each call takes 100 ms, and sixteen pods end again and again: every other pod gets its turn.
#[test]
fn no_status_starves_behind_sixteen_pods_that_are_always_urgent() {
    let mut waiting: BTreeMap<usize, WaitingStatus> = BTreeMap::new();
    waiting.extend((0..16).map(|pod| (pod, waits(0, StatusUrgency::Ended))));
    waiting.extend((16..116).map(|pod| (pod, waits(0, StatusUrgency::Routine))));
    let mut served_at = BTreeMap::new();
    for round in 0..100_u64 {
        let (pods, all): (Vec<usize>, Vec<WaitingStatus>) = waiting.iter().map(|(p, w)| (*p, *w)).unzip();
        for index in compute_status_order(&all).into_iter().take(16) {
            let pod = pods[index];
            served_at.entry(pod).or_insert(round * 100);
            waiting.remove(&pod);
            if pod < 16 {
                waiting.insert(pod, waits((round + 1) * 100, StatusUrgency::Ended));
            }
        }
    }
    assert_eq!(served_at.len(), 116, "{served_at:?}");
    let last = served_at.values().max().copied().unwrap_or_default();
    assert!(last <= 2000 + 800, "the last pod waited {last} ms");
}

#[test]
fn urgency_is_read_from_phase_readiness_and_deletion() {
    let pod =
        |status: serde_json::Value| Pod { status: serde_json::from_value(status).unwrap(), ..Pod::default() };
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let unready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
    let ended = json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]});
    let of = |in_api: &Pod, found: &serde_json::Value| {
        let in_api = ApiPod::new(in_api.clone(), None, jiff::Timestamp::UNIX_EPOCH);
        compute_status_urgency(&in_api, &serde_json::from_value(found.clone()).unwrap())
    };
    assert_eq!(of(&pod(json!({})), &unready), StatusUrgency::Routine);
    assert_eq!(of(&pod(unready.clone()), &ready), StatusUrgency::Readiness);
    assert_eq!(of(&pod(ready.clone()), &unready), StatusUrgency::Readiness);
    assert_eq!(of(&pod(ready.clone()), &ready), StatusUrgency::Routine);
    assert_eq!(of(&pod(ready.clone()), &ended), StatusUrgency::Ended);
    assert_eq!(of(&pod(ended.clone()), &ended), StatusUrgency::Routine);
    let mut deleted = pod(ready.clone());
    deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(of(&deleted, &ready), StatusUrgency::Ended);
}

#[test]
fn retry_delays_double_up_to_their_bound() {
    let delays = |failure| {
        let mut before = None;
        let next = || {
            before = Some(compute_status_retry(before, failure));
            before.map(|delay| delay.as_millis())
        };
        std::iter::repeat_with(next).take(12).flatten().collect::<Vec<_>>()
    };
    let temporary = delays(StatusFailure::Temporary);
    assert_eq!(temporary[..6], [500, 1000, 2000, 4000, 8000, 10_000]);
    assert_eq!(temporary[11], 10_000);
    let rejected = delays(StatusFailure::Rejected);
    assert_eq!(rejected[..4], [1000, 2000, 4000, 8000]);
    assert_eq!(rejected[11], 300_000);
}
