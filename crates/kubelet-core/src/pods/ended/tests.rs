//! Cases map an observed pod to what its allocation holds once the pod's ended containers are released.

use std::sync::Arc;

use model::containers::find_container;
use resources_core::allocations::Allocations;
use resources_core::requests::Requests;

use crate::pods::fixture::{Case, case};

/// What the pod still holds: `a=1 b=1 together=2`, or `nothing` if it was released.
#[track_caller]
fn check(line: &str, is_stopping: bool, expected: &str) {
    let case = case(line);
    assert_eq!(shown(&case, is_stopping), expected, "{line}");
}

fn shown(case: &Case, is_stopping: bool) -> String {
    let ended = case.ended(is_stopping);
    let mut allocations = Allocations::default();
    let ticket = allocations.ask(Arc::new(case.pod.clone()));
    allocations.admit(ticket);
    allocations.record(ticket, ended);
    let Some(held) = allocations.held().next() else { return "nothing".to_owned() };
    let cpus = |requests: Requests| requests.get("cpu").map(ToString::to_string);
    let mut shown = Vec::new();
    for name in ["i", "s", "a", "b"] {
        let container = find_container(&case.pod, name);
        let cpus = container.and_then(|container| cpus(held.of_container(&container)));
        shown.extend(cpus.map(|cpus| format!("{name}={cpus}")));
    }
    shown.push(format!("together={}", cpus(held.requests()).unwrap_or_else(|| "0".to_owned())));
    shown.join(" ")
}

#[test]
fn container_that_never_runs_again_releases_its_allocation() {
    let two = "main:a(cpu=2) main:b(cpu=1)";
    check(&format!("Never {two} |"), false, "a=2 b=1 together=3");
    check(&format!("Never {two} | sandbox a=running b=running"), false, "a=2 b=1 together=3");
    check(&format!("Never {two} | sandbox a=exited(1) b=running"), false, "b=1 together=1");
    check(&format!("OnFailure {two} | sandbox a=exited(0) b=running"), false, "b=1 together=1");
    check(&format!("OnFailure {two} | sandbox a=exited(1) b=running"), false, "a=2 b=1 together=3");
    check(&format!("Always {two} | sandbox a=exited(0) b=running"), false, "a=2 b=1 together=3");
    check(&format!("Never {two} | sandbox a=exited(0) b=unknown"), false, "b=1 together=1");
    // A changed spec starts no container again that has ended.
    check(&format!("Never {two} | sandbox a=exited(0,old) b=running"), false, "b=1 together=1");
}

#[test]
fn container_restarted_by_a_rule_keeps_its_allocation() {
    let by_rule = "Never main:a(cpu=2,in42=Restart) main:b(cpu=1)";
    check(&format!("{by_rule} | sandbox a=exited(42) b=running"), false, "a=2 b=1 together=3");
    check(&format!("{by_rule} | sandbox a=exited(1) b=running"), false, "b=1 together=1");
    let all = "Never main:a(cpu=2) main:b(cpu=1,in42=RestartAll)";
    check(&format!("{all} | sandbox a=exited(0) b=running"), false, "a=2 b=1 together=3");
    check(&format!("{all} | sandbox a=exited(0) b=running norestartall"), false, "b=1 together=1");
    check(&format!("{all} | sandbox a=exited(0) b=exited(42)"), false, "a=2 b=1 together=3");
    check(&format!("{all} | sandbox a=exited(0) b=exited(1)"), false, "nothing");
}

#[test]
fn finished_pod_releases_its_allocation_before_its_sandbox_is_removed() {
    check("Never main:a(cpu=2) | sandbox a=exited(0)", false, "nothing");
    check("Never main:a(cpu=2) | sandbox a=exited(1)", false, "nothing");
    check("OnFailure main:a(cpu=2) | sandbox a=exited(1)", false, "a=2 together=2");
    check("Never sidecar:s(cpu=1) main:a(cpu=2) | sandbox s=running a=exited(0)", false, "s=1 together=1");
    check("Never sidecar:s(cpu=1) main:a(cpu=2) | sandbox s=exited(0) a=exited(0)", false, "nothing");
    check("Never init:i(cpu=3) main:a(cpu=2) | sandbox i=exited(1)", false, "nothing");
    check("Never main:a(cpu=2) |", false, "a=2 together=2");
}

#[test]
fn init_containers_release_their_allocation_once_they_cannot_run_again() {
    let line = "init:i(cpu=3) main:a(cpu=2) | sandbox a=running i=exited(0)";
    check(&format!("Never {line}"), false, "a=2 together=2");
    check(&format!("OnFailure {line}"), false, "i=3 a=2 together=3");
    check(
        "Never init:i(cpu=3) main:a(Always,cpu=2) | sandbox a=running i=exited(0)",
        false,
        "i=3 a=2 together=3",
    );
    check("Never init:i(cpu=3) main:a(cpu=2) | sandbox i=running", false, "i=3 a=2 together=3");
}

#[test]
fn stopping_pod_releases_exited_containers_and_finally_itself() {
    let line = "Always sidecar:s(cpu=1) main:a(cpu=2) main:b(cpu=4)";
    check(&format!("{line} | sandbox s=running a=exited(137) b=running"), true, "s=1 b=4 together=5");
    check(&format!("{line} | sandbox s=running a=exited(137)"), true, "s=1 b=4 together=5");
    check(&format!("{line} | sandbox s=exited(0) a=exited(137) b=exited(0)"), true, "together=0");
    check("Never main:a(cpu=2) | sandbox a=exited(0)", true, "nothing");
}
