//! Containers that start again, and what is shown of the run before.

use expect_test::expect;

use super::check;

#[test]
fn restarted_container_has_a_last_state() {
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
        a waiting CrashLoopBackOff: details, before: exited 1 Error test://a-0
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
        a waiting CrashLoopBackOff: details, before: exited 2 Error test://a-1, restarts 1
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
            a exited 1 Error test://a-0, before: exited 1 Error test://a-0
        "#]],
    );
    check(
        "pod a | a=exited(1) why(a/CrashLoopBackOff) | why(a/CrashLoopBackOff)",
        expect![[r#"
        Running
        -PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting CrashLoopBackOff: details, before: exited 1 Error test://a-0
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
        a waiting RunContainerError: details, before: exited 1 Error test://a-0, restarts 1
    "#]],
    );
}

/// `kubelet_pods_test.go`, TestConvertToAPIContainerStatuses: a run that follows an end is counted although its record says
/// less.
#[test]
fn restart_count_grows_past_the_record_of_a_container_that_runs_again() {
    check(
        "pod a | a=#5:exited(1) | a=#0:running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, before: exited 1 Error test://a-5, restarts 6, ready, started
    "#]],
    );
    check(
        "pod a | a=#5:exited(1) | a=#0:running | a=#0:running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, before: exited 1 Error test://a-5, restarts 6, ready, started
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
fn a_restart_of_all_containers_has_a_condition() {
    let all = "why(a/RestartingAllContainers) why(b/RestartingAllContainers)";
    check(
        &format!("pod a:A b policy=Never | a=exited(3) b=exited(137) {all}"),
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b]) +AllContainersRestarting(RestartAllContainersStarted: container exited with restart policy rule)
            a waiting RestartingAllContainers: details, before: exited 3 Error test://a-0
            b waiting RestartingAllContainers: details, before: exited 137 Error test://b-0
        "#]],
    );
    check(
        &format!("pod a:A b policy=Never | a=exited(3) b=exited(137) {all} | a=#1:running b=#1:running"),
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized +Ready -AllContainersRestarting
            a running, before: exited 3 Error test://a-0, restarts 1, ready, started
            b running, before: exited 137 Error test://b-0, restarts 1, ready, started
        "#]],
    );
}

#[test]
fn containers_removed_by_restart_all_report_it() {
    let all = "why(i/RestartingAllContainers) why(a/RestartingAllContainers) why(b/RestartingAllContainers)";
    let begun = format!("pod i:i a:A b policy=Never | i=exited(0) a=exited(3) b=running {all}");
    check(
        &format!("{begun} | b=running {all}"),
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a]) +AllContainersRestarting(RestartAllContainersStarted: container exited with restart policy rule)
            init i waiting RestartingAllContainers: details, before: exited 137 RestartingAllContainers, restarts 1
            a waiting RestartingAllContainers: details, before: exited 137 RestartingAllContainers, restarts 1
            b running, ready, started
        "#]],
    );
    check(
        &format!("{begun} | box=ready {all}"),
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b]) -AllContainersRestarting
            init i waiting RestartingAllContainers: details, before: exited 137 RestartingAllContainers, restarts 1
            a waiting RestartingAllContainers: details, before: exited 137 RestartingAllContainers, restarts 1
            b waiting RestartingAllContainers: details, before: exited 137 RestartingAllContainers, restarts 1
        "#]],
    );
    check(
        &format!("{begun} | box=ready {all} | box=ready {all}"),
        expect![[r#"
            Running
            +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b]) -AllContainersRestarting
            init i waiting RestartingAllContainers: details, before: exited 137 RestartingAllContainers, restarts 1
            a waiting RestartingAllContainers: details, before: exited 137 RestartingAllContainers, restarts 1
            b waiting RestartingAllContainers: details, before: exited 137 RestartingAllContainers, restarts 1
        "#]],
    );
    check(
        &format!("{begun} | box=ready {all} | i=#1:exited(0) a=#1:running b=#1:running"),
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready -AllContainersRestarting
        init i exited 0 Completed test://i-1, before: exited 137 RestartingAllContainers, restarts 1, ready
        a running, before: exited 137 RestartingAllContainers, restarts 1, ready, started
        b running, before: exited 137 RestartingAllContainers, restarts 1, ready, started
    "#]],
    );
    check(
        &format!("{begun} | box=ready | i=#1:running"),
        expect![[r#"
            Pending
            +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b]) -AllContainersRestarting
            init i running, before: exited 137 RestartingAllContainers, restarts 1, started
            a waiting RestartingAllContainers: The container is removed because RestartAllContainers in place, before: exited 137 RestartingAllContainers, restarts 1
            b waiting RestartingAllContainers: The container is removed because RestartAllContainers in place, before: exited 137 RestartingAllContainers, restarts 1
        "#]],
    );
    check(
        &format!(
            "{begun} | box=ready {all} | box=ready why(a/ErrImagePull) why(b/ErrImagePull) i=#1:exited(0)"
        ),
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a b]) -AllContainersRestarting
        init i exited 0 Completed test://i-1, before: exited 137 RestartingAllContainers, restarts 1, ready
        a waiting ErrImagePull: details, before: exited 137 RestartingAllContainers, restarts 1
        b waiting ErrImagePull: details, before: exited 137 RestartingAllContainers, restarts 1
    "#]],
    );
    check(
        &format!("{begun} | box=ready {all} deleting @terminating"),
        expect![[r#"
            Failed
            +PodReadyToStartContainers +Initialized -Ready(PodFailed) -AllContainersRestarting(PodFailed)
            init i waiting PodInitializing, before: exited 0 Completed test://i-0
            a waiting PodInitializing, before: exited 3 Error test://a-0
            b waiting PodInitializing, before: exited 137 ContainerStatusUnknown
        "#]],
    );
}

#[test]
fn pod_is_not_finished_while_the_kubelet_restarts_a_container() {
    check(
        "pod a policy=OnFailure | a=running | a=exited(0) bad(a.L)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a policy=Never | a=running | a=exited(137) killed(a/UnknownState)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating, before: exited 137 Error test://a-0
    "#]],
    );
}

#[test]
fn container_that_failed_its_liveness_probe_restarts_unless_the_policy_is_never() {
    check(
        "pod a policy=OnFailure | a=running | a=exited(0) bad(a.L) killed(a/LivenessFailed)",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
        a waiting ContainerCreating, before: exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a policy=Never | a=running | a=exited(137) bad(a.L) killed(a/LivenessFailed)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed)
        a exited 137 Error test://a-0
    "#]],
    );
}

