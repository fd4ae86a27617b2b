//! Occurrences in, steps out. A script is a row of `reason:message`, `+60s` lets time pass.

use expect_test::{Expect, expect};
use model::MonoTime;
use proptest::prelude::*;

use super::*;

fn at(second: u64) -> Now {
    Now {
        wall: Timestamp::from_second(i64::try_from(second).unwrap()).unwrap(),
        mono: MonoTime::from_start(Duration::from_secs(second)),
    }
}

fn about(name: &str, reason: &str, message: &str) -> Occurrence {
    let about = ObjectReference {
        kind: Some("Pod".into()),
        namespace: Some("ns".into()),
        name: Some(name.into()),
        uid: Some(format!("uid-{name}")),
        ..ObjectReference::default()
    };
    let annotations = BTreeMap::new();
    Occurrence { about, is_warning: true, reason: reason.into(), message: message.into(), annotations }
}

fn shown(step: &EventStep) -> String {
    match step {
        EventStep::Create { event, .. } => format!("create {}", event.message.as_deref().unwrap_or_default()),
        EventStep::Patch { patch, name, .. } => format!("count {name} {}", patch["count"]),
        EventStep::Drop => "drop".into(),
    }
}

fn play(correlator: &mut EventCorrelator, now: &mut u64, script: &str) -> Vec<String> {
    let mut steps = Vec::new();
    for word in script.split_whitespace() {
        if let Some(seconds) = word.strip_prefix('+').and_then(|s| s.strip_suffix('s')) {
            *now += seconds.parse::<u64>().unwrap();
            continue;
        }
        let (reason, message) = word.split_once(':').unwrap();
        steps.push(shown(&correlator.correlate(about("p", reason, message), at(*now))));
    }
    steps
}

#[track_caller]
fn check(script: &str, expected: Expect) {
    expected.assert_eq(&play(&mut EventCorrelator::new("n1"), &mut 1, script).join(", "));
}

