//! A pod of the API and a computed status in, a step out.

use expect_test::{Expect, expect};
use model::k8s::Pod;
use proptest::prelude::*;

use super::*;

const RUNS: SyncFacts = SyncFacts { may_run: true, is_released: false };
const STOPPED: SyncFacts = SyncFacts { may_run: false, is_released: false };
const RELEASED: SyncFacts = SyncFacts { may_run: false, is_released: true };

fn pod(status: &Value) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "status": status}),
    )
    .unwrap()
}

fn deleted(status: &Value) -> Pod {
    let mut pod = pod(status);
    pod.metadata.deletion_timestamp = Some(model::k8s::Time(jiff::Timestamp::UNIX_EPOCH));
    pod
}

fn status(value: &Value) -> PodStatus {
    serde_json::from_value(value.clone()).unwrap()
}

fn sync(in_api: Option<&Pod>, found: &Value, facts: SyncFacts) -> String {
    let in_api = in_api.map(|pod| ApiPod::new(pod.clone(), None, jiff::Timestamp::UNIX_EPOCH));
    match compute_status_sync(&PodUid::new("u1"), in_api.as_ref(), &status(found), facts) {
        StatusSync::Forget => "forget".into(),
        StatusSync::Nothing => "nothing".into(),
        StatusSync::Delete { uid } => format!("delete {uid}"),
        StatusSync::Patch(patch) => {
            assert_eq!(patch["metadata"], json!({"uid": "u1"}));
            patch["status"].to_string()
        }
    }
}

#[track_caller]
fn check(in_api: &Value, found: &Value, facts: SyncFacts, expected: &Expect) {
    expected.assert_eq(&sync(Some(&pod(in_api)), found, facts));
}

