//! A runtime that returns errors, answers late, or acts late: what does not depend on it goes on. A proxy between the kubelet and a real
//! containerd lets single calls fail.

use std::time::{Duration, Instant};

use harness::{CallFault, CallRule, RuntimeProxy};
use model::{CgroupDriver, SandboxState};
use ports::Runtime;
use ports::runtime::Scope;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, restarts, shell_pod, uid, without_runtime};

/// How long the socket of the runtime is absent: for at least two calls of the kubelet.
const ABSENT: Duration = Duration::from_secs(4);
pub(crate) const ALWAYS: usize = usize::MAX;
/// `RuntimeConfigResponse` with the driver.
const CGROUPFS: &[u8] = &[0x0a, 2, 8, 1];
const SYSTEMD: &[u8] = &[0x0a, 0];

/// A node whose kubelet, which is not started yet, reaches containerd through the proxy.
pub(crate) fn node_with_proxy(extra: Value) -> (Node, RuntimeProxy) {
    let mut node = Node::on_containerd(extra);
    let proxy = serve(&node);
    node.configure(json!({"containerRuntimeEndpoint": proxy.endpoint()}));
    (node, proxy)
}

fn serve(node: &Node) -> RuntimeProxy {
    let runtime = node.containerd().socket();
    node.enter_runtime(|| RuntimeProxy::serve(&node.path("proxy.sock"), &runtime, 1)).expect("a proxy")
}

pub(crate) fn refused(method: &'static str, about: &str, times: usize) -> CallRule {
    CallRule { method, about: about.to_owned(), times, fault: CallFault::Refused }
}

pub(crate) fn container_id(pod: &Value) -> String {
    let id = container(pod, "main")["containerID"].as_str().unwrap_or_default().to_owned();
    without_runtime(&id).to_owned()
}

/// What the kubelet has logged since this position of its log.
fn log_since(node: &Node, start: usize) -> String {
    node.kubelet_log().get(start..).unwrap_or_default().to_owned()
}

#[test]
fn runtime_that_is_absent_and_then_returns_errors_at_start_keeps_every_running_pod() {
    let (mut node, proxy) = node_with_proxy(json!({}));
    // The configured driver is what the kubelet would use if it took an error for an answer. An old containerd has no answer.
    let (other, answer) = match harness::containerd::cgroup_driver() {
        CgroupDriver::Cgroupfs => (CgroupDriver::Systemd, CGROUPFS),
        CgroupDriver::Systemd => (CgroupDriver::Cgroupfs, SYSTEMD),
    };
    node.configure(json!({"cgroupDriver": other.to_string()}));
    let reported = CallFault::Answered(answer);
    let reported = CallRule { method: "RuntimeConfig", about: String::new(), times: ALWAYS, fault: reported };
    proxy.add_rule(reported.clone());
    let names = ["web", "db"];
    names.iter().for_each(|name| node.apply(name, &shell_pod(name, FOREVER)));
    node.start_kubelet();
    let before = names.map(|name| container_id(&node.running(name)));

    node.kill_kubelet();
    drop(proxy);
    let start = node.kubelet_log().len();
    node.start_kubelet();
    node.eventually("the socket was absent for a while", |node| {
        if node.kubelet_age() > ABSENT { Ok(()) } else { Err("it is early".to_owned()) }
    });
    let proxy = serve(&node);
    proxy.add_rule(refused("RuntimeConfig", "", 2));
    proxy.add_rule(reported);
    node.eventually("the kubelet has got errors, and then an answer", |node| {
        let log = log_since(node, start);
        let has_refusal =
            log.contains("Failed to get the cgroup driver") && log.contains("refused by the test");
        let is_known =
            log.contains("Using cgroup driver setting") || log.contains("falling back to cgroupDriver");
        if has_refusal && is_known { Ok(()) } else { Err("not yet".to_owned()) }
    });
    // A new pod shows that the cgroups are where the runtime expects them.
    node.apply("late", &shell_pod("late", FOREVER));
    node.running("late");
    let after = names.map(|name| {
        let pod = node.running(name);
        assert_eq!(restarts(&pod, "main"), 0);
        container_id(&pod)
    });
    assert_eq!(after, before);
    assert!(!log_since(&node, start).contains("Stopping container"), "{}", log_since(&node, start));
}

/// So that all pods seem to have lost their cgroups. Returns the root of before.
pub(crate) fn restart_with_another_cgroup_root(node: &mut Node) -> String {
    let root = node.cgroup().path();
    for tree in node.cgroup().find("") {
        std::fs::create_dir_all(tree.join("other")).expect("a cgroup");
    }
    node.kill_kubelet();
    node.configure(json!({"cgroupRoot": format!("{root}/other")}));
    node.start_kubelet();
    root
}

#[test]
fn running_pods_that_all_seem_to_have_lost_their_cgroups_go_on_and_the_node_is_not_ready() {
    let mut node = Node::on_containerd(json!({}));
    let names = ["web", "db"];
    names.iter().for_each(|name| node.apply(name, &shell_pod(name, FOREVER)));
    node.start_kubelet();
    let before = names.map(|name| container_id(&node.running(name)));
    let start = node.kubelet_log().len();
    let root = restart_with_another_cgroup_root(&mut node);
    let has = |text: &'static str| {
        move |node: &Node| {
            if log_since(node, start).contains(text) { Ok(()) } else { Err("not yet".to_owned()) }
        }
    };
    node.eventually("the node is not ready", has("2 running pods are not restarted"));
    node.eventually("the pods say why", has("pod is not restarted although its cgroup is missing"));
    node.apply("late", &shell_pod("late", FOREVER));
    node.running("late");
    let ids = |node: &Node| names.map(|name| container_id(&node.running(name)));
    assert_eq!(ids(&node), before);

    node.kill_kubelet();
    node.configure(json!({"cgroupRoot": root}));
    node.delete("late");
    node.start_kubelet();
    assert_eq!(ids(&node), before);
}

