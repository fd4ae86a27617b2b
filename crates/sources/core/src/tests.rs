//! Sets in, changes out. A set reads `file: a b@5 c/label`: pods by name, `@n` created at second n, `*` deleting,
//! `+x` another spec, `/x` another label, `~x` another status, `!uid` another UID, `^x` another resource version.

use expect_test::{Expect, expect};
use model::k8s::{ObjectMeta, PodSpec, PodStatus, Time};
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn source(name: &str) -> PodSource {
    match name {
        "file" => PodSource::File,
        "http" => PodSource::Http,
        "api" => PodSource::Api,
        other => panic!("no source {other}"),
    }
}

fn pod(word: &str) -> Pod {
    let marks = ['@', '*', '+', '/', '~', '!', '^', '%', '&'];
    let (name, mut rest) = word.split_at(word.find(marks).unwrap_or(word.len()));
    let mut meta =
        ObjectMeta { name: Some(name.into()), namespace: Some("ns".into()), ..ObjectMeta::default() };
    meta.uid = Some(format!("uid-{name}"));
    let (mut spec, mut status) = (PodSpec::default(), None);
    let at = |text: &str| Timestamp::from_second(text.parse().expect("seconds")).map(Time).ok();
    while let Some(mark) = rest.chars().next() {
        let end = rest[1..].find(marks).map_or(rest.len(), |end| end + 1);
        let value = rest[1..end].to_owned();
        rest = &rest[end..];
        match mark {
            '@' => meta.creation_timestamp = at(&value),
            '*' => {
                meta.deletion_timestamp = at("100");
                meta.deletion_grace_period_seconds = value.parse().ok();
            }
            '+' => spec.node_name = Some(value),
            '/' => meta.labels = Some(BTreeMap::from([("l".into(), value)])),
            '~' => status = Some(PodStatus { phase: Some(value), ..PodStatus::default() }),
            '!' => meta.uid = Some(value),
            '^' => meta.resource_version = Some(value),
            '%' => meta.annotations = Some(BTreeMap::from([("a".into(), value)])),
            '&' => meta.annotations = Some(BTreeMap::from([(CONFIG_SEEN.into(), value)])),
            other => panic!("no mark {other}"),
        }
    }
    Pod { metadata: meta, spec: Some(spec), status }
}

fn set(sources: &mut Sources, text: &str) -> SourceReport {
    let (name, pods) = text.split_once(':').expect("source: pods");
    set_at(sources, source(name.trim()), pods.split_whitespace(), NOW)
}

/// Pods of the API are kept as its store does.
fn set_at<'a>(
    sources: &mut Sources,
    source: PodSource,
    words: impl Iterator<Item = &'a str>,
    now: Timestamp,
) -> SourceReport {
    let desired = |word: &str| {
        let pod = pod(word);
        if source.is_static() {
            return DesiredPod::of_manifest(Arc::new(pod));
        }
        let known = sources.by_source.get(&source).into_iter().flatten();
        let known = known.into_iter().find(|known| known.identity.uid == PodUid::of(&pod));
        let known = known.and_then(|known| known.in_api.as_deref());
        DesiredPod::of_api(Arc::new(ApiPod::new(pod, known, now)))
    };
    let pods = words.map(desired).collect();
    sources.set(source, pods, now)
}

fn shown(report: &SourceReport) -> String {
    let changes =
        report.changes.iter().map(|c| format!("{:?} {} {}", c.op, c.source, c.desired.identity.name));
    let all = changes.chain(report.duplicates.iter().map(|d| format!("! {}", d.message())));
    all.collect::<Vec<_>>().join(", ")
}

/// Applies the sets in order and shows the changes of the last one.
#[track_caller]
fn check(sets: &str, expected: Expect) {
    let mut sources = Sources::default();
    let last = sets.split(';').map(|text| set(&mut sources, text)).last().expect("a set");
    expected.assert_eq(&shown(&last));
}

#[test]
fn pods_are_added_oldest_first() {
    check("api: c@3 a@2 b@1", expect!["Add api b, Add api a, Add api c"]);
    check("file: b a", expect!["Add file a, Add file b"]);
}

#[test]
fn the_same_set_again_changes_nothing() {
    check("api: a b ; api: a b", expect![[""]]);
    check("api: a^1 ; api: a^2", expect![[""]]);
    check("api: ; api:", expect![[""]]);
}

#[test]
fn change_that_the_kubelet_acts_on_is_an_update() {
    check("api: a ; api: a+other", expect!["Update api a"]);
    check("api: a ; api: a/other", expect!["Update api a"]);
    check("api: a ; api: a%other", expect!["Update api a"]);
    check("api: a+x~Running ; api: a+y~Failed", expect!["Update api a"]);
}

#[test]
fn annotations_of_a_source_are_not_a_change() {
    check("file: a&yesterday ; file: a&today", expect![[""]]);
    check("file: a&yesterday ; file: a", expect![[""]]);
}

#[test]
fn deletion_timestamp_stops_a_pod_gracefully() {
    check("api: a ; api: a*30", expect!["Delete api a"]);
    check("api: a*30 ; api: a*0", expect!["Delete api a"]);
    check("api: a*30 ; api: a*30", expect![[""]]);
}

