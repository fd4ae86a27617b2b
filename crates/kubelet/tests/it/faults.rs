//! What survives the death of the kubelet or the runtime.

use serde_json::{Value, json};

use crate::lifecycle::{order, ordered_pod};
use crate::node::{FOREVER, Node, condition, container, restarts, shell_pod, uid};

fn id(pod: &Value, name: &str) -> Value {
    container(pod, name)["containerID"].clone()
}

#[test]
fn kubelet_restart_after_kill_keeps_containers_restart_counts_and_readiness() {
    let mut node = Node::start();
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": 1, "initialDelaySeconds": 3});
    node.apply("web", &pod);
    node.apply("once", &shell_pod("once", "sleep 1; exit 1"));
    let before = node.running("web");
    let crashed = node.pod_when("once", "was restarted", |pod| restarts(pod, "main") >= 1);
    node.restart_kubelet();
    let after =
        node.pod_when("web", "is listed again", |pod| container(pod, "main")["state"]["running"].is_object());
    assert_eq!(id(&after, "main"), id(&before, "main"));
    assert_eq!(condition(&after, "Ready"), "True", "readiness is seeded, not flipped: {after}");
    assert_eq!(after["status"]["startTime"], before["status"]["startTime"]);
    let crashed_after = node.pod_when("once", "is listed again", |pod| restarts(pod, "main") >= 0);
    assert!(restarts(&crashed_after, "main") >= restarts(&crashed, "main"));
}

#[test]
fn static_pod_removed_while_the_kubelet_is_down_is_terminated_after_restart() {
    let mut node = Node::start();
    node.apply("orphan", &shell_pod("orphan", FOREVER));
    node.apply("stays", &shell_pod("stays", FOREVER));
    let orphan = node.running("orphan");
    let stays = node.running("stays");
    node.kill_kubelet();
    node.delete("orphan");
    node.start_kubelet();
    node.wait_until_gone("orphan", &uid(&orphan));
    assert_eq!(id(&node.running("stays"), "main"), id(&stays, "main"));
}

#[test]
fn kubelet_killed_repeatedly_during_pod_start_still_starts_containers_in_order() {
    let mut node = Node::start();
    let shared = node.path("shared");
    node.apply("ordered", &ordered_pod(&shared));
    for _ in 0..5 {
        node.restart_kubelet();
    }
    let pod = node.running("ordered");
    // Running comes from the runtime; the shells may print their first lines later.
    let order = node.eventually("all containers have logged their start", |_| {
        let order = order(&shared);
        let expected = ["init ran", "sidecar-1 up", "sidecar-2 up", "main up"];
        let is_complete = expected.iter().all(|line| order.iter().any(|l| l == line));
        if is_complete { Ok(order) } else { Err(format!("{order:?}")) }
    });
    let position = |line: &str| order.iter().position(|l| l == line).unwrap_or(usize::MAX);
    assert!(position("init ran") < position("sidecar-1 up"), "{order:?}");
    assert!(position("sidecar-1 up") < position("sidecar-2 up"), "{order:?}");
    assert!(position("sidecar-2 up") < position("main up"), "{order:?}");
    let running = node.running_containers(&uid(&pod));
    assert_eq!(running, 3, "no container runs twice");
}

#[test]
fn kubelet_killed_during_pod_termination_completes_it_after_restart() {
    let mut node = Node::start();
    node.apply(
        "web",
        &shell_pod("web", "trap 'sleep 2; exit 0' TERM; while :; do sleep 3600 & wait $!; done"),
    );
    let pod = node.running("web");
    node.delete("web");
    node.eventually("termination has begun", |node| {
        if node.kubelet_log().contains("Stopping container main") {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    node.restart_kubelet();
    node.wait_until_gone("web", &uid(&pod));
}

#[test]
fn kubelet_killed_during_a_crash_loop_keeps_the_restart_count() {
    let mut node = Node::start();
    node.apply("crasher", &shell_pod("crasher", "exit 1"));
    let before = node.pod_when("crasher", "backs off", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    node.restart_kubelet();
    let after = node.pod_when("crasher", "was restarted once more", |pod| {
        restarts(pod, "main") > restarts(&before, "main")
    });
    assert_eq!(container(&after, "main")["lastState"]["terminated"]["exitCode"], 1);
}

#[test]
fn killed_runtime_delays_pods_until_it_is_back() {
    let mut node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let before = node.running("web");
    node.kill_runtime();
    node.eventually("the kubelet reports that the runtime is not ready", |node| {
        if node.kubelet_log().contains("Container runtime is not ready") {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    assert_eq!(node.healthz(), Ok("ok".to_owned()), "the kubelet itself stays healthy");
    node.resume_runtime();
    node.apply("late", &shell_pod("late", FOREVER));
    node.running("late");
    assert_eq!(
        id(&node.running("web"), "main"),
        id(&before, "main"),
        "the shims kept the containers running"
    );
}

#[test]
fn kubelet_killed_while_the_runtime_is_down_recovers_all_pods_when_it_is_back() {
    let mut node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    node.apply("terminating", &shell_pod("terminating", FOREVER));
    let (web, terminating) = (node.running("web"), node.running("terminating"));
    node.kill_runtime();
    node.kill_kubelet();
    node.delete("terminating");
    node.apply("late", &shell_pod("late", FOREVER));
    node.spawn_kubelet();
    node.eventually("the kubelet has tried to reach the runtime", |node| {
        let log = node.kubelet_log();
        let last_start = log.rfind("Kubelet version").unwrap_or_default();
        let has_tried = log[last_start..].contains("Container runtime is not ready");
        if has_tried { Ok(()) } else { Err("not yet".to_owned()) }
    });
    node.kill_kubelet();
    node.spawn_kubelet();
    node.resume_runtime();
    node.running("late");
    assert_eq!(id(&node.running("web"), "main"), id(&web, "main"), "its container never stopped");
    node.wait_until_gone("terminating", &uid(&terminating));
}

#[test]
fn externally_killed_sandbox_is_replaced_together_with_its_containers() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let before = node.running("web");
    node.stop_sandboxes(&uid(&before));
    let after = node.pod_when("web", "runs in a new sandbox", |pod| {
        id(pod, "main") != id(&before, "main") && container(pod, "main")["state"]["running"].is_object()
    });
    assert_eq!(uid(&after), uid(&before));
    assert!(node.kubelet_log().contains("SandboxChanged"));
}

#[test]
fn hanging_lifecycle_hook_delays_no_other_pod() {
    let node = Node::start();
    let mut pod = shell_pod("hung", FOREVER);
    pod["spec"]["terminationGracePeriodSeconds"] = 3600.into();
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", "sleep 3600"]}}});
    node.apply("hung", &pod);
    node.eventually("the hung pod's container has started", |node| {
        let log = node.kubelet_log();
        if log.contains("Container started") { Ok(()) } else { Err("not yet".to_owned()) }
    });
    for n in 0..3 {
        let name = format!("quick-{n}");
        node.apply(&name, &shell_pod(&name, FOREVER));
        node.running(&name);
    }
}
