//! Pods created by kubectl: what it shows while they run, crash and complete.

use serde_json::{Value, json};

use crate::node::{FOREVER, IMAGE, condition, container, once_pod, restarts, shell_pod, uid};

use super::{Cluster, bound};

/// The columns of a pod in `kubectl get pods`.
fn columns(cluster: &Cluster, name: &str) -> Vec<String> {
    let table = cluster.kubectl.ok(&["get", "pod", name, "-o", "wide", "--no-headers"]);
    table.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn applied_pod_runs_and_kubectl_describe_shows_it() {
    let cluster = Cluster::start();
    let mut pod = bound(shell_pod("web", FOREVER));
    pod["spec"]["dnsPolicy"] = "Default".into();
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": 1});
    cluster.kubectl.apply(&[pod]);
    let waited = cluster.kubectl.ok(&["wait", "--for=condition=Ready", "pod/web", "--timeout=120s"]);
    assert_eq!(waited, "pod/web condition met\n");
    let pod = cluster.kubectl.get("pod", "web").expect("the pod");
    let ip = pod["status"]["podIP"].as_str().expect("an address");
    let row = columns(&cluster, "web");
    assert_eq!([&row[..4], &row[5..7]].concat(), ["web", "1/1", "Running", "0", ip, "node"]);

    let text = cluster.kubectl.ok(&["describe", "pod", "web"]);
    let parts = [
        &format!("Node: node/{}", pod["status"]["hostIP"].as_str().unwrap_or_default()),
        "Status: Running",
        &format!("IP: {ip}"),
        "State: Running",
        "Ready: True",
        "Restart Count: 0",
        "Readiness: exec [/bin/true] delay=0s timeout=1s period=1s #success=1 #failure=3",
        "PodReadyToStartContainers True",
        "Initialized True",
        "ContainersReady True",
        "PodScheduled True",
        "QoS Class: BestEffort",
    ];
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(plain.contains(part), "{part:?} is missing in\n{text}");
    }
    assert_eq!(container(&pod, "main")["imageID"].as_str().map(|id| &id[..7]), Some("sha256:"));
    assert_eq!(pod["status"]["observedGeneration"], pod["metadata"]["generation"]);
    let wanted = [
        "Pulled: Container image \"localhost/busybox:test\" already present on machine and can be accessed by the pod",
        "Created: Container created",
        "Started: Container started",
    ];
    cluster.node.eventually("the pod's events are reported", |_| {
        let events = cluster.events("Pod", "web");
        if events == wanted { Ok(()) } else { Err(format!("{events:?}")) }
    });
    // Newer versions of kubectl print the container before the message.
    let described = cluster.kubectl.ok(&["describe", "pod", "web"]);
    let mut lines = described.lines();
    let is_shown = lines.any(|line| line.contains(" kubelet ") && line.ends_with("Container started"));
    assert!(is_shown, "{described}");
    ephemeral_container_runs_once_and_changes_nothing(&cluster, &pod);
}

/// `kubectl debug`: an ephemeral container that joins a running one, sees its processes, exits and is not restarted.
fn ephemeral_container_runs_once_and_changes_nothing(cluster: &Cluster, pod: &Value) {
    let debug = |name: &str, script: &str| {
        let to_target = ["--target=main", "--image-pull-policy=IfNotPresent", "--profile=general"];
        let (image, name) = (format!("--image={IMAGE}"), format!("--container={name}"));
        let arguments = ["debug", "web", &image, &name];
        cluster.kubectl.ok(&[&arguments[..], &to_target, &["--", "sh", "-c", script]].concat());
    };
    let status_when = |name: &str, state: &str| {
        cluster.pod_when("web", &format!("has {name} {state}"), |pod| {
            container(pod, name)["state"][state].is_object()
        })
    };
    debug("debugger", "tr '\\0' ' ' < /proc/1/cmdline; echo; exit 3");
    let pod_now = status_when("debugger", "terminated");
    let ended = container(&pod_now, "debugger");
    assert_eq!(ended["state"]["terminated"]["exitCode"], 3);
    let output = cluster.node.logs(&pod_now, "debugger");
    assert!(
        output.contains("sleep 3600") && !output.contains("cmdline"),
        "it sees the first process of main: {output}"
    );
    // A pod that comes later has been through everything that could have restarted the first one.
    debug("later", FOREVER);
    let now = status_when("later", "running");
    assert_eq!(container(&now, "debugger"), ended, "it appears once");
    assert_eq!(container(&now, "main"), container(pod, "main"), "the other one is not affected");
    assert_eq!(condition(&now, "Ready"), "True");
    let names = now["status"]["ephemeralContainerStatuses"].as_array().map(Vec::len);
    assert_eq!(names, Some(2));
}