// Go kubelet: GenerateAllContainersRestartingCondition.
#[test]
fn all_containers_restarting_condition_is_on_every_pod_with_such_a_rule() {
    check(
        "pod a:A | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready -AllContainersRestarting
        a running, ready, started
    "#]],
    );
    check(
        "pod a:A policy=Never | a=exited(0)",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted) -AllContainersRestarting(PodCompleted)
        a exited 0 Completed test://a-0
    "#]],
    );
    check(
        "pod a:A policy=Never | a=exited(1)",
        expect![[r#"
        Failed
        +PodReadyToStartContainers +Initialized -Ready(PodFailed) -AllContainersRestarting(PodFailed)
        a exited 1 Error test://a-0
    "#]],
    );
    check(
        "pod a:3 policy=Never | a=running",
        expect![[r#"
        Running
        +PodReadyToStartContainers +Initialized +Ready
        a running, ready, started
    "#]],
    );
}

// The API refuses the way from terminated to anything else under OnFailure (after exit code 0) and Never.
#[test]
fn container_killed_to_restart_is_waiting_with_last_state_and_never_terminated() {
    for policy in ["Always", "OnFailure", "Never"] {
        check(
            &format!(
                "pod a b policy={policy} | a=running b=running | a=exited(0) b=running killed(a/SpecChanged)"
            ),
            expect![[r#"
                Running
                +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
                a waiting ContainerCreating, before: exited 0 Completed test://a-0
                b running, ready, started
            "#]],
        );
        check(
            &format!(
                "pod a policy={policy} | a=running | a=exited(0) killed(a/SpecChanged) why(a/ErrImagePull)"
            ),
            expect![[r#"
                Running
                +PodReadyToStartContainers +Initialized -Ready(ContainersNotReady: containers with unready status: [a])
                a waiting ErrImagePull: details, before: exited 0 Completed test://a-0
            "#]],
        );
        check(
            &format!(
                "pod a policy={policy} | a=running | a=exited(0) killed(a/SpecChanged) | a=exited(0),running"
            ),
            expect![[r#"
                Running
                +PodReadyToStartContainers +Initialized +Ready
                a running, before: exited 0 Completed test://a-0, restarts 1, ready, started
            "#]],
        );
    }
    // A pod that is being deleted does not restart anything any more.
    check(
        "pod a policy=OnFailure | a=running | a=exited(0) killed(a/SpecChanged) deleting @terminating",
        expect![[r#"
        Succeeded
        +PodReadyToStartContainers +Initialized(PodCompleted) -Ready(PodCompleted)
        a exited 0 Completed test://a-0
    "#]],
    );
}
