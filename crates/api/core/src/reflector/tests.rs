//! Events in, steps out. A script is a list of events: `list@5`, `watch`, `ev@6`, `end`, `expired`, `lost`, `busy@5`, `err`; `+90s` lets time
//! pass; waits are waited out.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn event(word: &str) -> ReflectorEvent {
    match word.split_once('@').unwrap_or((word, "")) {
        ("list", version) => ReflectorEvent::Listed { resource_version: version.into() },
        ("ev", version) => ReflectorEvent::Reached { resource_version: version.into() },
        ("watch", _) => ReflectorEvent::WatchStarted,
        ("end", _) => ReflectorEvent::Ended,
        ("expired", _) => ReflectorEvent::Expired,
        ("busy", seconds) => {
            ReflectorEvent::Refused { retry_after: Duration::from_secs(seconds.parse().unwrap()) }
        }
        ("lost", _) => ReflectorEvent::Lost,
        _ => ReflectorEvent::Failed,
    }
}

#[track_caller]
fn check(script: &str, expected: Expect) {
    let mut reflector = ReflectorState::default();
    let mut now = MonoTime::ZERO;
    let mut shown = Vec::new();
    for word in script.split_whitespace() {
        if let Some(seconds) = word.strip_prefix('+').and_then(|s| s.strip_suffix('s')) {
            now = now + Duration::from_secs(seconds.parse().unwrap());
            continue;
        }
        if let ReflectorStep::Wait { until } = reflector.next(now) {
            now = until;
        }
        reflector.handle(event(word), 0.5, now);
        shown.push(match reflector.next(now) {
            ReflectorStep::List { .. } => format!("{word}: list"),
            ReflectorStep::Watch { since } => format!("{word}: watch {since}"),
            ReflectorStep::Wait { until } => {
                format!("{word}: wait {}ms", until.saturating_since(now).as_millis())
            }
        });
    }
    expected.assert_eq(&shown.join(", "));
}

#[test]
fn watch_continues_from_the_last_resource_version() {
    check(
        "list@5 watch ev@6 ev@9 end",
        expect!["list@5: watch 5, watch: watch 5, ev@6: watch 6, ev@9: watch 9, end: wait 2500ms"],
    );
    check("list@5 watch +60s end", expect!["list@5: watch 5, watch: watch 5, end: wait 2500ms"]);
}

#[test]
fn expired_resource_version_relists_immediately_but_not_repeatedly() {
    check("list@5 watch expired", expect!["list@5: watch 5, watch: watch 5, expired: list"]);
    check(
        "list@5 expired expired list@9",
        expect!["list@5: watch 5, expired: list, expired: wait 1200ms, list@9: watch 9"],
    );
}

#[test]
fn reflector_errors_back_off_to_thirty_seconds_and_keep_the_resource_version() {
    check(
        "list@5 err err err err err err err",
        expect![
            "list@5: watch 5, err: wait 1200ms, err: wait 2400ms, err: wait 4800ms, err: wait 9600ms, err: wait 19200ms, err: wait 38400ms, err: wait 45000ms"
        ],
    );
    check("err", expect!["err: wait 1200ms"]);
}

#[test]
fn reflector_back_off_is_reset_after_two_minutes_without_errors() {
    check(
        "err err list@5 watch +121s err",
        expect!["err: wait 1200ms, err: wait 2400ms, list@5: watch 5, watch: watch 5, err: wait 3300ms"],
    );
    check(
        "err err list@5 watch +90s err",
        expect!["err: wait 1200ms, err: wait 2400ms, list@5: watch 5, watch: watch 5, err: wait 5700ms"],
    );
}

#[test]
fn a_stream_that_ends_at_once_and_empty_backs_off() {
    check("list@5 watch end", expect!["list@5: watch 5, watch: watch 5, end: wait 1200ms"]);
    check(
        "list@5 watch ev@6 end",
        expect!["list@5: watch 5, watch: watch 5, ev@6: watch 6, end: wait 2500ms"],
    );
}

#[test]
fn watches_that_end_for_all_nodes_at_once_are_opened_again_within_five_seconds() {
    // The server is stopping; the connection breaks; or it was the timeout of the watch, which looks the same.
    check("list@5 watch +60s end", expect!["list@5: watch 5, watch: watch 5, end: wait 2500ms"]);
    check("list@5 watch +60s err", expect!["list@5: watch 5, watch: watch 5, err: wait 3300ms"]);
    check("list@5 watch +400s end", expect!["list@5: watch 5, watch: watch 5, end: wait 2500ms"]);
}

