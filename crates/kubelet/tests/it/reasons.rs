//! The reasons and messages that users see when their pod has an error.

use std::sync::Arc;

use fakes::FakeRuntime;
use fakes::fake::{Fault, Method};
use ports::Runtime as _;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, restarts, shell_pod, uid};

#[track_caller]
fn waiting_reason(node: &Node, name: &str, reason: &str) -> String {
    let pod = node.pod_when(name, &format!("waits with reason {reason}"), |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == reason
    });
    container(&pod, "main")["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn invalid_manifest_is_reported_with_its_line_and_keeps_the_running_pod() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let before = node.running("web");
    std::fs::write(node.manifest("web"), "apiVersion: v1\nkind: Pod\nmetadata: {name: web\nspec: [")
        .expect("written");
    let problems = node.eventually("the problem is visible", |node| {
        let problems = crate::server::get(node, "/debug/manifests")?.body;
        if problems.contains("web.json") { Ok(problems) } else { Err(problems) }
    });
    assert!(problems.contains("web.json:4:"), "file, line and column are named: {problems}");
    let after = node.running("web");
    assert_eq!(container(&after, "main")["containerID"], container(&before, "main")["containerID"]);
    let logged = node.kubelet_log().matches("Failed to parse manifest").count();
    assert_eq!(logged, 1, "logged once for one change");
}

#[test]
fn standalone_node_rejects_pods_that_do_not_fit() {
    let mut node = Node::start();
    let mut large = shell_pod("large", FOREVER);
    large["spec"]["containers"][0]["resources"]["requests"]["memory"] = "900Gi".into();
    node.apply("large", &large);
    let with_port = |name: &str| {
        let mut pod = shell_pod(name, FOREVER);
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 18_080}]);
        pod
    };
    node.apply("first", &with_port("first"));
    node.running("first");
    node.apply("second", &with_port("second"));
    for (name, reason) in [("large", "OutOfmemory"), ("second", "NodePorts")] {
        let pod = node.pod_when(name, "is rejected", |pod| pod["status"]["phase"] == "Failed");
        assert_eq!(pod["status"]["reason"], reason, "{}", pod["status"]);
        let logged = format!("reason=\"{reason}\"");
        assert!(node.kubelet_log().contains(&logged), "{logged} is not in the log: {}", node.kubelet_log());
        assert_eq!(node.running_containers(&uid(&pod)), 0);
    }
    // One that runs stays over a restart.
    let first = node.running("first");
    node.restart_kubelet();
    let after = node.running("first");
    assert_eq!(container(&after, "main")["containerID"], container(&first, "main")["containerID"]);
}

#[test]
fn missing_image_under_pull_policy_never_gives_err_image_never_pull() {
    let node = Node::start();
    let mut pod = shell_pod("absent", FOREVER);
    pod["spec"]["containers"][0]["image"] = "localhost/absent:1".into();
    node.apply("absent", &pod);
    let message = waiting_reason(&node, "absent", "ErrImageNeverPull");
    assert_eq!(message, "Container image \"localhost/absent:1\" is not present with pull policy of Never");
}

#[test]
fn permanent_start_failures_are_retried_every_10_to_15_seconds() {
    let node = Node::start();
    let mut pod = shell_pod("absent", FOREVER);
    pod["spec"]["containers"][0]["image"] = "localhost/absent:1".into();
    node.apply("absent", &pod);
    waiting_reason(&node, "absent", "ErrImageNeverPull");
    let tries = |node: &Node| node.kubelet_log().matches("reason=\"ErrImageNeverPull\"").count();
    node.eventually(
        "it is tried again",
        |node| if tries(node) >= 3 { Ok(()) } else { Err("not yet".to_owned()) },
    );
    assert!(tries(&node) <= 4, "after a second, then every 10 to 15: {} tries", tries(&node));
}

#[test]
fn failed_image_pull_gives_image_pull_back_off() {
    let node = Node::start();
    let mut pod = shell_pod("unpullable", FOREVER);
    pod["spec"]["containers"][0]["image"] = "127.0.0.1:1/no/such:1".into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    node.apply("unpullable", &pod);
    let message = waiting_reason(&node, "unpullable", "ImagePullBackOff");
    assert!(message.starts_with("Back-off pulling image \"127.0.0.1:1/no/such:1\""), "{message}");
}

#[test]
fn malformed_image_name_gives_invalid_image_name() {
    let node = Node::start();
    let mut pod = shell_pod("misnamed", FOREVER);
    pod["spec"]["containers"][0]["image"] = "UPPER CASE".into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("misnamed", &pod);
    waiting_reason(&node, "misnamed", "InvalidImageName");
}

#[test]
fn root_image_under_run_as_non_root_is_rejected() {
    let node = Node::start();
    let mut pod = shell_pod("rooted", FOREVER);
    pod["spec"]["containers"][0]["securityContext"] = json!({"runAsNonRoot": true});
    node.apply("rooted", &pod);
    let message = waiting_reason(&node, "rooted", "CreateContainerConfigError");
    assert!(message.starts_with("container has runAsNonRoot and image will run as root"), "{message}");
}

