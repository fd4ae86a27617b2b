//! What a reader of the log finds out without a search: what runs here, why a container ended, who has a port, and that the runtime or a
//! probe fails, without a line for each second.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::node::{FOREVER, Node, shell_pod};

/// The lines of the log with these words.
fn lines(node: &Node, words: &[&str]) -> Vec<String> {
    let log = node.kubelet_log();
    let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
    log.lines().filter(has_all).map(str::to_owned).collect()
}

#[track_caller]
fn logs(node: &Node, words: &[&str]) -> String {
    node.eventually(&format!("a line of the log has {words:?}"), |node| {
        lines(node, words).into_iter().next().ok_or_else(|| node.kubelet_log())
    })
}

#[test]
fn log_says_what_runs_and_why_a_container_ended() {
    let node = Node::start();
    let ready = logs(&node, &["Kubelet is ready"]);
    for words in [
        "build=\"kubelet-rs ",
        "kubeletVersion=\"v1.36.2\"",
        &format!("server=\"127.0.0.1:{}\"", node.main_port()),
        &format!("manifests=\"{}\"", node.path("manifests").display()),
        "runtime=\"containerd ",
        "cgroupDriver=\"",
    ] {
        assert!(ready.contains(words), "{words} is missing: {ready}");
    }
    node.apply("code", &shell_pod("code", "exit 3"));
    node.apply("signal", &shell_pod("signal", FOREVER));
    node.signal_container(&node.running("signal"), "main", "KILL");
    let ended = logs(&node, &["Container ended\"", "pod=\"default/code-node\"", "exitCode=3"]);
    assert!(ended.contains("logPath=\"") && ended.contains("reason=\"Error\""), "{ended}");
    logs(&node, &["Container ended\"", "pod=\"default/signal-node\"", "exitCode=137", "signal=\"SIGKILL\""]);
    logs(
        &node,
        &[
            "restarted after a back-off: back-off 10s",
            "pod=\"default/code-node\"",
            "exitCode=3",
            "logPath=\"",
        ],
    );
    let event = logs(&node, &["\"Event\"", "reason=\"BackOff\""]);
    assert!(event.starts_with('W'), "an event of type Warning is a warning: {event}");
    let metrics = crate::server::get(&node, "/metrics").expect("metrics").body;
    assert!(metrics.contains("kubelet_rs_build_info{commit=\""), "{metrics}");
    let mut why = Command::new(env!("CARGO_BIN_EXE_kubelet"));
    let output = why.args(["why", "node", "--root-dir"]).arg(node.path("root")).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("This is kubelet-rs "), "{text}");
}

#[test]
fn port_clash_is_logged_with_the_pod_that_has_the_port() {
    let node = Node::start();
    let with_port = |name: &str| {
        let mut pod = shell_pod(name, FOREVER);
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 18_081}]);
        pod
    };
    node.apply("first", &with_port("first"));
    node.running("first");
    node.apply("second", &with_port("second"));
    let words = "host port 18081/TCP is taken by container main of pod default/first-node";
    let line = logs(&node, &["Pod needs a host port that another pod has", words]);
    assert!(line.starts_with('W') && line.contains("default/second-node"), "{line}");
}

#[test]
fn runtime_that_is_away_is_logged_at_once_and_then_counted() {
    let mut node = Node::start();
    node.kill_kubelet();
    node.kill_runtime();
    node.add_flags(&["-v", "2"]);
    std::fs::remove_file(node.path("kubelet.log")).expect("an empty log");
    node.spawn_kubelet();
    let began = std::time::Instant::now();
    logs(&node, &["Container runtime is not ready"]);
    assert!(began.elapsed() < fixtures::stretched(Duration::from_secs(5)), "said at once");
    node.resume_runtime();
    logs(&node, &["Container runtime is ready"]);
    node.kill_runtime();
    let repeated = logs(&node, &["Relist failed", "repeated="]);
    assert!(repeated.contains("since=\""), "{repeated}");
    // A relist that was under way when the runtime was killed has another error, and a line of its own.
    assert_eq!(lines(&node, &["Relist failed", "Connection refused"]).len(), 2, "{}", node.kubelet_log());
    let all = node.kubelet_log().lines().filter(|line| line.starts_with(['W', 'E'])).count();
    assert!(all < 20, "{}", node.kubelet_log());
}

#[test]
fn probe_that_fails_is_logged_at_once_and_then_counted() {
    let mut node = Node::start();
    node.kill_kubelet();
    node.add_flags(&["-v", "2"]);
    std::fs::remove_file(node.path("kubelet.log")).expect("an empty log");
    node.start_kubelet();
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 20});
    node.apply("web", &pod);
    let repeated = logs(&node, &["\"Event\"", "reason=\"Unhealthy\"", "repeated="]);
    assert!(repeated.starts_with('W'), "{repeated}");
    assert_eq!(lines(&node, &["reason=\"Unhealthy\""]).len(), 2, "{}", node.kubelet_log());
}

#[test]
fn version_and_help_are_commands() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_kubelet")).args(arguments).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, version) = run(&["version"]);
    assert_eq!(code, Some(0));
    assert!(version.starts_with("Kubernetes v1.36.2\nkubelet-rs "), "{version}");
    let (_, json) = run(&["version", "-o", "json"]);
    assert!(json.contains("\"kubernetesVersion\": \"v1.36.2\""), "{json}");
    let (code, help) = run(&["help"]);
    assert_eq!(code, Some(0));
    assert_eq!(help, run(&["--help"]).1);
    for command in ["takeover", "why", "get", "version", "completion"] {
        assert!(help.contains(&format!("kubelet {command} ")), "{command} is missing: {help}");
    }
    assert!(run(&["help", "why"]).1.contains("Examples:"));
}
