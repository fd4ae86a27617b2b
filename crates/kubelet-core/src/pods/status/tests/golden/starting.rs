//! Pods that begin: what waits, what runs, when they are ready.

use expect_test::expect;

use super::super::scenario::play;
use super::check;

#[test]
fn a_new_pod_waits_for_its_containers() {
    check(
        "pod a b | unseen",
        expect![[r#"
        Pending
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b])
        a waiting ContainerCreating
        b waiting ContainerCreating
    "#]],
    );
    check(
        "pod a |",
        expect![[r#"
        Pending
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
    check(
        "pod a | box=noip",
        expect![[r#"
        Pending
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
    check(
        "pod a hostnet | box=noip",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
    check(
        "pod a | box=ready",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
    check(
        "pod a | box=twice",
        expect![[r#"
        Pending
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
    check(
        "pod a | a=created",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
    check(
        "pod a b | a=running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [b])
        a running, ready, started
        b waiting ContainerCreating
    "#]],
    );
    check(
        "pod a | a=running starting(a)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
}

#[test]
fn running_containers_make_a_running_pod() {
    check(
        "pod a | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod b a | a=running b=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
        b running, ready, started
    "#]],
    );
    check(
        "pod a policy=Never | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
}

#[test]
fn readiness_follows_the_probe_verdicts() {
    check(
        "pod a:R | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a running, started
    "#]],
    );
    check(
        "pod a:R | a=running ok(a.R)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a:R | a=running bad(a.R)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a running, started
    "#]],
    );
    check(
        "pod a:RS | a=running ok(a.R)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a running
    "#]],
    );
    check(
        "pod a:S | a=running bad(a.S)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a running
    "#]],
    );
    check(
        "pod a:RS | a=running ok(a.S) ok(a.R)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a:R b | a=running ok(a.R) b=exited(1)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [b])
        a running, ready, started
        b exited 1 Error test://b-0
    "#]],
    );
    check(
        "pod a:R | a=running ok(a.R) deleting @terminating",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod b:R a:R | a=running b=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [b a])
        a running, started
        b running, started
    "#]],
    );
}

#[test]
fn readiness_gates_wait_for_their_conditions() {
    check(
        "pod a gate=example.com/lb | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ReadinessGatesNotReady: corresponding condition of pod readiness gate "example.com/lb" does not exist.) +ContainersReady
        a running, ready, started
    "#]],
    );
    check(
        "pod a gate=example.com/lb cond=example.com/lb:False | a=running",
        expect![[r#"
        Running
        -example.com/lb +PodReadyToStartContainers +Initialized -Ready(ReadinessGatesNotReady: the status of pod readiness gate "example.com/lb" is not "True", but False) +ContainersReady
        a running, ready, started
    "#]],
    );
    check(
        "pod a gate=example.com/lb cond=example.com/lb:True | a=running",
        expect![[r#"
        Running
        +example.com/lb +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a:R gate=example.com/lb | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a running, started
    "#]],
    );
}

#[test]
fn failed_starts_report_a_waiting_reason() {
    check(
        "pod a b | box=ready why(a/ErrImagePull) b=running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ErrImagePull: details
        b running, ready, started
    "#]],
    );
    check(
        "pod a | box=ready why(a/CreateContainerConfigError)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting CreateContainerConfigError: details
    "#]],
    );
    check(
        "pod a | a=created why(a/RunContainerError)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting RunContainerError: details
    "#]],
    );
    check(
        "pod a:i b | box=ready why(a/ImagePullBackOff)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [a]) -Ready(ContainersNotReady: containers with unready status: [b])
        init a waiting ImagePullBackOff: details
        b waiting PodInitializing
    "#]],
    );
    check(
        "pod a | box=ready why(a/ErrImagePull) deleting @terminating",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
    check(
        "pod a policy=Never | a=exited(0) why(a/ErrImagePull)",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a exited 0 Completed test://a-0
    "#]],
    );
}

#[test]
fn unobserved_pod_keeps_its_reported_status() {
    check(
        "pod a:R | a=running ok(a.R) | unseen",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a | a=exited(1),running | unseen",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, before: exited 1 Error test://a-0, restarts 1, ready, started
    "#]],
    );
}

#[test]
fn container_that_never_started_has_a_waiting_status() {
    let (_, played) = play("pod a:vr | unseen");
    let status = &played[0].container_statuses.as_ref().expect("containers")[0];
    expect![[r#"
        {
          "image": "a:1",
          "imageID": "",
          "name": "a",
          "ready": false,
          "restartCount": 0,
          "started": false,
          "state": {
            "waiting": {
              "reason": "ContainerCreating"
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

#[test]
fn ready_to_start_condition_needs_its_feature_gate() {
    check(
        "pod a | a=running ok(a.R) off(ready-to-start)",
        expect![[r#"
        Running
        +Initialized +Ready
        a running, ready, started
    "#]],
    );
}
