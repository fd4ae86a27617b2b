use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::allowed::{Allowed, matches};
use super::exposition::exposition_families;
use super::{Difference, Recording, assemble, compare, normal};

fn recorded() -> PathBuf {
    crate::workspace_root().join("crates/localapi/tests/recorded")
}

fn with_pod(pod: Value) -> Recording {
    Recording { pods: BTreeMap::from([("p".to_owned(), pod)]), ..Recording::default() }
}

fn lines(theirs: Value, ours: Value) -> Vec<String> {
    let found = compare(&with_pod(theirs), &with_pod(ours));
    found.iter().map(|d| format!("{} {}: {} | {}", d.subject, d.what, d.theirs, d.ours)).collect()
}

fn pod(status: Value) -> Value {
    json!({"final": {"metadata": {}, "status": status}, "patches": [], "events": []})
}

#[test]
fn recording_of_the_go_kubelet_is_complete_and_equal_to_itself() {
    let recording = Recording::read(&recorded()).unwrap();
    assert!(recording.pods.len() > 35, "{} pods", recording.pods.len());
    assert!(recording.families.len() > 150, "{} families", recording.families.len());
    for part in [&recording.node, &recording.lease, &recording.cri, &recording.summary, &recording.configz] {
        assert!(part.is_object());
    }
    assert_eq!(compare(&recording, &recording), []);
}

