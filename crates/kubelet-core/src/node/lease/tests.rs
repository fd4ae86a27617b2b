//! Answers in, calls out. A script is a list of answers: `ok` the call worked, `404`, `409`, `err`; `wait` lets time pass.

use expect_test::{Expect, expect};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

mod api_server_restart;

fn at(millis: u64) -> Now {
    Now {
        wall: Timestamp::from_millisecond(i64::try_from(millis).unwrap()).unwrap(),
        mono: MonoTime::from_start(Duration::from_millis(millis)),
    }
}

fn answer(step: &LeaseStep, outcome: &str) -> LeaseAnswer {
    match (outcome, step) {
        ("404", _) => LeaseAnswer::NotFound,
        ("409", _) => LeaseAnswer::Conflict,
        ("ok", LeaseStep::Create(lease) | LeaseStep::Update(lease)) => LeaseAnswer::Lease(lease.clone()),
        ("ok", _) => LeaseAnswer::Lease(Box::default()),
        ("busy", _) => LeaseAnswer::Refused { retry_after: Duration::from_secs(2) },
        ("busy-long", _) => LeaseAnswer::Refused { retry_after: Duration::from_secs(60) },
        _ => LeaseAnswer::Failed,
    }
}

fn name(step: &LeaseStep) -> String {
    match step {
        LeaseStep::Get => "get".into(),
        LeaseStep::Create(_) => "create".into(),
        LeaseStep::Update(_) => "update".into(),
        LeaseStep::Wait { until } => format!("wait until {}ms", until.since_start().as_millis()),
    }
}

#[track_caller]
fn check(script: &str, expected: Expect) {
    let mut lease = NodeLease::new("n1", 40);
    let mut now = 0;
    let mut shown = Vec::new();
    for outcome in script.split_whitespace() {
        let mut step = lease.next(None, at(now));
        if let LeaseStep::Wait { until } = step {
            shown.push(name(&step));
            now = u64::try_from(until.since_start().as_millis()).unwrap();
            step = lease.next(None, at(now));
        }
        let reopens = lease.record(&step, answer(&step, outcome), 0.5, at(now).mono);
        shown.push(format!("{} {outcome}{}", name(&step), if reopens { " (reopen)" } else { "" }));
    }
    shown.push(name(&lease.next(None, at(now))));
    expected.assert_eq(&shown.join(", "));
}

#[test]
fn a_lease_that_is_missing_is_created_and_renewed_every_quarter() {
    check(
        "404 ok ok ok",
        expect![
            "get 404, create ok, wait until 10200ms, update ok, wait until 20400ms, update ok, wait until 30600ms"
        ],
    );
}

#[test]
fn a_lease_that_exists_is_renewed_at_once() {
    check("ok ok", expect!["get ok, update ok, wait until 10200ms"]);
}

#[test]
fn a_failed_renewal_is_tried_five_times_at_once_and_then_at_the_next_period() {
    check(
        "ok ok err err err err err ok",
        expect![
            "get ok, update ok, wait until 10200ms, update err, update err (reopen), update err (reopen), update err (reopen), update err (reopen), wait until 20400ms, update ok, wait until 30600ms"
        ],
    );
}

#[test]
fn refused_renewals_wait_as_long_as_the_server_asks_up_to_a_period() {
    check(
        "ok ok busy busy ok",
        expect![
            "get ok, update ok, wait until 10200ms, update busy, wait until 13200ms, update busy, wait until 16200ms, update ok, wait until 26400ms"
        ],
    );
    check(
        "ok ok busy-long ok",
        expect![
            "get ok, update ok, wait until 10200ms, update busy-long, wait until 20400ms, update ok, wait until 30600ms"
        ],
    );
    check(
        "busy busy-long 404 busy ok ok",
        expect![
            "get busy, wait until 3000ms, get busy-long, wait until 13200ms, get 404, create busy, wait until 16200ms, get ok, update ok, wait until 26400ms"
        ],
    );
}

#[test]
fn after_a_conflict_the_lease_is_read_again() {
    check("ok 409 ok ok", expect!["get ok, update 409, get ok, update ok, wait until 10200ms"]);
    check("404 409 ok ok", expect!["get 404, create 409, get ok, update ok, wait until 10200ms"]);
    check("ok 404 404 ok", expect!["get ok, update 404, get 404, create ok, wait until 10200ms"]);
}

#[test]
fn reading_the_lease_backs_off_to_seven_seconds() {
    check(
        "err err err err err err err err",
        expect![
            "get err, wait until 100ms, get err, wait until 300ms, get err, wait until 700ms, get err, wait until 1500ms, get err, wait until 3100ms, get err, wait until 6300ms, get err, wait until 12700ms, get err, wait until 19700ms"
        ],
    );
    check(
        "404 err 404 err",
        expect!["get 404, create err, wait until 100ms, get 404, create err, wait until 300ms"],
    );
}

#[test]
fn the_lease_names_its_holder_and_its_owner_once_that_is_known() {
    let mut lease = NodeLease::new("n1", 40);
    lease.record(&LeaseStep::Get, LeaseAnswer::NotFound, 0.0, MonoTime::ZERO);
    let LeaseStep::Create(created) = lease.next(None, at(1500)) else { panic!("no creation") };
    expect![[r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"n1","namespace":"kube-node-lease"},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,"renewTime":"1970-01-01T00:00:01.500000Z"}}"#]]
        .assert_eq(&serde_json::to_string(&created).unwrap());
    let step = LeaseStep::Create(created.clone());
    lease.record(&step, LeaseAnswer::Lease(created), 0.0, MonoTime::ZERO);
    let LeaseStep::Update(updated) = lease.next(Some("uid-1"), at(10_000)) else { panic!("no update") };
    expect![[r#"[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"uid-1"}]"#]]
        .assert_eq(&serde_json::to_string(&updated.metadata.owner_references).unwrap());
}

#[test]
fn an_existing_owner_of_the_lease_stays() {
    let mut lease = NodeLease::new("n1", 40);
    let theirs: Lease = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "n1", "resourceVersion": "7", "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "old"}]},
        "spec": {"holderIdentity": "n1", "leaseTransitions": 3},
    }))
    .unwrap();
    lease.record(&LeaseStep::Get, LeaseAnswer::Lease(Box::new(theirs)), 0.0, MonoTime::ZERO);
    let LeaseStep::Update(updated) = lease.next(Some("new"), at(0)) else { panic!("no update") };
    assert_eq!(updated.metadata.owner_references.unwrap()[0].uid, "old");
    assert_eq!(updated.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(updated.spec.unwrap().lease_transitions, Some(3));
}

proptest! {
    #[test]
    fn next_lease_call_is_at_most_one_period_away_whatever_the_api_answers(outcomes in prop::collection::vec(prop::sample::select(vec!["ok", "404", "409", "err"]), 0..40), random in 0.0..1.0) {
        let mut lease = NodeLease::new("n1", 40);
        let mut now = MonoTime::ZERO;
        let mut calls_at_once = 0;
        for outcome in outcomes {
            let mut step = lease.next(None, Now { wall: Timestamp::UNIX_EPOCH, mono: now });
            if let LeaseStep::Wait { until } = step {
                prop_assert!(until.saturating_since(now) <= Duration::from_millis(10_400));
                (now, calls_at_once) = (until, 0);
                step = lease.next(None, Now { wall: Timestamp::UNIX_EPOCH, mono: now });
            }
            calls_at_once = if outcome == "err" { calls_at_once + 1 } else { 0 };
            prop_assert!(calls_at_once <= 6);
            lease.record(&step, answer(&step, outcome), random, now);
        }
    }
}
