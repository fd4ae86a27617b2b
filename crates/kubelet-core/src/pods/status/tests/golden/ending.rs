//! How pods end, and that they stay ended.

use expect_test::expect;

use super::check;

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
        b waiting CrashLoopBackOff: details, before: exited 1 Error test://b-0
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
fn container_restart_policy_and_rules_override_the_pods() {
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
        Failed (Evicted: details)
        +DisruptionTarget(TerminationByKubelet: details) -PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 0 Completed test://a-0
    "#]],
    );
    // Go kubelet: preemption.go; the message of the condition is another one than that of the status.
    check(
        "pod a | @terminated end(Preempting) a=exited(0) | @terminated",
        expect![[r#"
        Failed (Preempting: details)
        +DisruptionTarget(TerminationByKubelet: Pod was preempted by Kubelet to accommodate a critical pod.) -PodReadyToStartContainers +Initialized -Ready(PodFailed)
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
            +PodReadyToStartContainers +Initialized -Ready(PodFailed)
            a running, ready, started
        "#]],
    );
    check(
        "pod a | a=running | a=running end(DeadlineExceeded) @terminating",
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(PodFailed)
            a running, ready, started
        "#]],
    );
    check(
        "pod a | a=running | a=exited(137) end(DeadlineExceeded) @terminating",
        expect![[r#"
        Failed (DeadlineExceeded: details)
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 137 Error test://a-0
    "#]],
    );
    check(
        "pod a | a=running | a=unknown end(DeadlineExceeded) @terminating",
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(PodFailed)
            a exited 137 ContainerStatusUnknown, restarts 1
        "#]],
    );
    check(
        "pod a | a=running | unseen end(DeadlineExceeded) @terminating",
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(PodFailed)
            a running, ready, started
        "#]],
    );
    check(
        "pod a b policy=Never | a=running b=running | a=exited(1) b=unknown",
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(PodFailed)
            a exited 1 Error test://a-0
            b exited 137 ContainerStatusUnknown, restarts 1
        "#]],
    );
}

#[test]
fn rejected_pod_reports_only_reason_and_message() {
    check(
        "pod a | unseen @rejected end(OutOfcpu)",
        expect![[r#"
        Failed (OutOfcpu: details)

    "#]],
    );
    check(
        "pod a api=Pending cond=example.com/lb:True | unseen @rejected end(NodePorts)",
        expect![[r#"
        Failed (NodePorts: details)
        +example.com/lb
    "#]],
    );
}

#[test]
fn stopped_pod_ends_under_any_restart_policy() {
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
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 137 ContainerStatusUnknown
    "#]],
    );
    check(
        "pod i:i a | i=running | deleting @terminated",
        expect![[r#"
            Failed
            -PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
            init i exited 137 ContainerStatusUnknown, before: exited 137 ContainerStatusUnknown
            a waiting PodInitializing
        "#]],
    );
    check(
        "pod i:i a | deleting @terminated",
        expect![[r#"
            Failed
            -PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
            init i exited 137 ContainerStatusUnknown
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
fn stopped_static_pod_gets_no_terminal_phase() {
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
fn condition_initialized_of_a_stopped_static_pod_does_not_change_when_it_is_computed_again() {
    let ended = "i=exited(0) s=exited(0) a=created @terminated";
    check(
        &format!("pod i:i s:sS a static | {ended} | {ended}"),
        expect![[r#"
        Running
        +PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [s]) -Ready(ContainersNotReady: containers with unready status: [s a])
        init i exited 0 Completed test://i-0, ready
        init s exited 0 Completed test://s-0
        a exited 137 ContainerStatusUnknown
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
fn container_restart_rules_are_ignored_without_their_feature_gate() {
    check(
        "pod a:3N policy=Never | a=exited(3)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 3 Error test://a-0
    "#]],
    );
    check(
        "pod a:3N policy=Never | a=exited(3) off(rules)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 3 Error test://a-0
    "#]],
    );
    check(
        "pod a:N policy=Always | a=exited(0) off(rules)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 0 Completed test://a-0
    "#]],
    );
}

// Recordings: config-missing.json, image-never.json, init-crash-loop.json. The Go kubelet generates the conditions while
// containers still wait, and calls the pod Failed afterwards (`TerminatePod`).
#[test]
fn pending_pod_that_is_deleted_keeps_containers_not_ready() {
    let failed = "why(a/CreateContainerConfigError)";
    check(
        &format!(
            "pod a | box=ready {failed} | box=notready deleting @terminated | box=notready deleting @terminated"
        ),
        expect![[r#"
            Failed
            -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
            a exited 137 ContainerStatusUnknown
        "#]],
    );
    check(
        "pod i:i a | i=exited(1),exited(1) | i=exited(1),exited(1) box=notready deleting @terminated",
        expect![[r#"
            Failed
            -PodReadyToStartContainers -Initialized(ContainersNotInitialized: containers with incomplete status: [i]) -Ready(ContainersNotReady: containers with unready status: [a])
            init i exited 1 Error test://i-1, before: exited 1 Error test://i-0, restarts 1
            a waiting PodInitializing
        "#]],
    );
}

// Recording: deadline.json. The phase waits until nothing runs; the conditions do not.
#[test]
fn pod_past_its_deadline_is_not_ready_while_it_is_stopped() {
    check(
        "pod a | a=running | a=running end(DeadlineExceeded) @terminating",
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(PodFailed)
            a running, ready, started
        "#]],
    );
    check(
        "pod a | a=running | a=running end(Evicted) @terminating",
        expect![[r#"
            Running
            +DisruptionTarget(TerminationByKubelet: details) +PodReadyToStartContainers +Initialized +Ready
            a running, ready, started
        "#]],
    );
}