#[test]
fn event_has_object_reason_message_and_source() {
    let step = EventCorrelator::new("n1").correlate(about("p", "Failed", "no"), at(1));
    let EventStep::Create { event, .. } = step else { panic!("not created") };
    expect![[r#"{"apiVersion":"v1","count":1,"firstTimestamp":"1970-01-01T00:00:01Z","involvedObject":{"kind":"Pod","name":"p","namespace":"ns","uid":"uid-p"},"kind":"Event","lastTimestamp":"1970-01-01T00:00:01Z","message":"no","metadata":{"name":"p.3b9aca00","namespace":"ns"},"reason":"Failed","reportingComponent":"kubelet","reportingInstance":"n1","source":{"component":"kubelet","host":"n1"},"type":"Warning"}"#]]
        .assert_eq(&serde_json::to_value(&event).unwrap().to_string());
}

#[test]
fn events_about_nodes_are_kept_in_the_default_namespace() {
    let mut occurrence = about("n1", "Starting", "Starting kubelet.");
    occurrence.about.namespace = None;
    let EventStep::Create { event, .. } = EventCorrelator::new("n1").correlate(occurrence, at(1)) else {
        panic!("not created")
    };
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(event.involved_object.namespace, None);
}

#[test]
fn repeated_event_is_counted() {
    check(
        "BackOff:x +5s BackOff:x Other:x BackOff:x",
        expect!["create x, count p.3b9aca00 2, create x, count p.3b9aca00 3"],
    );
    let mut correlator = EventCorrelator::new("n1");
    correlator.correlate(about("p", "BackOff", "x"), at(1));
    let EventStep::Patch { patch, event, namespace, .. } =
        correlator.correlate(about("p", "BackOff", "x"), at(7))
    else {
        panic!("not counted")
    };
    assert_eq!(patch, json!({"count": 2, "lastTimestamp": "1970-01-01T00:00:07Z", "message": "x"}));
    assert_eq!(event.first_timestamp, Some(Time(Timestamp::from_second(1).unwrap())));
    assert_eq!(namespace, "ns");
}

#[test]
fn the_tenth_different_message_of_a_kind_is_combined() {
    check(
        "F:1 F:2 F:3 F:4 F:5 F:6 F:7 F:8 F:9 F:10 +1s F:11 G:1",
        expect![
            "create 1, create 2, create 3, create 4, create 5, create 6, create 7, create 8, create 9, create (combined from similar events): 10, count p.3b9aca09 2, create 1"
        ],
    );
}

#[test]
fn messages_are_sent_individually_again_after_ten_minutes_without_events() {
    check(
        "F:1 F:2 F:3 F:4 F:5 F:6 F:7 F:8 F:9 +601s F:10",
        expect![
            "create 1, create 2, create 3, create 4, create 5, create 6, create 7, create 8, create 9, create 10"
        ],
    );
}

#[test]
fn an_object_has_a_budget_of_its_own() {
    let mut correlator = EventCorrelator::new("n1");
    let mut now = 1;
    let burst = play(&mut correlator, &mut now, &"F:x ".repeat(27));
    assert_eq!(burst.iter().filter(|step| *step == "drop").count(), 2);
    assert_eq!(shown(&correlator.correlate(about("q", "F", "x"), at(1))), "create x");
    assert_eq!(
        play(&mut correlator, &mut now, "+299s F:x +1s F:x F:x"),
        ["drop", "count p.3b9aca00 29", "drop"]
    );
}

/// A failing probe, and then the end of the container.
#[test]
fn warnings_leave_the_budget_of_normal_events() {
    let mut correlator = EventCorrelator::new("n1");
    let warnings = play(&mut correlator, &mut 1, &"Unhealthy:x ".repeat(30));
    assert_eq!(warnings.iter().filter(|step| *step == "drop").count(), 5);
    let killing = Occurrence { is_warning: false, ..about("p", "Killing", "bye") };
    assert_eq!(shown(&correlator.correlate(killing.clone(), at(1))), "create bye");
    correlator.forget(&killing.about);
    assert_eq!(play(&mut correlator, &mut 1, "Unhealthy:x"), ["create x"]);
}

#[test]
fn event_that_the_api_did_not_accept_is_created_again() {
    let mut correlator = EventCorrelator::new("n1");
    let EventStep::Create { key, .. } = correlator.correlate(about("p", "F", "x"), at(1)) else { panic!() };
    correlator.event_lost(&key);
    assert_eq!(shown(&correlator.correlate(about("p", "F", "x"), at(3))), "create x");
}

#[test]
fn an_event_that_was_renamed_is_counted_up_under_its_new_name() {
    let mut correlator = EventCorrelator::new("n1");
    correlator.correlate(about("p", "F", "x"), at(1));
    let EventStep::Patch { key, mut event, .. } = correlator.correlate(about("p", "F", "x"), at(2)) else {
        panic!("not counted")
    };
    correlator.rename(&key, &mut event, at(3).wall);
    assert_eq!(event.metadata.name.as_deref(), Some("p.b2d05e00"));
    assert_eq!(shown(&correlator.correlate(about("p", "F", "x"), at(4))), "count p.b2d05e00 3");
}

#[test]
fn events_about_a_forgotten_object_are_new_and_those_about_others_are_counted() {
    let mut correlator = EventCorrelator::new("n1");
    for name in ["p", "q"] {
        (0..BURST).for_each(|_| drop(correlator.correlate(about(name, "F", "x"), at(1))));
    }
    correlator.forget(&about("p", "F", "x").about);
    assert_eq!(shown(&correlator.correlate(about("p", "F", "x"), at(301))), "create x");
    assert_eq!(shown(&correlator.correlate(about("q", "F", "x"), at(301))), "count q.3b9aca19 26");
    correlator.forget(&about("q", "G", "y").about);
    correlator.forget(&about("p", "G", "y").about);
    let sizes = [correlator.similar.len(), correlator.limiters.len(), correlator.sent.len()];
    assert_eq!(sizes, [0; 3]);
}

#[test]
fn the_memory_of_an_event_has_a_fixed_size_and_holds_no_text() {
    const fn is_plain<T: Copy>() {}
    is_plain::<Similar>();
    is_plain::<RateLimiter>();
    is_plain::<SentEvent>();
    assert!(size_of::<Similar>() + size_of::<RateLimiter>() + size_of::<SentEvent>() <= 200);
}

proptest! {
    #[test]
    fn events_about_an_object_never_exceed_its_budget(
        gaps in prop::collection::vec((0..400_u64, 0..20_u8), 1..80)
    ) {
        let mut correlator = EventCorrelator::new("n1");
        let (mut now, mut sent) = (0, 0.0);
        for (gap, message) in gaps {
            now += gap;
            let step = correlator.correlate(about("p", "F", &message.to_string()), at(now));
            sent += if step == EventStep::Drop { 0.0 } else { 1.0 };
            prop_assert!(sent <= f64::from(BURST) + Duration::from_secs(now).as_secs_f64() * PER_SECOND + 1e-9);
        }
    }
}
