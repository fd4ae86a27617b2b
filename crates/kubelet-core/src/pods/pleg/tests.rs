//! Two listings in, the events out. A listing reads `pod: a=running box=ready; pod2: …`.

use config::Features;
use expect_test::{Expect, expect};
use model::Now;
use proptest::prelude::*;

use super::*;
use crate::pods::fixture::new_instance;

fn listing(text: &str) -> Listing {
    let pods = text.split(';').filter(|pod| !pod.trim().is_empty());
    pods.map(|pod| {
        let (uid, items) = pod.split_once(':').expect("pod: items");
        let mut listing = PodListing::default();
        for item in items.split_whitespace() {
            let (id, state) = item.split_once('=').expect("id=state");
            let _ = match state {
                "ready" => listing.sandboxes.insert(id.into(), SandboxState::Ready).is_some(),
                "notready" => listing.sandboxes.insert(id.into(), SandboxState::NotReady).is_some(),
                "created" => listing.containers.insert(id.into(), ContainerState::Created).is_some(),
                "running" => listing.containers.insert(id.into(), ContainerState::Running).is_some(),
                "exited" => listing.containers.insert(id.into(), ContainerState::Exited).is_some(),
                "unknown" => listing.containers.insert(id.into(), ContainerState::Unknown).is_some(),
                other => panic!("no state {other}"),
            };
        }
        (PodUid::from(uid.trim()), listing)
    })
    .collect()
}

/// Ended with that code for that reason, so many milliseconds ago; no end where there is no such number.
#[track_caller]
fn check_final(code: i32, reason: &str, ago: Option<i64>, expected: bool) {
    let now = Timestamp::from_second(1000).unwrap();
    let taken = Now { wall: now, mono: MonoTime::ZERO };
    let mut container = new_instance("a", SandboxId::from("box"), None, taken);
    container.state = if ago.is_some() { ContainerState::Exited } else { ContainerState::Running };
    container.finished_at = ago.map(|ago| now - jiff::SignedDuration::from_millis(ago));
    (container.exit_code, container.reason) = (code, reason.to_owned());
    assert_eq!(is_final(&container, now), expected, "{code} {reason} {ago:?}");
}

#[test]
fn status_of_a_killed_container_may_still_change_to_oom_killed() {
    check_final(137, "Error", Some(0), false);
    check_final(137, "Error", Some(9999), false);
    check_final(137, "Error", Some(10_000), true);
    check_final(137, "OOMKilled", Some(0), true);
    check_final(1, "Error", Some(0), true);
    check_final(0, "Completed", Some(0), true);
    check_final(0, "", None, false);
}