#[test]
fn pod_that_cannot_be_inspected_keeps_its_image_and_does_not_stop_image_garbage_collection() {
    let (mut node, proxy) = node_with_proxy(json!({}));
    let [stuck, unused] = ["localhost/stuck:1", "localhost/unused:1"];
    node.import_image(stuck, 1);
    let mut manifest = shell_pod("stuck", FOREVER);
    manifest["spec"]["containers"][0]["image"] = stuck.into();
    node.apply("stuck", &manifest);
    node.start_kubelet();
    let id = container_id(&node.running("stuck"));

    // Not earlier, because this runtime does not protect the image of the sandbox before the pod has one.
    node.kill_kubelet();
    node.configure(json!({
        "imageGCHighThresholdPercent": 1, "imageGCLowThresholdPercent": 0, "imageMinimumGCAge": "1s",
    }));
    node.import_image(unused, 2);
    proxy.add_rule(refused("ContainerStatus", &id, ALWAYS));
    let start = node.kubelet_log().len();
    node.start_kubelet();
    node.eventually("the unused image is removed", |node| {
        let images = node.images();
        if images.contains_key(unused) { Err(format!("{images:?}")) } else { Ok(()) }
    });
    assert!(node.images().contains_key(stuck), "{:?}", node.images());
    let tries = proxy.faults();
    node.eventually("the inspection was repeated", |_| {
        if proxy.faults() > tries + 2 { Ok(()) } else { Err(format!("{} times", proxy.faults())) }
    });
    let log = log_since(&node, start);
    let warnings = log.lines().filter(|line| line.starts_with('W') && line.contains("Failed to inspect pod"));
    assert_eq!(warnings.count(), 1, "{log}");
    proxy.clear_rules();
    assert_eq!(container_id(&node.running("stuck")), id);
}

/// The pod `slow` may run for two seconds, and the runtime creates its sandbox after eight.
pub(crate) fn start_pod_whose_sandbox_comes_late() -> (Node, RuntimeProxy) {
    let (mut node, proxy) = node_with_proxy(json!({}));
    let late = CallFault::ActsLate(Duration::from_secs(8));
    proxy.add_rule(CallRule { method: "RunPodSandbox", about: "slow".to_owned(), times: 1, fault: late });
    proxy.add_rule(refused("RunPodSandbox", "slow", ALWAYS));
    let mut pod = shell_pod("slow", FOREVER);
    pod["spec"]["activeDeadlineSeconds"] = 2.into();
    node.apply("slow", &pod);
    node.start_kubelet();
    (node, proxy)
}

#[test]
fn sandbox_that_the_runtime_creates_after_the_pod_has_ended_is_stopped() {
    let (node, _proxy) = start_pod_whose_sandbox_comes_late();
    let ended = node.pod_when("slow", "has ended", |pod| pod["status"]["reason"] == "DeadlineExceeded");
    let uid = uid(&ended);
    let scope = Scope::Pod(uid.as_str().into());
    node.eventually("the runtime has created the sandbox, and the kubelet has stopped it", |node| {
        let scope = scope.clone();
        let sandboxes = node.call_runtime(|runtime| async move { runtime.list_sandboxes(&scope).await })?;
        match sandboxes.as_slice() {
            [sandbox] if sandbox.state == SandboxState::NotReady => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    node.eventually("nothing is left of its cgroup", |node| {
        let left = node.pod_cgroups(&uid);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    let after = node.pod("slow").expect("its manifest still exists");
    assert_eq!(after["status"]["reason"], "DeadlineExceeded");
    node.delete("slow");
    node.wait_until_gone("slow", &uid);
}

#[test]
fn termination_that_fails_backs_off_and_runs_each_hook_once() {
    let (mut node, proxy) = node_with_proxy(json!({}));
    let shared = node.path("shared");
    std::fs::create_dir_all(&shared).expect("a directory");
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "shared", "hostPath": {"path": shared}}]);
    let main = &mut pod["spec"]["containers"][0];
    main["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    main["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", "echo hook >> /shared/hooks"]}}});
    node.apply("web", &pod);
    node.start_kubelet();
    let running = node.running("web");
    proxy.add_rule(refused("StopContainer", &container_id(&running), ALWAYS));
    proxy.add_rule(refused("StopPodSandbox", "", ALWAYS));
    let start = node.kubelet_log().len();
    let began = Instant::now();
    node.delete("web");
    // Each try stops the container and the sandbox.
    node.eventually("four tries have failed", |_| {
        if proxy.faults() >= 8 { Ok(()) } else { Err(format!("{} calls", proxy.faults())) }
    });
    assert!(began.elapsed() >= Duration::from_secs(6), "four tries in {:?}", began.elapsed());
    let hooks = std::fs::read_to_string(shared.join("hooks")).expect("the hook has run");
    assert_eq!(hooks, "hook\n");
    let log = log_since(&node, start);
    assert_eq!(log.matches("\"Stopping container main\"").count(), 1, "{log}");
    proxy.clear_rules();
    node.wait_until_gone("web", &uid(&running));
    let hooks = std::fs::read_to_string(shared.join("hooks")).expect("the hook has run");
    assert_eq!(hooks, "hook\n");
}