#[test]
fn container_runs_as_run_as_user_and_run_as_group() {
    let node = Node::start();
    let mut pod = shell_pod("user", "id -u; id -g; exit 0");
    pod["spec"]["restartPolicy"] = "Never".into();
    pod["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 1234, "runAsGroup": 5678});
    node.apply("user", &pod);
    let pod = node.pod_when("user", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
    let log = node.container_log(&pod, "main");
    assert!(log.contains("F 1234\n") && log.contains("F 5678\n"), "{log}");
}

#[test]
fn missing_host_path_gives_a_failed_mount_event_and_the_pod_waits() {
    let node = Node::start();
    let missing = node.path("missing");
    let mut pod = shell_pod("pathless", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "data", "hostPath": {"path": missing, "type": "Directory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    node.apply("pathless", &pod);
    let message = waiting_reason(&node, "pathless", "ContainerCreating");
    assert_eq!(message, "");
    node.eventually("the FailedMount event is recorded", |node| {
        let log = node.kubelet_log();
        let found = log.contains("FailedMount") && log.contains("hostPath type check failed");
        if found { Ok(()) } else { Err("no such event".to_owned()) }
    });
    std::fs::create_dir_all(&missing).expect("the directory appears");
    node.running("pathless");
}

#[test]
fn missing_command_gives_run_container_error_or_crash_loop_back_off() {
    let node = Node::start();
    let mut pod = shell_pod("commandless", FOREVER);
    pod["spec"]["containers"][0]["command"] = json!(["/no/such/program"]);
    node.apply("commandless", &pod);
    node.pod_when("commandless", "reports that its command does not exist", |pod| {
        let status = container(pod, "main");
        let texts = [&status["state"]["waiting"]["message"], &status["lastState"]["terminated"]["message"]];
        texts.iter().any(|t| t.as_str().is_some_and(|t| t.contains("/no/such/program")))
    });
}

fn fake_pod(name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod
}

/// No real runtime of these tests returns these errors; the kubelet derives the reasons from the error texts.
#[test]
fn runtime_errors_of_images_and_mounts_become_waiting_reasons() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    for (name, reason, error) in [
        ("down", "RegistryUnavailable", "the registry is unavailable"),
        ("unsigned", "SignatureValidationFailed", "the signature validation failed"),
    ] {
        let image = format!("localhost/{name}:1");
        runtime.unpullable(&image, &format!("{reason}: no"));
        let mut pod = fake_pod(name);
        pod["spec"]["containers"][0]["image"] = image.clone().into();
        node.apply(name, &pod);
        let message = waiting_reason(&node, name, reason);
        assert!(message.starts_with(&format!("image pull failed for {image} because {error}")), "{message}");
    }
    for (method, reason, error) in [
        (Method::CreateContainer, "RROUnsupported", "RROUnsupported: no"),
        (Method::CreateContainer, "ImageVolumeMountFailed", "ImageVolumeMountFailed: no"),
        (Method::ImageStatus, "ImageInspectError", "no"),
    ] {
        runtime.fault_always(method, Some(Fault::Failed(error.to_owned())));
        let name = reason.to_lowercase();
        node.apply(&name, &fake_pod(&name));
        let message = waiting_reason(&node, &name, reason);
        assert!(message.contains(error), "{message}");
        runtime.clear_faults();
        node.running(&name);
    }
}

#[test]
fn container_lost_by_the_runtime_is_reported_as_killed_and_restarted() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    node.apply("web", &fake_pod("web"));
    node.running("web");
    let lost = runtime.containers().into_iter().map(|(_, container)| container.id).collect::<Vec<_>>();
    let (remover, id) = (Arc::new(runtime.clone()), lost[0].clone());
    node.finish(async move { remover.remove_container(&id).await }).expect("it is removed");
    let pod = node.pod_when("web", "runs again", |pod| restarts(pod, "main") == 1);
    let ended = &container(&pod, "main")["lastState"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("ContainerStatusUnknown"), &json!(137)));
}

#[test]
fn an_unsafe_sysctl_is_forbidden() {
    let node = Node::start();
    let mut pod = shell_pod("tuned", FOREVER);
    pod["spec"]["securityContext"] = json!({"sysctls": [{"name": "net.core.somaxconn", "value": "1024"}]});
    node.apply("tuned", &pod);
    let pod = node.pod_when("tuned", "is rejected", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(pod["status"]["reason"], "SysctlForbidden");
}

#[test]
fn runtime_class_selects_the_handler_and_an_unknown_handler_is_reported() {
    let node = Node::start();
    for (name, handler) in [("known", "runc"), ("unknown", "no-such-handler")] {
        let mut pod = shell_pod(name, FOREVER);
        pod["spec"]["runtimeClassName"] = handler.into();
        node.apply(name, &pod);
    }
    node.running("known");
    node.eventually("an event names the unknown handler", |node| {
        let log = node.kubelet_log();
        let found = log.contains("FailedCreatePodSandBox") && log.contains("no-such-handler");
        if found { Ok(()) } else { Err("no such event".to_owned()) }
    });
}