#[test]
fn only_changes_are_sent() {
    let running = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
    check(&running, &running, RUNS, &expect!["nothing"]);
    check(
        &json!({"phase": "Pending"}),
        &running,
        RUNS,
        &expect![[
            r#"{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"$patch":"replace"}]}"#
        ]],
    );
    check(
        &running,
        &json!({"phase": "Running", "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}),
        RUNS,
        &expect![[r#"{"podIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.2"},{"$patch":"replace"}]}"#]],
    );
}

#[test]
fn empty_resources_of_the_pod_are_sent_once() {
    let found = json!({"phase": "Pending", "resources": {}});
    check(&json!({"phase": "Pending"}), &found, RUNS, &expect![[r#"{"resources":{}}"#]]);
    check(&found, &found, RUNS, &expect!["nothing"]);
}

/// A status as kube-apiserver 1.36 returns it, with unset structs and times written out.
fn recorded_status() -> Value {
    serde_json::from_str(include_str!("recorded_status.json")).unwrap()
}

/// The status that the kubelet computes for the recorded pod: nothing in it is empty.
fn computed_status() -> Value {
    let mut computed = recorded_status();
    for container in computed["containerStatuses"].as_array_mut().unwrap() {
        let container = container.as_object_mut().unwrap();
        assert_eq!(container.remove("lastState"), Some(json!({})));
        container.retain(|_, value| *value != json!({}));
    }
    for condition in computed["conditions"].as_array_mut().unwrap() {
        assert_eq!(condition.as_object_mut().unwrap().remove("lastProbeTime"), Some(Value::Null));
    }
    computed
}

#[test]
fn a_status_that_the_api_server_filled_with_empty_values_is_not_sent_again() {
    check(&recorded_status(), &computed_status(), RUNS, &expect!["nothing"]);
}

#[test]
fn fields_of_a_newer_api_server_do_not_make_a_patch() {
    let mut newer = recorded_status();
    newer["futureField"] = json!({"a": 1});
    newer["containerStatuses"][0]["futureField"] = json!("x");
    newer["conditions"][0]["futureField"] = json!(["x"]);
    check(&newer, &computed_status(), RUNS, &expect!["nothing"]);
}

#[test]
fn status_patch_keeps_fields_of_other_clients() {
    let theirs = json!({
        "phase": "Running", "nominatedNodeName": "n2", "startTime": "2026-01-01T00:00:00Z", "qosClass": "Burstable",
        "resourceClaimStatuses": [{"name": "c"}], "resize": "Proposed",
        "extendedResourceClaimStatus": {"requestMappings": [], "resourceClaimName": "r"},
        "conditions": [{"type": "example.com/gate", "status": "True"}, {"type": "Ready", "status": "False"}],
    });
    check(
        &theirs,
        &json!({"phase": "Running", "startTime": "2027-01-01T00:00:00Z", "qosClass": "BestEffort",
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "stale.com/gate", "status": "True"}]}),
        RUNS,
        &expect![[r#"{"conditions":[{"status":"True","type":"Ready"}]}"#]],
    );
}

#[test]
fn condition_of_the_kubelet_that_no_longer_applies_is_removed() {
    check(
        &json!({"conditions": [{"type": "PodResizePending", "status": "True"}]}),
        &json!({}),
        RUNS,
        &expect![[r#"{"conditions":[{"$patch":"delete","type":"PodResizePending"}]}"#]],
    );
}

#[test]
fn terminal_phase_is_withheld_until_all_containers_have_stopped() {
    let running = json!({"phase": "Running", "reason": "r"});
    let failed = json!({"phase": "Failed", "reason": "Evicted", "message": "m",
        "conditions": [{"type": "DisruptionTarget", "status": "True"}, {"type": "Ready", "status": "True"}]});
    check(&running, &failed, RUNS, &expect![[r#"{"conditions":[{"status":"True","type":"Ready"}]}"#]]);
    check(
        &running,
        &failed,
        STOPPED,
        &expect![[
            r#"{"conditions":[{"status":"True","type":"DisruptionTarget"},{"reason":"PodFailed","status":"False","type":"Ready"}],"message":"m","phase":"Failed","reason":"Evicted"}"#
        ]],
    );
}

#[test]
fn terminal_phase_never_changes() {
    for (in_api, found) in [("Failed", "Running"), ("Succeeded", "Failed"), ("Succeeded", "Pending")] {
        check(&json!({"phase": in_api}), &json!({"phase": found}), STOPPED, &expect!["nothing"]);
    }
}

#[test]
fn times_are_whole_seconds() {
    check(
        &json!({"startTime": "2026-01-01T00:00:00Z"}),
        &json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00.7Z"}],
                "containerStatuses": [{"name": "a", "ready": true, "restartCount": 0, "image": "i", "imageID": "",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:01.9Z"}}}]}),
        RUNS,
        &expect![[
            r#"{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","status":"True","type":"Ready"}],"containerStatuses":[{"image":"i","imageID":"","name":"a","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2026-01-01T00:00:01Z"}}}]}"#
        ]],
    );
}

#[test]
fn status_of_a_pod_that_is_gone_or_replaced_is_dropped() {
    assert_eq!(sync(None, &json!({"phase": "Running"}), RUNS), "forget");
    let mut other = pod(&json!({}));
    other.metadata.uid = Some("u2".into());
    assert_eq!(sync(Some(&other), &json!({"phase": "Running"}), RUNS), "forget");
}

#[test]
fn deleted_pod_is_removed_from_the_api_after_its_final_status_was_written() {
    let done = json!({"phase": "Succeeded"});
    assert_eq!(sync(Some(&deleted(&done)), &done, RELEASED), "delete u1");
    assert_eq!(
        sync(Some(&deleted(&json!({"phase": "Running"}))), &done, RELEASED),
        r#"{"phase":"Succeeded"}"#
    );
    assert_eq!(sync(Some(&deleted(&done)), &done, STOPPED), "nothing");
    assert_eq!(sync(Some(&deleted(&done)), &done, SyncFacts { may_run: true, is_released: true }), "nothing");
    assert_eq!(
        sync(Some(&deleted(&json!({"phase": "Running"}))), &json!({"phase": "Running"}), RELEASED),
        "nothing"
    );
    assert_eq!(sync(Some(&pod(&done)), &done, RELEASED), "nothing");
    let mut mirror = deleted(&done);
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".into(), "h".into())].into());
    assert_eq!(sync(Some(&mirror), &done, RELEASED), "nothing");
}

fn any_status() -> impl Strategy<Value = PodStatus> {
    let phase = prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed"]);
    let conditions = prop::collection::btree_map(
        prop::sample::select(vec![
            "Ready",
            "ContainersReady",
            "DisruptionTarget",
            "theirs",
            "PodResizePending",
        ]),
        prop::sample::select(vec!["True", "False"]),
        0..5,
    );
    (phase, conditions, 0..3_i64).prop_map(|(phase, conditions, second)| {
        let conditions: Vec<_> =
            conditions.into_iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        status(&json!({"phase": phase, "conditions": conditions, "startTime": format!("2026-01-01T00:00:0{second}Z")}))
    })
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a str> {
    status.conditions.iter().flatten().find(|c| c.type_ == kind).map(|c| c.status.as_str())
}

proptest! {
    #[test]
    fn merging_again_changes_nothing(in_api in any_status(), found in any_status(), may_run: bool) {
        let once = merge_status(&in_api, &found, may_run);
        let again = merge_status(&once, &found, may_run);
        prop_assert_eq!(compute_strategic_patch(&json!(once), &json!(again), &STATUS_LISTS), None);
    }

    #[test]
    fn terminal_phase_never_goes_back_and_running_pod_never_becomes_terminal(in_api in any_status(), found in any_status(), may_run: bool) {
        let merged = merge_status(&in_api, &found, may_run);
        if has_ended(&in_api) {
            prop_assert_eq!(&merged.phase, &in_api.phase);
        } else if may_run {
            prop_assert!(!has_ended(&merged));
        }
        if has_ended(&merged) {
            prop_assert_ne!(condition(&merged, "Ready"), Some("True"));
        }
        prop_assert_eq!(condition(&merged, "theirs"), condition(&in_api, "theirs"));
        prop_assert_eq!(&merged.start_time, &in_api.start_time);
    }
}

/// `status/status_manager_test.go`, TestMergePodStatus: the pod in the API is Running and Ready; `+x=reason` adds a condition
/// that is met, `-x` makes one unmet, and what is found always has all conditions of the kubelet.
#[test]
fn merge_pod_status_table() {
    let base = || {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        json!({"phase": "Running", "message": "Message",
            "conditions": [condition("Ready"), condition("ContainersReady"), condition("PodScheduled")]})
    };
    let status = |words: &str| -> PodStatus {
        let mut status = base();
        for word in words.split_whitespace() {
            let (kind, value) = word[1..].split_once('=').unwrap_or((&word[1..], ""));
            match (&word[..1], kind) {
                ("=", _) => status[kind] = value.replace('_', " ").into(),
                (sign, _) => {
                    let is_met = if sign == "+" { "True" } else { "False" };
                    let conditions = status["conditions"].as_array_mut().unwrap();
                    conditions.retain(|c| c["type"] != kind);
                    let mut condition = json!({"type": kind, "status": is_met});
                    if !value.is_empty() {
                        condition["reason"] = value.into();
                    }
                    conditions.push(condition);
                }
            }
        }
        serde_json::from_value(status).unwrap()
    };
    let shown = |status: &PodStatus| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let mut words: Vec<String> = status
            .conditions
            .iter()
            .flatten()
            .filter(|c| !(c.status == "True" && c.reason.is_none() && !c.type_.contains('.')))
            .map(|c| {
                let sign = if c.status == "True" { "+" } else { "-" };
                format!("{sign}{}={}", c.type_, text(&c.reason))
            })
            .collect();
        words.sort();
        format!(
            "{} {} {}: {}",
            text(&status.phase),
            text(&status.reason),
            text(&status.message),
            words.join(" ")
        )
    };
    let failed = "-ContainersReady=PodFailed -Ready=PodFailed";
    let ours = "+DisruptionTarget=TerminationByKubelet";
    let theirs = "+DisruptionTarget=EvictedByEvictionAPI";
    let failing = format!("=phase=Failed {ours}");
    let (running, over) = ("Running  Message: ", "Failed  Message: ");
    let evicted = "=phase=Failed =reason=Evicted =message=Was_Evicted";
    for (name, may_run, in_api, found, expected) in [
        ("no change", false, "", "", running.to_owned()),
        ("add DisruptionTarget", false, "", &*failing, format!("{over}{ours} {failed}")),
        ("not while containers may run", true, "", &failing, running.to_owned()),
        ("preserve DisruptionTarget", false, ours, "", format!("{running}{ours}")),
        ("override DisruptionTarget", false, theirs, &failing, format!("{over}{ours} {failed}")),
        ("not while running", false, theirs, ours, format!("{running}{theirs}")),
        ("not while containers may run", true, theirs, &failing, format!("{running}{theirs}")),
        ("readiness changes", false, "", "-Ready", format!("{running}-Ready=")),
        ("additional condition", false, "+a.b/c", "", format!("{running}+a.b/c=")),
        ("additional, readiness", false, "+a.b/c", "-Ready", format!("{running}+a.b/c= -Ready=")),
        ("additional changes", false, "+a.b/c", "-a.b/c", format!("{running}+a.b/c=")),
        ("to failed", false, "=reason=Unknown", evicted, format!("Failed Evicted Was Evicted: {failed}")),
        ("to failed, running", true, "=reason=Unknown", evicted, "Running Unknown Message: ".to_owned()),
    ] {
        let merged = merge_status(&status(in_api), &status(found), may_run);
        assert_eq!(shown(&merged), expected, "{name}: {in_api} | {found}");
    }
}