fn shown(diff: &PlegDiff) -> String {
    let line = |event: &PodLifecycleEvent| match &event.what {
        PodLifecycle::ContainerStarted(id) => format!("{}: {id} started", event.pod),
        PodLifecycle::ContainerDied(id) => format!("{}: {id} died", event.pod),
        PodLifecycle::ContainerRemoved(id) => format!("{}: {id} removed", event.pod),
        PodLifecycle::ContainerChanged(id) => format!("{}: {id} changed", event.pod),
        PodLifecycle::PodSync => format!("{}: sync", event.pod),
    };
    diff.events.iter().map(line).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(old: &str, new: &str, expected: Expect) {
    check_relook(old, new, "", expected);
}

#[track_caller]
fn check_relook(old: &str, new: &str, relook: &str, expected: Expect) {
    let relook = relook.split_whitespace().map(PodUid::from).collect();
    let diff = compute_pleg_diff(&listing(old), &listing(new), &relook);
    expected.assert_eq(&shown(&diff));
}

#[test]
fn nothing_new_is_no_event() {
    check("", "", expect![[""]]);
    check("p: a=running s=ready", "p: a=running s=ready", expect![[""]]);
    check("p: a=created", "p: a=unknown", expect![[""]]);
}

#[test]
fn a_new_pod_starts_with_its_sandbox() {
    check("", "p: s=ready", expect!["p: s started"]);
    check("p: s=ready", "p: s=ready a=created", expect![""]);
    check("p: s=ready a=created", "p: s=ready a=running", expect!["p: a started"]);
    check("", "p: s=ready a=running b=exited", expect!["p: a started, p: b died, p: s started"]);
}

#[test]
fn container_exit_is_reported_once() {
    check("p: a=running", "p: a=exited", expect!["p: a died"]);
    check("p: a=exited", "p:", expect!["p: a removed"]);
    check("p: a=exited", "", expect!["p: a removed"]);
    check("p: a=running", "", expect!["p: a died, p: a removed"]);
    check("p: a=created", "", expect!["p: a died, p: a removed"]);
    check("p: a=unknown s=ready", "p: s=notready", expect!["p: a died, p: a removed, p: s died"]);
}

#[test]
fn a_restart_between_two_listings_shows_both_instances() {
    check("p: a=running", "p: a=exited b=running", expect!["p: a died, p: b started"]);
}

#[test]
fn unknown_container_state_is_a_change() {
    check("p: a=running", "p: a=unknown", expect!["p: a changed"]);
}

#[test]
fn pleg_inspects_only_changed_pods() {
    let diff = compute_pleg_diff(
        &listing("p: a=running; q: b=running"),
        &listing("p: a=running; q: b=exited"),
        &BTreeSet::new(),
    );
    assert_eq!(diff.look, BTreeSet::from([PodUid::from("q")]));
}

#[test]
fn pod_whose_inspection_failed_is_inspected_again() {
    check_relook("p: a=running", "p: a=running", "p", expect!["p: sync"]);
    check_relook("p: a=running", "p: a=exited", "p", expect!["p: a died"]);
    check_relook("", "", "gone", expect!["gone: sync"]);
}

#[test]
fn overdue_relist_reports_its_age() {
    let at = |seconds| MonoTime::from_start(Duration::from_secs(seconds));
    assert_eq!(relist_problem(Some(at(10)), at(190), Features::default()), None);
    expect!["pleg was last seen active 3m1s ago; threshold is 3m0s"]
        .assert_eq(&relist_problem(Some(at(10)), at(191), Features::default()).unwrap_or_default());
    expect!["pleg has yet to be successful"]
        .assert_eq(&relist_problem(None, at(1), Features::default()).unwrap_or_default());
}

prop_compose! {
    fn any_listing()(
        items in prop::collection::vec((0..3_u8, 0..4_u8, 0..6_u8), 0..10),
    ) -> Listing {
        let states = ["created", "running", "exited", "unknown", "ready", "notready"];
        items.iter().fold(Listing::new(), |mut all, (pod, id, state)| {
            let text = format!("p{pod}: x{id}={}", states[usize::from(*state)]);
            for (uid, more) in listing(&text) {
                let entry = all.entry(uid).or_default();
                for (id, state) in more.sandboxes.iter() {
                    entry.sandboxes.insert(id.clone(), *state);
                }
                for (id, state) in more.containers.iter() {
                    entry.containers.insert(id.clone(), *state);
                }
            }
            all
        })
    }
}

proptest! {
    #[test]
    fn equal_listings_give_no_event(listing in any_listing()) {
        prop_assert_eq!(compute_pleg_diff(&listing, &listing, &BTreeSet::new()), PlegDiff::default());
    }

    #[test]
    fn container_that_disappears_is_reported_as_removed(old in any_listing(), new in any_listing()) {
        let diff = compute_pleg_diff(&old, &new, &BTreeSet::new());
        let gone: usize = old
            .iter()
            .map(|(pod, before)| {
                let after = new.get(pod).cloned().unwrap_or_default();
                before.containers.keys().filter(|id| !after.containers.contains_key(*id)).count()
                    + before.sandboxes.keys().filter(|id| !after.sandboxes.contains_key(*id)).count()
            })
            .sum();
        let reported = diff.events.iter().filter(|e| matches!(e.what, PodLifecycle::ContainerRemoved(_))).count();
        prop_assert_eq!(gone, reported);
    }
}

#[test]
fn relists_are_rare_only_while_no_worker_needs_one() {
    let period = |evented_pleg, on_demand_relist, need| {
        let features = Features { evented_pleg, on_demand_relist, ..Features::default() };
        relist_period(features, need).as_secs()
    };
    let complete = RelistNeed { are_events_complete: true, ..RelistNeed::default() };
    assert_eq!(period(true, true, complete), 300);
    assert_eq!(period(false, true, complete), 1, "the gate is off");
    assert_eq!(period(true, false, complete), 1, "workers wait for relists");
    assert_eq!(period(true, true, RelistNeed::default()), 1, "no events");
    assert_eq!(period(true, true, RelistNeed { is_owing: true, ..complete }), 1, "a pod is owed a look");
    let empty = RelistNeed { is_node_empty: true, ..RelistNeed::default() };
    assert_eq!(period(false, true, empty), 10, "no pod can change");
    assert_eq!(period(false, false, empty), 1, "the first worker would wait for it");
    assert_eq!(period(false, true, RelistNeed { is_owing: true, ..empty }), 1, "a pod is owed a look");
    assert_eq!(period(true, true, RelistNeed { is_node_empty: true, ..complete }), 300);
    for need in [complete, empty] {
        assert_eq!(period(true, true, RelistNeed { has_failed: true, ..need }), 1, "what is known is old");
    }
    let evented = Features { evented_pleg: true, ..Features::default() };
    let at = |seconds| MonoTime::from_start(Duration::from_secs(seconds));
    assert_eq!(relist_problem(Some(at(0)), at(600), evented), None);
    assert!(relist_problem(Some(at(0)), at(601), evented).is_some_and(|why| why.ends_with("is 10m0s")));
}