#[test]
fn final_status_differences_are_named_by_path() {
    let found = lines(
        pod(json!({"phase": "Running", "resources": {}, "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "lastTransitionTime": "2026-11-22T22:59:11Z"}]})),
        pod(json!({"phase": "Failed", "podIP": "10.0.0.2",
            "conditions": [{"type": "Ready", "lastTransitionTime": "2026-11-23T00:00:00Z"}]})),
    );
    assert_eq!(found, ["final p phase: \"Running\" | \"Failed\"", "final p resources: {} | (none)"]);
}

#[test]
fn either_state_of_a_restarting_container_is_accepted() {
    let ended = json!({"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"});
    let in_back_off = pod(json!({"containerStatuses": [{"name": "c", "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}, "lastState": {"terminated": ended}}]}));
    let just_ended = pod(json!({"containerStatuses": [{"name": "c", "restartCount": 2,
        "state": {"terminated": ended}, "lastState": {"terminated": ended}}]}));
    assert_eq!(lines(in_back_off.clone(), just_ended.clone()), Vec::<String>::new());
    let hook_failed = pod(json!({"containerStatuses": [{"name": "c", "restartCount": 3,
        "state": {"waiting": {"reason": "PostStartHookError", "message": "failed"}}, "lastState": {"terminated": ended}}]}));
    assert_eq!(lines(in_back_off.clone(), hook_failed), Vec::<String>::new());
    let mut other_code = just_ended;
    other_code["final"]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = json!(2);
    assert_eq!(
        lines(in_back_off, other_code),
        ["final p containerStatuses[c].state.ended or in back-off.exitCode: 1 | 2"]
    );
}

#[test]
fn restarting_container_may_be_recorded_while_it_runs() {
    let end = |code: u64| json!({"terminated": {"exitCode": code, "reason": "Error"}});
    let status = |restarts: u64, state: Value, last: Value, ready: bool| {
        let shown = if ready { "True" } else { "False" };
        pod(json!({
            "conditions": [{"type": "Ready", "status": shown}, {"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "c", "restartCount": restarts, "ready": ready, "state": state, "lastState": last}],
        }))
    };
    let running = || json!({"running": {"startedAt": "2026-11-22T22:59:11Z"}});
    let waiting = || json!({"waiting": {"reason": "CrashLoopBackOff"}});
    assert_eq!(
        lines(status(4, running(), end(137), true), status(3, end(137), end(137), false)),
        Vec::<String>::new()
    );
    assert_eq!(
        lines(status(4, running(), end(137), true), status(2, waiting(), end(137), false)),
        Vec::<String>::new()
    );
    assert_eq!(
        lines(status(4, running(), end(137), true), status(2, waiting(), end(1), false)),
        ["final p containerStatuses[c].state.last end.exitCode: 137 | 1"],
        "how it ended counts"
    );
    let found = lines(status(1, running(), end(137), true), status(1, end(137), end(137), false));
    assert!(
        found.contains(&"final p conditions[Ready].status: \"True\" | \"False\"".to_owned()),
        "{found:?}"
    );
    let found = lines(status(4, running(), end(137), true), status(0, running(), json!({}), true));
    assert!(found.contains(&"final p containerStatuses[c].restartCount: 4 | 0".to_owned()), "{found:?}");
}

#[test]
fn resources_of_a_pod_may_be_allocated_or_enforced_if_both_kubelets_showed_both() {
    let shown = |generation: u64, resources: &[Value]| {
        let status = |resources: &Value| json!({"phase": "Running", "observedGeneration": generation, "resources": resources});
        let last = status(resources.last().unwrap());
        let patches: Vec<Value> =
            resources.iter().map(|r| json!({"code": 200, "status": status(r)})).collect();
        json!({"final": {"metadata": {}, "status": last}, "events": [], "patches": patches})
    };
    let (allocated, enforced) = (json!({"limits": {"memory": "32Mi"}}), json!({"limits": {"memory": "1Ki"}}));
    let both = |last: &Value, first: &Value| shown(1, &[first.clone(), last.clone()]);
    assert_eq!(lines(both(&allocated, &enforced), both(&enforced, &allocated)), Vec::<String>::new());
    let difference = ["final p resources.limits.memory: \"1Ki\" | \"32Mi\""];
    assert_eq!(
        lines(both(&enforced, &allocated), shown(1, std::slice::from_ref(&allocated))),
        difference,
        "never enforced"
    );
    let ended = |mut pod: Value| {
        pod["final"]["status"]["phase"] = json!("Failed");
        pod
    };
    let ours = ended(shown(1, std::slice::from_ref(&allocated)));
    assert_eq!(lines(ended(both(&enforced, &allocated)), ours), Vec::<String>::new(), "ended before that");
    let ours = ended(shown(1, &[json!({"limits": {"memory": "2Ki"}})]));
    assert_eq!(lines(ended(both(&enforced, &allocated)), ours).len(), 1, "a value that was never shown");
    let mut resized = both(&enforced, &allocated);
    resized["final"]["status"]["observedGeneration"] = json!(2);
    let mut ours = both(&allocated, &enforced);
    ours["final"]["status"]["observedGeneration"] = json!(2);
    assert_eq!(lines(resized, ours), difference, "as it was before the resize");
}

#[test]
fn attempt_of_a_restarting_container_is_not_compared() {
    let recording = |restarts: u64, attempt: u64, log: &str| Recording {
        cri: json!({"p": {"c": {"metadata": {"name": "c", "attempt": attempt}, "log_path": log,
            "annotations": {"io.kubernetes.container.restartCount": attempt.to_string()}}}}),
        ..with_pod(pod(
            json!({"containerStatuses": [{"name": "c", "restartCount": restarts, "state": {"running": {}}}]}),
        ))
    };
    let found = |theirs: &Recording, ours: &Recording| {
        let found = compare(theirs, ours).into_iter().filter(|d| d.subject.starts_with("cri"));
        found.map(|difference| difference.what).collect::<Vec<_>>()
    };
    let theirs = recording(3, 2, "c/2.log");
    assert_eq!(found(&theirs, &recording(3, 1, "c/1.log")), Vec::<String>::new());
    assert_eq!(found(&theirs, &recording(3, 1, "c/0.log")).len(), 3, "the three must agree");
    let once = recording(0, 0, "c/0.log");
    assert_eq!(found(&once, &recording(0, 1, "c/1.log")).len(), 3, "it did not restart");
}

#[test]
fn part_of_only_one_recording_is_a_difference() {
    let recorded = Recording::read(&recorded()).unwrap();
    let empty = Value::Null;
    let without = |part: &str| {
        let mut recording = recorded.clone();
        match part {
            "node" => recording.node = empty.clone(),
            "lease" => recording.lease = empty.clone(),
            "cri" => recording.cri = empty.clone(),
            "configz" => recording.configz = empty.clone(),
            "stats-summary" => recording.summary = empty.clone(),
            "metrics-resource" => recording.metrics_resource.clear(),
            _ => recording.families.clear(),
        }
        recording
    };
    for part in ["node", "lease", "cri", "configz", "stats-summary", "metrics-resource", "metrics"] {
        let expected = Difference::new(part, "(recording)", "recorded", "missing");
        assert_eq!(compare(&recorded, &without(part)), [expected]);
    }
}

#[test]
fn lease_holder_duration_and_owner_are_compared() {
    let theirs = Recording::read(&recorded()).unwrap();
    let mut ours = theirs.clone();
    ours.lease["spec"]["holderIdentity"] = json!("another");
    ours.lease["spec"]["leaseDurationSeconds"] = json!(41);
    ours.lease["metadata"]["ownerReferences"][0]["kind"] = json!("Pod");
    ours.lease["spec"]["renewTime"] = json!("2026-12-01T00:00:00.000000Z");
    let found: Vec<String> =
        compare(&theirs, &ours).into_iter().map(|d| format!("{} {}", d.subject, d.what)).collect();
    assert_eq!(
        found,
        [
            "lease metadata.ownerReferences[refnode].kind",
            "lease spec.holderIdentity",
            "lease spec.leaseDurationSeconds"
        ]
    );
}

#[test]
fn volumes_that_the_go_kubelet_has_not_measured_yet_are_not_compared() {
    let with = |pod: Value| Recording { summary: json!({"pods": [pod]}), ..Recording::default() };
    let measured = with(json!({"volume": [{"name": "v", "usedBytes": 1}]}));
    let none = with(json!({"podRef": {"name": "p"}}));
    let both = with(json!({"podRef": {"name": "p"}, "volume": [{"name": "v"}]}));
    let found = |theirs, ours| compare(theirs, ours).into_iter().map(|d| d.what).collect::<Vec<_>>();
    assert_eq!(found(&none, &both), Vec::<String>::new());
    assert_eq!(found(&both, &none), [".pods[].volume[].name"]);
    assert_eq!(found(&both, &measured), [".pods[].podRef.name", ".pods[].volume[].usedBytes"]);
}

/// Changes each pod of the recording: no allowed difference hides the change.
#[test]
fn wrong_phase_missing_event_and_wrong_transition_are_found_in_every_pod() {
    let theirs = Recording::read(&recorded()).unwrap();
    let allowed = Allowed::parse(&crate::read(&crate::workspace_root().join(super::ALLOWED)).unwrap());
    let without_pods = Recording { pods: BTreeMap::new(), ..theirs.clone() };
    for (name, pod) in &theirs.pods {
        let with = |pod: Value| Recording { pods: [(name.clone(), pod)].into(), ..without_pods.clone() };
        let alone = with(pod.clone());
        let unexplained = |change: &dyn Fn(&mut Value)| {
            let mut changed = pod.clone();
            change(&mut changed);
            let found = compare(&alone, &with(changed));
            found.iter().filter(|difference| allowed.reason(difference).is_none()).count()
        };
        if !pod["final"].is_null() {
            let wrong_phase = |pod: &mut Value| pod["final"]["status"]["phase"] = json!("Unknown");
            assert!(unexplained(&wrong_phase) > 0, "{name}: phase");
        }
        let no_event = |pod: &mut Value| pod["events"] = json!([]);
        let is_scheduled = |event: &Value| event["reason"] == "Scheduled";
        if !pod["events"].as_array().unwrap().iter().all(is_scheduled) {
            assert!(unexplained(&no_event) > 0, "{name}: events");
        }
        let wrong_way = |pod: &mut Value| {
            let last =
                pod["patches"].as_array().unwrap().iter().rfind(|patch| patch["status"]["phase"].is_string());
            let mut patch = last.unwrap().clone();
            patch["status"]["phase"] = json!("Unknown");
            pod["patches"].as_array_mut().unwrap().push(patch);
        };
        assert!(unexplained(&wrong_way) > 0, "{name}: transition");
    }
}

#[test]
fn states_are_compared_by_their_transitions() {
    let patches = |states: &[Value]| {
        let patch = |state: &Value| json!({"code": 200, "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": state}]}});
        json!({"final": null, "events": [], "patches": states.iter().map(patch).collect::<Vec<_>>()})
    };
    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    let running = json!({"running": {}});
    let ended = json!({"terminated": {"reason": "Error", "exitCode": 1}});
    let theirs = patches(&[waiting.clone(), running.clone(), running.clone(), ended.clone()]);
    let back = patches(&[waiting.clone(), ended.clone(), running]);
    assert_eq!(
        lines(theirs.clone(), back),
        ["states p container c: terminated Error 1 -> running : no | yes"]
    );
    // A state that is too short to be written is no difference.
    assert_eq!(lines(theirs.clone(), patches(&[waiting, ended.clone()])), Vec::<String>::new());
    assert_eq!(
        lines(theirs, patches(&[json!({"waiting": {"reason": "PodInitializing"}}), ended])).len(),
        5,
        "another reason to wait is one"
    );
}

#[test]
fn pod_is_never_ready_if_every_run_was_too_short() {
    let patches = |states: &[(&str, &str)]| {
        let patch = |(state, ready): &(&str, &str)| {
            let (status, reason) = ready.split_once(' ').unwrap_or((ready, ""));
            let (state, reason_of_end) = state.split_once(' ').unwrap_or((state, ""));
            json!({"code": 200, "status": {"phase": "Running",
                "containerStatuses": [{"name": "c", "state": {state: {"reason": reason_of_end}}}],
                "conditions": [{"type": "Ready", "status": status, "reason": reason}]}})
        };
        json!({"final": null, "events": [], "patches": states.iter().map(patch).collect::<Vec<_>>()})
    };
    let (waits, ends, runs) =
        (("waiting", "False NotReady"), ("terminated", "False NotReady"), ("running", "True"));
    let done = ("terminated Completed", "False PodCompleted");
    let theirs = || patches(&[waits, runs, ends, runs, done]);
    assert_eq!(lines(theirs(), patches(&[waits, ends, runs, done])), Vec::<String>::new());
    assert_eq!(
        lines(theirs(), patches(&[waits, ends, done])),
        Vec::<String>::new(),
        "every run was too short"
    );
    let found = lines(theirs(), patches(&[waits, runs, ("terminated", "True"), runs, done]));
    assert_eq!(found, ["states p condition Ready: True  -> False NotReady: yes | no"], "it was shown to run");
    let found = lines(theirs(), patches(&[waits, ends, waits, done]));
    assert!(!found.is_empty(), "it was never ready");
}

#[test]
fn events_are_compared_by_type_reason_message_and_count() {
    let events = |list: Value| json!({"final": null, "patches": [], "events": list});
    let event = |reason: &str, message: &str, count: u64| json!({"type": "Normal", "reason": reason, "message": message, "count": count});
    let found = lines(
        events(json!([
            event("Started", "Container started", 1),
            event("BackOff", "again", 3),
            event("Killing", "a", 9)
        ])),
        events(json!([
            event("Started", "Started container c", 1),
            event("BackOff", "again", 5),
            event("Killing", "a", 1)
        ])),
    );
    assert_eq!(
        found,
        [
            "events p Normal Killing : a: 9 times | 1 times",
            "events p Normal Started : Container started: 1 times | (none)",
            "events p Normal Started : Started container c: (none) | 1 times",
        ]
    );
}

#[test]
fn ids_times_and_addresses_are_normalised() {
    let id = "02e30f3069afb40b9b32ca2cb7d9ef31abf2571ea93f346efbdd10b2d02d308b";
    for (text, expected) in [
        (format!("containerd://{id}"), "containerd://<id>".to_owned()),
        (format!("busybox@sha256:{id}"), "busybox@<digest>".to_owned()),
        ("at 2026-11-22T22:59:11.123Z.".to_owned(), "at <time>.".to_owned()),
        ("1970-01-01T00:00:00Z".to_owned(), "<1970>".to_owned()),
        (
            "Get \"http://10.88.4.66:8080/\": refused".to_owned(),
            "Get \"http://<ip>:8080/\": refused".to_owned(),
        ),
        ("read udp 10.0.0.1:37306->10.0.0.2:53".to_owned(), "read udp <ip>:<port>-><ip>:53".to_owned()),
        ("http://127.0.0.1:80".to_owned(), "http://127.0.0.1:80".to_owned()),
        (
            "/pods/57d38e05-63b0-478c-a1aa-df88258d5a24/etc-hosts".to_owned(),
            "/pods/<uid>/etc-hosts".to_owned(),
        ),
        ("e6ae886f6c5d7d12044e2f956e3c37bc".to_owned(), "<uid>".to_owned()),
        ("kube-api-access-95qvk".to_owned(), "kube-api-access-<any>".to_owned()),
        ("exit status 137: grüße".to_owned(), "exit status 137: grüße".to_owned()),
        (
            "unable to start container process: error during container init: exec: \"/x\"".to_owned(),
            "unable to start container process: exec: \"/x\"".to_owned(),
        ),
    ] {
        assert_eq!(normal::text(&text), expected);
    }
}

#[test]
fn metric_families_have_type_and_label_names() {
    let text = "# HELP a A.\n# TYPE a counter\na{x=\"1\",y=\"{,=\\\"\"} 1\n# TYPE b histogram\nb_bucket{le=\"1\"} 2\nb_sum 1\n";
    let families = exposition_families("/metrics", text);
    assert_eq!(families["/metrics a"], "counter x,y");
    assert_eq!(families["/metrics b"], "histogram le");
}

#[test]
fn allowed_differences_need_a_pattern_and_unused_patterns_are_named() {
    assert!(matches("final * podIP", "final web podIP") && !matches("final * podIP", "final web podIPs"));
    assert!(matches("events *: a*b*", "events p: a1b2") && !matches("a*b", "a") && matches("a", "a"));
    let allowed = Allowed::parse("# comment\nfinal * podIP\tno network\nnode *\tnever\n");
    let difference = Difference::new("final web", "podIP", "a", "b");
    assert_eq!(allowed.reason(&difference), Some("no network"));
    assert_eq!(allowed.reason(&Difference::new("final web", "phase", "a", "b")), None);
    assert_eq!(allowed.unused(&[difference]), [("node *", "never")]);
}

#[test]
fn recording_is_assembled_from_audit_log_pods_and_events() {
    let audit = [
        json!({"verb": "patch", "uri": "/api/v1/namespaces/diff/pods/p/status?timeout=10s", "code": 200, "at": "t",
            "request": {"status": {}}, "response": {"kind": "Pod", "status": {"phase": "Running"}}}),
        json!({"verb": "patch", "uri": "/api/v1/namespaces/other/pods/p/status", "code": 200}),
        json!({"verb": "get", "uri": "/api/v1/namespaces/diff/pods/p", "code": 200}),
    ]
    .map(|call| call.to_string())
    .join("\n");
    let pods = json!({"items": [{"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Running"}}]});
    let events = json!({"items": [
        {"involvedObject": {"kind": "Pod", "namespace": "diff", "name": "gone"}, "reason": "Killing", "type": "Normal"},
        {"involvedObject": {"kind": "Node", "name": "p"}, "reason": "Starting"},
    ]});
    let recorded = assemble(&audit, &pods, &events, "diff");
    assert_eq!(recorded.keys().collect::<Vec<_>>(), ["gone", "p"]);
    assert_eq!(recorded["p"]["patches"].as_array().map(Vec::len), Some(1));
    assert_eq!(recorded["p"]["patches"][0]["status"]["phase"], "Running");
    assert_eq!(recorded["p"]["final"]["status"]["phase"], "Running");
    assert_eq!(recorded["gone"]["events"][0]["reason"], "Killing");
    assert!(recorded["gone"]["final"].is_null());
}