#[test]
fn completed_pod_is_shown_as_succeeded_and_kept() {
    let mut cluster = Cluster::start();
    let shared = cluster.node.path("shared");
    let mut done = bound(once_pod("done", "echo run >> /shared/done"));
    let mut failed = bound(once_pod("failed", "echo run >> /shared/failed; exit 7"));
    for pod in [&mut done, &mut failed] {
        crate::kubelet_kills::share(pod, &shared);
    }
    cluster.kubectl.apply(&[done, failed]);
    let phase =
        |name: &str, wanted: &str| cluster.pod_when(name, wanted, |pod| pod["status"]["phase"] == wanted);
    let (done, failed) = (phase("done", "Succeeded"), phase("failed", "Failed"));
    assert_eq!(columns(&cluster, "done")[1..4], ["0/1", "Completed", "0"]);
    assert_eq!(columns(&cluster, "failed")[1..4], ["0/1", "Error", "0"]);
    let reasons = |pod: &Value| {
        let condition =
            pod["status"]["conditions"].as_array().and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
        condition.expect("a condition")["reason"].clone()
    };
    assert_eq!((reasons(&done), reasons(&failed)), (json!("PodCompleted"), json!("PodFailed")));
    assert_eq!(container(&failed, "main")["state"]["terminated"]["exitCode"], 7);
    cluster.node.restart_kubelet();
    // A pod that comes later has been through everything that could have restarted them.
    cluster.kubectl.apply(&[bound(shell_pod("later", FOREVER))]);
    cluster.running("later");
    for pod in [&done, &failed] {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let now = cluster.kubectl.get("pod", name).expect("it stays");
        assert_eq!((uid(&now), &now["status"]), (uid(pod), &pod["status"]), "it stays as it was");
        assert_eq!(std::fs::read_to_string(shared.join(name)).expect("runs"), "run\n", "{name} ran once");
    }
    cluster.kubectl.ok(&["delete", "pod", "done", "failed"]);
    cluster.wait_until_gone(&done);
    cluster.wait_until_gone(&failed);
}

#[test]
fn crash_loop_is_shown_with_restart_count_and_back_off_events() {
    let cluster = Cluster::start();
    cluster.kubectl.apply(&[bound(shell_pod("crasher", "echo about to fail; exit 3"))]);
    let pod = cluster.pod_when("crasher", "waits for its second restart", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            && restarts(pod, "main") == 1
    });
    assert_eq!(container(&pod, "main")["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!((pod["status"]["phase"].as_str(), condition(&pod, "Ready")), (Some("Running"), "False"));
    assert_eq!(columns(&cluster, "crasher")[1..4], ["0/1", "CrashLoopBackOff", "1"]);
    cluster.node.eventually("the back-off is reported", |_| {
        let events = cluster.events("Pod", "crasher");
        let wanted = "BackOff: Back-off restarting failed container main in pod crasher_default(";
        if events.iter().any(|event| event.starts_with(wanted)) { Ok(()) } else { Err(format!("{events:?}")) }
    });
    cluster.kubectl.ok(&["delete", "pod", "crasher"]);
    cluster.wait_until_gone(&pod);
}