#[test]
fn a_pod_that_is_deleting_from_the_start_is_added_first() {
    check("api: a*30", expect!["Add api a"]);
}

#[test]
fn a_status_alone_is_reconciled() {
    check("api: a ; api: a~Running", expect!["Reconcile api a"]);
    check("api: a~Running ; api: a~Running", expect![[""]]);
}

#[test]
fn removed_pods_come_before_added_pods() {
    check("api: a b ; api: b c", expect!["Remove api a, Add api c"]);
    check("api: a*30 ; api:", expect!["Remove api a"]);
}

#[test]
fn the_same_name_with_another_uid_is_another_pod() {
    check("api: a ; api: a!new", expect!["Remove api a, Add api a"]);
}

#[test]
fn a_name_twice_in_one_source_counts_once() {
    check(
        "file: a!1 a!2",
        expect![[
            r#"Add file a, ! Error validating pod a_ns(2) from file due to duplicate pod name "a", ignoring"#
        ]],
    );
    check(
        "file: a ; file: a a!2",
        expect![[r#"! Error validating pod a_ns(2) from file due to duplicate pod name "a", ignoring"#]],
    );
    check(
        "file: a!1 b!1",
        expect![[
            r#"Add file a, ! Error validating pod b_ns(1) from file due to duplicate pod name "b", ignoring"#
        ]],
    );
}

#[test]
fn same_name_in_two_sources_is_kept_for_the_pod_workers() {
    check("file: a!1 ; api: a!2", expect!["Add api a"]);
}

#[test]
fn one_source_never_touches_pods_of_another() {
    check("file: a ; api: b ; http: c ; file:", expect!["Remove file a"]);
    check("file: a ; api:", expect![[""]]);
}

#[test]
fn all_changes_come_in_a_fixed_order() {
    check(
        "api: upd rem del rec ; api: add del*1 rec~Running upd+x",
        expect!["Remove api rem, Add api add, Update api upd, Delete api del, Reconcile api rec"],
    );
}

#[test]
fn pods_know_their_source_and_when_they_were_first_seen() {
    let mut sources = Sources::default();
    set(&mut sources, "file: a&monday");
    set(&mut sources, "file: a&tuesday+changed");
    let (_, pod) = sources.pods().next().expect("a pod");
    assert_eq!(annotation(&pod.pod, CONFIG_SOURCE), Some("file"));
    assert_eq!(annotation(&pod.pod, CONFIG_SEEN), Some("monday"));
}

#[test]
fn config_seen_of_a_pod_from_the_api_is_when_the_kubelet_first_saw_it() {
    let mut sources = Sources::default();
    let at = |second| Timestamp::from_second(second).expect("a time");
    set_at(&mut sources, PodSource::Api, ["a", "b&monday"].into_iter(), at(5));
    set_at(&mut sources, PodSource::Api, ["a+changed", "b&monday"].into_iter(), at(9));
    for (_, pod) in sources.pods() {
        assert_eq!(annotation(&pod.pod, CONFIG_SOURCE), Some("api"));
        assert_eq!(annotation(&pod.pod, CONFIG_SEEN), Some("1970-01-01T00:00:05Z"));
    }
}

#[test]
fn a_pod_of_the_same_resource_version_is_not_copied_again() {
    let mut sources = Sources::default();
    let kept = |sources: &Sources| sources.pods().map(|(_, known)| known.pod.clone()).collect::<Vec<_>>();
    set(&mut sources, "api: a^1 b^1");
    let before = kept(&sources);
    set(&mut sources, "api: a^1 b^2+changed");
    let after = kept(&sources);
    assert!(Arc::ptr_eq(&before[0], &after[0]), "pod a has not changed");
    assert_eq!(after[1].spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("changed"));
}

/// A node has thousands of statuses and few specs: every holder of the pod shares one copy.
#[test]
fn pod_whose_status_alone_changes_is_not_copied() {
    let mut sources = Sources::new([PodSource::Api]);
    let first = set(&mut sources, "api: a^1").changes.remove(0).desired;
    let next = set(&mut sources, "api: a^2~Running").changes.remove(0).desired;
    assert!(Arc::ptr_eq(&first.pod, &next.pod));
    assert_eq!(next.status().unwrap().phase.as_deref(), Some("Running"));
    let changed = set(&mut sources, "api: a^3~Running%b").changes.remove(0).desired;
    assert!(!Arc::ptr_eq(&first.pod, &changed.pod), "an annotation has changed");
}

#[test]
fn sources_are_not_ready_before_all_have_reported() {
    let mut sources = Sources::new([PodSource::File, PodSource::Api]);
    assert!(!sources.ready().all_ready());
    set(&mut sources, "file:");
    assert!(!sources.ready().all_ready());
    assert_eq!(sources.ready().missing().collect::<Vec<_>>(), [PodSource::Api]);
    set(&mut sources, "api: a");
    assert!(sources.ready().all_ready());
}

fn any_sets() -> impl Strategy<Value = Vec<(PodSource, Vec<String>)>> {
    let source = prop_oneof![Just(PodSource::File), Just(PodSource::Http), Just(PodSource::Api)];
    let word = (0..4_u8, 0..3_u8, prop::bool::ANY)
        .prop_map(|(name, spec, deleting)| format!("p{name}+{spec}{}", if deleting { "*5" } else { "" }));
    prop::collection::vec((source, prop::collection::vec(word, 0..5)), 0..12)
}

fn played(sets: &[(PodSource, Vec<String>)]) -> (Sources, Vec<PodChange>) {
    let mut sources = Sources::default();
    let changes = sets
        .iter()
        .flat_map(|(source, words)| {
            set_at(&mut sources, *source, words.iter().map(String::as_str), NOW).changes
        })
        .collect();
    (sources, changes)
}

fn union(sources: &Sources) -> Vec<(PodSource, Arc<Pod>)> {
    let mut pods: Vec<_> = sources.pods().map(|(source, known)| (source, known.pod.clone())).collect();
    pods.sort_by_key(|(source, pod)| (*source, pod.metadata.uid.clone()));
    pods
}

proptest! {
    #[test]
    fn only_the_last_set_of_each_source_counts_in_whatever_order_they_came(sets in any_sets()) {
        let mut last: BTreeMap<PodSource, Vec<String>> = BTreeMap::new();
        last.extend(sets.iter().cloned());
        let shortest: Vec<_> = last.into_iter().rev().collect();
        prop_assert_eq!(union(&played(&sets).0), union(&played(&shortest).0));
    }

    #[test]
    fn following_the_changes_leads_to_the_same_pods(sets in any_sets()) {
        let (sources, changes) = played(&sets);
        let mut followed = BTreeMap::new();
        for change in changes {
            let key = (change.source, change.desired.identity.uid.clone());
            match change.op {
                PodOp::Remove => prop_assert!(followed.remove(&key).is_some()),
                PodOp::Add => prop_assert!(followed.insert(key, change.desired.pod).is_none()),
                PodOp::Update | PodOp::Delete | PodOp::Reconcile => {
                    prop_assert!(followed.insert(key, change.desired.pod).is_some());
                }
            }
        }
        let followed: Vec<_> = followed.into_iter().map(|((source, _), pod)| (source, pod)).collect();
        prop_assert_eq!(union(&sources), followed);
    }

    #[test]
    fn source_that_never_reported_loses_no_pods(sets in any_sets()) {
        let spoke: BTreeSet<PodSource> = sets.iter().map(|(source, _)| *source).collect();
        prop_assert!(played(&sets).1.iter().all(|change| spoke.contains(&change.source)));
    }
}

#[test]
fn unreadable_source_keeps_the_pods_of_its_checkpoint() {
    let from = |source: &str, name: &str, uid: &str, file: &str, seen: &str| {
        let mut pod = pod(&format!("{name}!{uid}"));
        let annotations = [(CONFIG_FILE, file), (CONFIG_SOURCE, source), (CONFIG_SEEN, seen)];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
        pod.metadata.annotations = Some(BTreeMap::from(annotations));
        Arc::new(pod)
    };
    let written = |name: &str, uid: &str, file: &str, seen: &str| from("file", name, uid, file, seen);
    let (monday, tuesday) = ("2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z");
    let all = [
        written("a", "old", "/m/a", monday),
        written("a", "new", "/m/a", tuesday),
        written("b", "b", "/m/a", monday),
        written("c", "c", "/m/c", monday),
        Arc::new(pod("d")),
        from("http", "e", "e", "", monday),
        from("api", "f", "f", "", monday),
    ];
    let of = |origin: &Origin| -> Vec<String> {
        last_described_by(origin, &all).iter().map(|pod| PodUid::of(pod).to_string()).collect()
    };
    let uids = |file: &str| of(&Origin::File(file.to_owned()));
    assert_eq!(uids("/m/a"), ["new", "b"], "of one name, the one seen last");
    assert_eq!(uids("/m/c"), ["c"]);
    assert!(uids("/m/d").is_empty());
    assert_eq!(of(&Origin::Url("http://anywhere/".to_owned())), ["e"]);
    let of_files = last_described_by_files(&all);
    let of_files: Vec<&str> = of_files.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    assert_eq!(of_files, ["new", "b", "c"], "wherever the files were");
}

#[test]
fn pods_of_an_unreadable_source_are_known_if_every_pod_of_the_node_has_a_checkpoint() {
    let uids = |text: &str| -> BTreeSet<PodUid> {
        text.split_whitespace().map(|uid| PodUid::from(uid.to_owned())).collect()
    };
    let known = |known: &str, on_disk: &str, running: &str| {
        is_every_pod_known(&uids(known), &uids(on_disk), Some(&uids(running)))
    };
    assert!(known("a b", "a b", "a"));
    assert!(known("", "", ""), "no pod has ever run here");
    assert!(!known("a", "a", "a b"), "b runs and may be of the source");
    assert!(!known("a", "a b", "a"), "another kubelet made the directory of b");
    assert!(!is_every_pod_known(&uids("a"), &uids("a"), None), "the runtime was not listed yet");
}