#[test]
fn refused_requests_wait_as_long_as_the_server_asks_and_no_longer_than_a_few_minutes() {
    check(
        "busy@5 busy@5 busy@5 busy@5",
        expect!["busy@5: wait 7500ms, busy@5: wait 7500ms, busy@5: wait 7500ms, busy@5: wait 9600ms"],
    );
    check(
        "list@5 watch busy@60 watch",
        expect!["list@5: watch 5, watch: watch 5, busy@60: wait 90000ms, watch: watch 5"],
    );
    check("busy@100000", expect!["busy@100000: wait 270000ms"]);
}

#[test]
fn a_watch_that_cannot_be_understood_relists_with_back_off() {
    check(
        "list@5 watch lost list@9 watch lost list@9",
        expect![[
            r#"list@5: watch 5, watch: watch 5, lost: wait 1200ms, list@9: watch 9, watch: watch 9, lost: wait 2400ms, list@9: watch 9"#
        ]],
    );
}

/// The version that the next list requests after these events.
fn list_version(script: &str) -> Option<String> {
    let mut reflector = ReflectorState::default();
    for word in script.split_whitespace() {
        reflector.handle(event(word), 0.5, MonoTime::ZERO);
    }
    let step = reflector.next(MonoTime::from_start(Duration::from_secs(60)));
    let ReflectorStep::List { version } = step else { panic!("no list: {step:?}") };
    version
}

#[test]
fn list_is_from_the_memory_of_the_server_unless_that_is_too_old() {
    assert_eq!(list_version("").as_deref(), Some("0"));
    assert_eq!(list_version("err").as_deref(), Some("0"));
    assert_eq!(list_version("list@5 watch ev@6 expired").as_deref(), Some("6"));
    assert_eq!(list_version("list@5 watch ev@6 lost err").as_deref(), Some("6"));
    assert_eq!(list_version("list@5 watch ev@6 expired expired"), None);
    assert_eq!(list_version("list@5 watch ev@6 expired expired list@3 expired").as_deref(), Some("3"));
}

#[test]
fn a_stream_that_breaks_thrice_before_its_first_event_relists() {
    check(
        "list@5 watch err watch err watch ev@6 err watch err watch err watch err list@9 watch err",
        expect![
            "list@5: watch 5, watch: watch 5, err: wait 3300ms, watch: watch 5, err: wait 4100ms, watch: watch 5, ev@6: watch 6, err: wait 5700ms, watch: watch 6, err: wait 9600ms, watch: watch 6, err: wait 19200ms, watch: watch 6, err: wait 38400ms, list@9: watch 9, watch: watch 9, err: wait 45000ms"
        ],
    );
}

#[test]
fn last_readable_version_stays_unless_another_object_has_its_name() {
    let stays = |last: Option<&str>, present: Option<&str>| {
        let present = MalformedObject { uid: present.map(str::to_owned), ..MalformedObject::default() };
        keeps_last_version(last, &present)
    };
    assert!(stays(Some("u"), Some("u")));
    assert!(!stays(Some("u"), Some("v")));
    assert!(stays(Some("u"), None) && stays(None, Some("v")) && stays(None, None), "unknown is not absent");
}

proptest! {
    #[test]
    fn no_resource_version_is_skipped_and_every_delay_is_bounded(events in prop::collection::vec(prop::sample::select(vec!["list@5", "watch", "ev@6", "ev@7", "end", "expired", "lost", "err"]), 0..40), random in 0.0..1.0) {
        let mut reflector = ReflectorState::default();
        let mut last: Option<String> = None;
        let (mut is_open, mut failed) = (false, 0);
        for word in events {
            match word.split_once('@') {
                Some((_, version)) => last = Some(version.to_owned()),
                None if word == "expired" || word == "lost" => last = None,
                None => {}
            }
            // After a watch that fails again and again without an event, the collection is listed.
            match word {
                "watch" => is_open = true,
                "err" if is_open => (is_open, failed) = (false, failed + 1),
                "end" | "expired" | "lost" | "err" => is_open = false,
                word if word.starts_with("ev") => failed = 0,
                _ => {}
            }
            reflector.handle(event(word), random, MonoTime::ZERO);
            match reflector.next(MonoTime::from_start(Duration::from_secs(60))) {
                ReflectorStep::Watch { since } => prop_assert_eq!(Some(since), last.clone()),
                ReflectorStep::List { .. } if failed >= 3 => (last, failed) = (None, 0),
                ReflectorStep::List { .. } => prop_assert_eq!(&last, &None),
                ReflectorStep::Wait { .. } => prop_assert!(false, "waits for more than a minute"),
            }
        }
    }
}
