//! What else a status shows and keeps.

use expect_test::expect;

use super::super::scenario::{play, time};
use super::check;

#[test]
fn pod_phases_follow_the_lifecycle() {
    let life = "pod i:i a:R policy=OnFailure | unseen | box=ready | i=running | i=exited(0) a=running \
                | i=exited(0) a=running ok(a.R) | i=exited(0) a=exited(0)";
    let (_, played) = play(life);
    let phases: Vec<_> = played.iter().filter_map(|s| s.phase.as_deref()).collect();
    assert_eq!(phases, ["Pending", "Pending", "Pending", "Running", "Running", "Succeeded"]);
}

#[test]
fn ephemeral_containers_change_nothing_else() {
    check(
        "pod a x:e | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
        ephemeral x waiting ContainerCreating
    "#]],
    );
    check(
        "pod a x:e | a=running x=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
        ephemeral x running
    "#]],
    );
    check(
        "pod a x:e policy=Never | a=exited(0) x=exited(1)",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a exited 0 Completed test://a-0
        ephemeral x exited 1 Error test://x-0
    "#]],
    );
    check(
        "pod a x:e | a=running why(x/ErrImagePull)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
        ephemeral x waiting ErrImagePull: details
    "#]],
    );
    check(
        "pod a x:e | a=running x=exited(1) why(x/CrashLoopBackOff)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
        ephemeral x exited 1 Error test://x-0
    "#]],
    );
}

#[test]
fn conditions_of_other_controllers_are_kept() {
    check(
        "pod a cond=example.com/x:True cond=Ready:Unknown | a=running",
        expect![[r#"
        Running
        +example.com/x +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a cond=DisruptionTarget:True | a=running",
        expect![[r#"
        Running
        +DisruptionTarget +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a cond=PodResizePending:True | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
}

#[test]
fn start_time_and_transition_times_stay_while_unchanged() {
    let (_, played) = play("pod a:R | a=running | a=running ok(a.R) | a=running ok(a.R)");
    let since = |n: usize, kind: &str| {
        let all = played[n].conditions.as_ref().expect("conditions");
        let condition = all.iter().find(|c| c.type_ == kind).expect(kind);
        condition.last_transition_time.as_ref().expect("a time").0
    };
    assert!(played.iter().all(|s| s.start_time.as_ref().is_some_and(|t| t.0 == time(60))));
    assert_eq!([since(0, "Ready"), since(1, "Ready"), since(2, "Ready")], [time(60), time(120), time(120)]);
    assert_eq!(since(2, "Initialized"), time(60));
}

#[test]
fn observed_generation_is_reported_and_qos_class_kept() {
    let (_, played) = play("pod a:r gen=7 | a=running");
    assert_eq!(played[0].observed_generation, Some(7));
    assert!(played[0].conditions.iter().flatten().all(|c| c.observed_generation == Some(7)));
    assert_eq!(played[0].qos_class.as_deref(), Some("Burstable"));
    let (_, played) = play("pod a gen=0 | a=running");
    assert_eq!(played[0].observed_generation, None);
    assert_eq!(played[0].qos_class.as_deref(), Some("BestEffort"));
}

#[test]
fn container_status_has_its_resources_and_mounts() {
    let (_, played) = play("pod a:vr | a=running");
    let status = &played[0].container_statuses.as_ref().expect("containers")[0];
    expect![[r#"
        {
          "allocatedResources": {
            "cpu": "1"
          },
          "containerID": "test://a-0",
          "image": "a:1",
          "imageID": "sha256:1",
          "name": "a",
          "ready": true,
          "resources": {
            "limits": {
              "cpu": "2"
            },
            "requests": {
              "cpu": "1"
            }
          },
          "restartCount": 0,
          "started": true,
          "state": {
            "running": {
              "startedAt": "2023-11-14T22:13:21Z"
            }
          },
          "volumeMounts": [
            {
              "mountPath": "/data",
              "name": "data"
            },
            {
              "mountPath": "/conf",
              "name": "conf",
              "readOnly": true,
              "recursiveReadOnly": "Disabled"
            },
            {
              "mountPath": "/rro",
              "name": "rro",
              "readOnly": true,
              "recursiveReadOnly": "Disabled"
            }
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(status).expect("json"));
}
