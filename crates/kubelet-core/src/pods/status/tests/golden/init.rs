//! Init containers and sidecars.

use expect_test::expect;

use super::check;

#[test]
fn init_containers_come_first() {
    check(
        "pod i:i a | unseen",
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
        init i waiting CrashLoopBackOff: details, before: exited 1 Error test://i-0
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
fn lost_init_container_is_completed_if_later_ones_exist() {
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
        init s waiting CrashLoopBackOff: details, before: exited 1 Error test://s-0
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
