//! One script in, the last status out.

use expect_test::{Expect, expect};

use super::scene::{play, shown, time};

#[track_caller]
fn check(script: &str, expected: Expect) {
    let (_, played) = play(script);
    expected.assert_eq(&shown(played.last().expect("a scene")));
}

#[test]
fn a_new_pod_waits_for_its_containers() {
    check(
        "pod a b | unseen @notsynced",
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
fn readiness_is_a_matter_of_verdicts() {
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
fn readiness_gates_wait_for_others() {
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
fn restarts_are_shown_with_the_run_before() {
    check(
        "pod a | a=exited(1)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a | a=exited(1) why(a/CrashLoopBackOff)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting CrashLoopBackOff: told, before: exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a | a=exited(1),running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, before: exited 1 Error test://a-0, restarts 1, ready, started
    "#]],
    );
    check(
        "pod a | a=exited(1),exited(0)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 0 Completed test://a-1, before: exited 1 Error test://a-0, restarts 1
    "#]],
    );
    check(
        "pod a | a=exited(1),exited(2) why(a/CrashLoopBackOff)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting CrashLoopBackOff: told, before: exited 2 Error test://a-1, restarts 1
    "#]],
    );
    check(
        "pod a | a=exited(137/OOMKilled),running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, before: exited 137 OOMKilled test://a-0, restarts 1, ready, started
    "#]],
    );
    check(
        "pod a | a=running why(a/CrashLoopBackOff)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a | a=exited(1) | a=#1:running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, before: exited 1 Error test://a-0, restarts 1, ready, started
    "#]],
    );
    check(
        "pod a | a=exited(1) why(a/CrashLoopBackOff) | a=exited(1)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a | a=exited(1) why(a/CrashLoopBackOff) | why(a/CrashLoopBackOff)",
        expect![[r#"
        Running
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting CrashLoopBackOff: told, before: exited 1 Error test://a-0
    "#]],
    );
}

#[test]
fn failed_starts_say_why() {
    check(
        "pod a b | box=ready why(a/ErrImagePull) b=running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ErrImagePull: told
        b running, ready, started
    "#]],
    );
    check(
        "pod a | box=ready why(a/CreateContainerConfigError)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting CreateContainerConfigError: told
    "#]],
    );
    check(
        "pod a | a=created why(a/RunContainerError)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting RunContainerError: told
    "#]],
    );
    check(
        "pod a:i b | box=ready why(a/ImagePullBackOff)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [a]) -Ready(ContainersNotReady: containers with unready status: [b])
        init a waiting ImagePullBackOff: told
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
fn init_containers_come_first() {
    check(
        "pod i:i a | unseen @notsynced",
        expect![[r#"
        Pending
        -PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i waiting PodInitializing
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i a | i=running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i running, started
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i j:i a | i=exited(0) j=running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [j]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i exited 0 Completed test://i-0, ready
        init j running, started
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i a | i=exited(0)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        init i exited 0 Completed test://i-0, ready
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i a | i=exited(0) a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        init i exited 0 Completed test://i-0, ready
        a running, ready, started
    "#]],
    );
    check(
        "pod i:i a | i=exited(1)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i exited 1 Error test://i-0
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i a | i=exited(1) why(i/CrashLoopBackOff)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i waiting CrashLoopBackOff: told, before: exited 1 Error test://i-0
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i a policy=OnFailure | i=exited(1),running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i running, before: exited 1 Error test://i-0, restarts 1, started
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i a policy=Never | i=exited(1)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(PodFailed)
        init i exited 1 Error test://i-0
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:iF a policy=Never | i=exited(1)",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i exited 1 Error test://i-0
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i a policy=Never | i=exited(0/OOMKilled)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(PodFailed)
        init i exited 0 OOMKilled test://i-0
        a waiting PodInitializing
    "#]],
    );
}

#[test]
fn an_init_container_the_runtime_forgot_is_done_if_later_ones_exist() {
    check(
        "pod i:i a | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        init i exited 0 Completed, ready
        a running, ready, started
    "#]],
    );
    check(
        "pod i:i a | i=exited(0) a=running | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        init i exited 0 Completed test://i-0, ready
        a running, ready, started
    "#]],
    );
    check(
        "pod i:i a | a=unknown",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i waiting PodInitializing
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i j:i a | j=running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i j]) -Ready(ContainersNotReady: containers with unready status: [a])
        init i waiting PodInitializing
        init j running, started
        a waiting PodInitializing
    "#]],
    );
}

#[test]
fn sidecars_count_for_readiness_and_initialization() {
    check(
        "pod s:s a | s=running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        init s running, ready, started
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod s:sS a | s=running",
        expect![[r#"
        Pending
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [s]) -Ready(ContainersNotReady: containers with unready status: [s a])
        init s running
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod s:sS a | s=running ok(s.S) a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        init s running, ready, started
        a running, ready, started
    "#]],
    );
    check(
        "pod s:sR a | s=running a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [s])
        init s running, started
        a running, ready, started
    "#]],
    );
    check(
        "pod s:sR a | s=running ok(s.R) a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        init s running, ready, started
        a running, ready, started
    "#]],
    );
    check(
        "pod s:sS a | s=exited(1),running a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [s])
        init s running, before: exited 1 Error test://s-0, restarts 1
        a running, ready, started
    "#]],
    );
    check(
        "pod s:s a | s=exited(1) why(s/CrashLoopBackOff) a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [s])
        init s waiting CrashLoopBackOff: told, before: exited 1 Error test://s-0
        a running, ready, started
    "#]],
    );
}

#[test]
fn sidecars_do_not_decide_how_a_pod_ends() {
    check(
        "pod s:s a policy=Never | s=running a=exited(0)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        init s running, ready, started
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod s:s a policy=Never | s=exited(137) a=exited(0)",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        init s exited 137 Error test://s-0
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod s:s a policy=OnFailure | s=exited(1) a=exited(0)",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        init s exited 1 Error test://s-0
        a exited 0 Completed test://a-0
    "#]],
    );
}

#[test]
fn a_pod_ends_by_its_restart_policy() {
    check(
        "pod a policy=Never | a=exited(0)",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a policy=Never | a=exited(1)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a b policy=Never | a=exited(0) b=exited(1)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 0 Completed test://a-0
        b exited 1 Error test://b-0
    "#]],
    );
    check(
        "pod a b policy=Never | a=exited(1) b=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 1 Error test://a-0
        b running, ready, started
    "#]],
    );
    check(
        "pod a policy=OnFailure | a=exited(0)",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a policy=OnFailure | a=exited(1)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a b policy=OnFailure | a=exited(0) b=exited(1) why(b/CrashLoopBackOff)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b])
        a exited 0 Completed test://a-0
        b waiting CrashLoopBackOff: told, before: exited 1 Error test://b-0
    "#]],
    );
    check(
        "pod a | a=exited(0)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 0 Completed test://a-0
    "#]],
    );
}

#[test]
fn a_containers_own_policy_and_rules_come_before_the_pods() {
    check(
        "pod a:N | a=exited(1)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a:N b | a=exited(1) b=exited(0)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b])
        a exited 1 Error test://a-0
        b exited 0 Completed test://b-0
    "#]],
    );
    check(
        "pod a:F policy=Never | a=exited(1)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a:N3 policy=Never | a=exited(3)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 3 Error test://a-0
    "#]],
    );
    check(
        "pod a:N3 policy=Never | a=exited(4)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 4 Error test://a-0
    "#]],
    );
}

#[test]
fn a_terminal_phase_stays() {
    check(
        "pod a policy=Never | a=exited(0) | a=exited(0),running",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a running, before: exited 0 Completed test://a-0, restarts 1, ready, started
    "#]],
    );
    check(
        "pod a policy=Never | a=exited(1) | unseen",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a api=Succeeded | a=running",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a running, ready, started
    "#]],
    );
    check(
        "pod a | @terminated end(Evicted) a=exited(0) | @terminated",
        expect![[r#"
        Failed (Evicted: told)
        -PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 0 Completed test://a-0
    "#]],
    );
}

#[test]
fn a_terminal_phase_waits_for_the_containers() {
    check(
        "pod a | a=running | a=running end(DeadlineExceeded)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a | a=running | a=running end(DeadlineExceeded) @terminating",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a | a=running | a=exited(137) end(DeadlineExceeded) @terminating",
        expect![[r#"
        Failed (DeadlineExceeded: told)
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 137 Error test://a-0
    "#]],
    );
    check(
        "pod a | a=running | a=unknown end(DeadlineExceeded) @terminating",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 137 ContainerStatusUnknown, restarts 1
    "#]],
    );
    check(
        "pod a | a=running | unseen end(DeadlineExceeded) @terminating",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a b policy=Never | a=running b=running | a=exited(1) b=unknown",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b])
        a exited 1 Error test://a-0
        b exited 137 ContainerStatusUnknown, restarts 1
    "#]],
    );
}

#[test]
fn a_rejected_pod_only_says_why() {
    check(
        "pod a | unseen @rejected end(OutOfcpu)",
        expect![[r#"
        Failed (OutOfcpu: told)

    "#]],
    );
    check(
        "pod a api=Pending cond=example.com/lb:True | unseen @rejected end(NodePorts)",
        expect![[r#"
        Failed (NodePorts: told)
        +example.com/lb
    "#]],
    );
}

#[test]
fn a_stopped_pod_ends_whatever_its_policy() {
    check(
        "pod a | a=running deleting @terminating",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a | a=exited(0) deleting @terminating",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a | a=running | a=exited(137) deleting @terminating",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 137 Error test://a-0
    "#]],
    );
    check(
        "pod a b | a=exited(0) b=exited(143) deleting @terminated",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 0 Completed test://a-0
        b exited 143 Error test://b-0
    "#]],
    );
    check(
        "pod a | box=ready deleting @terminating",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
    check(
        "pod a | deleting @terminated",
        expect![[r#"
        Failed
        -PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 137 ContainerStatusUnknown
    "#]],
    );
    check(
        "pod i:i a | i=running | deleting @terminated",
        expect![[r#"
        Failed
        -PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(PodFailed)
        init i exited 137 ContainerStatusUnknown, before: exited 137 ContainerStatusUnknown
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod i:i a | deleting @terminated",
        expect![[r#"
        Failed
        -PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(PodFailed)
        init i waiting PodInitializing
        a waiting PodInitializing
    "#]],
    );
    check(
        "pod a | a=running | deleting @terminated",
        expect![[r#"
        Failed
        -PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 137 ContainerStatusUnknown, before: exited 137 ContainerStatusUnknown
    "#]],
    );
}

#[test]
fn a_static_pod_does_not_end_by_being_stopped() {
    check(
        "pod a static | a=running | a=exited(0) @terminating",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a static | a=running | a=exited(0) @terminated",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a static policy=Never | a=exited(0)",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a exited 0 Completed test://a-0
    "#]],
    );
}

#[test]
fn a_lost_container_is_shown_as_killed() {
    check(
        "pod a b | a=running b=running | b=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating, before: exited 137 ContainerStatusUnknown, restarts 1
        b running, ready, started
    "#]],
    );
    check(
        "pod a | a=running | deleting @terminating",
        expect![[r#"
        Failed
        -PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a waiting ContainerCreating, before: exited 137 ContainerStatusUnknown
    "#]],
    );
    check(
        "pod a policy=Never | a=running |",
        expect![[r#"
        Failed
        -PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a waiting ContainerCreating, before: exited 137 ContainerStatusUnknown, restarts 1
    "#]],
    );
    check(
        "pod a | a=running | | a=#1:running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, before: exited 137 ContainerStatusUnknown, restarts 1, ready, started
    "#]],
    );
    check(
        "pod a | a=running | | |",
        expect![[r#"
        Running
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating, before: exited 137 ContainerStatusUnknown, restarts 1
    "#]],
    );
    check(
        "pod a | a=exited(3) |",
        expect![[r#"
        Running
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 3 Error test://a-0
    "#]],
    );
    check(
        "pod a | a=running | a=unknown",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 137 ContainerStatusUnknown, restarts 1
    "#]],
    );
    check(
        "pod a | a=running | a=unknown | a=unknown",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 137 ContainerStatusUnknown, restarts 1
    "#]],
    );
    check(
        "pod a | a=unknown",
        expect![[r#"
        Pending
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating
    "#]],
    );
}

#[test]
fn a_container_lost_while_its_pod_is_stopped_does_not_count_as_restarted() {
    check(
        "pod a static | a=running | @terminating",
        expect![[r#"
        Running
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating, before: exited 137 ContainerStatusUnknown
    "#]],
    );
    check(
        "pod a | a=running | deleting",
        expect![[r#"
        Running
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating, before: exited 137 ContainerStatusUnknown
    "#]],
    );
}

#[test]
fn a_start_that_failed_between_does_not_hide_the_run_before() {
    check(
        "pod a | a=exited(1),created,created",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating, before: exited 1 Error test://a-0, restarts 2
    "#]],
    );
    check(
        "pod a | a=exited(1),created why(a/RunContainerError)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting RunContainerError: told, before: exited 1 Error test://a-0, restarts 1
    "#]],
    );
}

#[test]
fn a_pod_moves_through_its_life() {
    let life = "pod i:i a:R policy=OnFailure | unseen @notsynced | box=ready | i=running | i=exited(0) a=running \
                | i=exited(0) a=running ok(a.R) | i=exited(0) a=exited(0)";
    let (_, played) = play(life);
    let phases: Vec<_> = played.iter().filter_map(|s| s.phase.as_deref()).collect();
    assert_eq!(phases, ["Pending", "Pending", "Pending", "Running", "Running", "Succeeded"]);
}

#[test]
fn until_somebody_looks_what_was_said_stands() {
    check(
        "pod a:R | a=running ok(a.R) | unseen @notsynced",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
    check(
        "pod a | a=exited(1),running | unseen @notsynced",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, before: exited 1 Error test://a-0, restarts 1, ready, started
    "#]],
    );
}

#[test]
fn restart_counts_do_not_shrink() {
    check(
        "pod a | a=#4:running | a=#1:running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, restarts 4, ready, started
    "#]],
    );
    check(
        "pod a | a=#4:running | box=ready",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating, before: exited 137 ContainerStatusUnknown, restarts 5
    "#]],
    );
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
        ephemeral x waiting ErrImagePull: told
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
fn a_restart_of_all_containers_has_a_condition() {
    let all = "why(a/RestartingAllContainers) why(b/RestartingAllContainers)";
    check(
        &format!("pod a b policy=Never | a=exited(3) b=exited(137) {all}"),
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b]) +AllContainersRestarting(RestartAllContainersStarted)
        a waiting RestartingAllContainers: told, before: exited 3 Error test://a-0
        b waiting RestartingAllContainers: told, before: exited 137 Error test://b-0
    "#]],
    );
    check(
        &format!("pod a b policy=Never | a=exited(3) b=exited(137) {all} | a=#1:running b=#1:running"),
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized +Ready -AllContainersRestarting
            a running, before: exited 3 Error test://a-0, restarts 1, ready, started
            b running, before: exited 137 Error test://b-0, restarts 1, ready, started
        "#]],
    );
}

#[test]
fn conditions_of_others_pass_through() {
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

/// Address lines: pod addresses, then node addresses.
#[track_caller]
fn check_addresses(script: &str, expected: &str) {
    let (_, played) = play(script);
    let status = played.last().expect("a scene");
    let pod_ips: Vec<_> = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    let host_ips: Vec<_> = status.host_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    assert_eq!(status.pod_ip, pod_ips.first().cloned(), "{script}");
    assert_eq!(status.host_ip, host_ips.first().cloned(), "{script}");
    assert_eq!(format!("pod {} host {}", pod_ips.join(","), host_ips.join(",")), expected, "{script}");
}

#[test]
fn a_pod_has_one_address_of_each_family_the_nodes_first() {
    check_addresses("pod a | box=none", "pod  host 192.168.0.1");
    check_addresses("pod a | a=running", "pod 10.0.0.1 host 192.168.0.1");
    check_addresses("pod a | a=running ip=fd00::1,10.0.0.1", "pod 10.0.0.1,fd00::1 host 192.168.0.1");
    check_addresses("pod a | a=running ip=10.0.0.1,fd00::1 host=fd::1", "pod fd00::1,10.0.0.1 host fd::1");
    check_addresses(
        "pod a | a=running ip=10.0.0.1,10.0.0.2,fd00::1",
        "pod 10.0.0.1,fd00::1 host 192.168.0.1",
    );
    check_addresses("pod a | a=running ip=fd00::1 host=", "pod fd00::1 host ");
}

#[test]
fn a_stopped_pod_keeps_its_address() {
    check_addresses("pod a | a=running | a=exited(0) box=notready", "pod 10.0.0.1 host 192.168.0.1");
    check_addresses("pod a | a=running | box=none", "pod 10.0.0.1 host 192.168.0.1");
    check_addresses("pod a was=10.9.9.9 | unseen @notsynced", "pod 10.9.9.9 host 192.168.0.1");
}

#[test]
fn a_new_sandbox_without_address_has_none() {
    check_addresses("pod a | a=running | box=noip", "pod  host 192.168.0.1");
}

#[test]
fn a_host_network_pod_shares_the_nodes_addresses() {
    check_addresses("pod a hostnet | a=running ip=", "pod 192.168.0.1 host 192.168.0.1");
    check_addresses(
        "pod a hostnet | a=running host=10.1.1.1,fd::1",
        "pod 10.1.1.1,fd::1 host 10.1.1.1,fd::1",
    );
    check_addresses(
        "pod a hostnet | a=running host=10.1.1.1 | a=running host=10.2.2.2",
        "pod 10.1.1.1 host 10.2.2.2",
    );
    check_addresses(
        "pod a hostnet | a=running host=10.1.1.1 | a=running host=10.1.1.1,fd::1",
        "pod 10.1.1.1,fd::1 host 10.1.1.1,fd::1",
    );
    check_addresses(
        "pod a hostnet | a=running host=10.1.1.1 | a=running host=fd::1,10.1.1.1",
        "pod 10.1.1.1 host fd::1,10.1.1.1",
    );
    check_addresses("pod a hostnet | a=running | a=running host=", "pod 192.168.0.1 host 192.168.0.1");
}

#[test]
fn the_start_time_is_set_once_and_conditions_keep_theirs_while_unchanged() {
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
fn the_generation_of_the_spec_is_told_and_quality_of_service_kept() {
    let (_, played) = play("pod a:r gen=7 | a=running");
    assert_eq!(played[0].observed_generation, Some(7));
    assert!(played[0].conditions.iter().flatten().all(|c| c.observed_generation == Some(7)));
    assert_eq!(played[0].qos_class.as_deref(), Some("Burstable"));
    let (_, played) = play("pod a gen=0 | a=running");
    assert_eq!(played[0].observed_generation, None);
    assert_eq!(played[0].qos_class.as_deref(), Some("BestEffort"));
}

#[test]
fn what_a_container_was_given_is_shown() {
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

#[test]
fn a_container_that_never_started_shows_what_is_known() {
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
fn a_pod_is_not_done_while_its_container_starts_again_for_a_reason_of_ours() {
    check(
        "pod a policy=OnFailure | a=running | a=exited(0) back(a)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a policy=Never | a=running | a=exited(137) back(a)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 137 Error test://a-0
    "#]],
    );
}
