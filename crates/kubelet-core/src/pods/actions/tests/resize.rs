//! Resize of running containers as a step of the plan.

use crate::pods::fixture::{case, show};

#[track_caller]
fn check(line: &str, expected: &str) {
    let case = case(line);
    assert_eq!(show(&case.plan(), case.now), expected, "{line}");
}

#[test]
fn running_containers_are_resized_to_what_is_allocated() {
    check("main:a(cpu=2) main:b | sandbox a=running b=running cpu:a=1000", "resize pod a-0");
    check("main:a(cpu=2) main:b | sandbox a=running b=running cpu:a=2000", "settled");
    check("main:a(cpu=2) | sandbox a=running", "settled");
    check("main:a(cpu=2) | sandbox a=exited(1,600s) cpu:a=1000", "start Regular a#1 Exited 1 Always");
    check(
        "main:a(cpu=2) main:b(cpu=1) | sandbox a=running b=running cpu:a=1000 cpu:b=2000",
        "resize pod a-0 b-0",
    );
    check("sidecar:s(cpu=2) main:a | sandbox s=running a=running cpu:s=1000", "resize pod s-0");
    check("sidecar:s(startup,cpu=2) main:a | sandbox s=running cpu:s=1000", "settled");
    check("init:i(cpu=2) main:a | sandbox i=running cpu:i=1000", "resize pod i-0");
}

#[test]
fn container_is_restarted_for_a_resource_whose_policy_requires_it() {
    check("main:a(cpu=2!) | sandbox a=running cpu:a=1000", "kill a-0 ResizeRequiresRestart");
    check(
        "main:a(cpu=2!) main:b(cpu=2) | sandbox a=running b=running cpu:a=1000 cpu:b=1000",
        "kill a-0 ResizeRequiresRestart",
    );
    let killed = "a=exited(0) killed:a=ResizeRequiresRestart";
    check(
        &format!("Never main:a(cpu=2!) | sandbox {killed} cpu:a=1000 cgroup=changed resizing"),
        "resize pod; start Regular a#1 Killed ResizeRequiresRestart",
    );
    check(
        "sidecar:s(cpu=2!) main:a | sandbox s=running a=running cpu:s=1000",
        "kill s-0 ResizeRequiresRestart",
    );
    check("init:i(cpu=2!) main:a | sandbox i=running cpu:i=1000", "settled");
}
