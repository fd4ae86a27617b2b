//! How pods start, restart, change and leave.

use fakes::FakeRuntime;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, names_in, restarts, shell, shell_pod, uid};

/// A container that writes `<name> up` when it starts and `<name> down` when it gets SIGTERM.
fn recording_container(name: &str) -> Value {
    let script = format!(
        "echo {name} up >> /shared/order; trap 'echo {name} down >> /shared/order; exit 0' TERM; \
         while :; do sleep 3600 & wait $!; done"
    );
    let mut container = shell(name, &script);
    container["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    container
}

pub(crate) fn ordered_pod(shared: &std::path::Path) -> Value {
    let mut init = shell("init", "echo init ran >> /shared/order");
    init["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    let (mut first, mut second) = (recording_container("sidecar-1"), recording_container("sidecar-2"));
    for sidecar in [&mut first, &mut second] {
        sidecar["restartPolicy"] = "Always".into();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ordered"},
        "spec": {
            "terminationGracePeriodSeconds": 20,
            "initContainers": [init, first, second],
            "containers": [recording_container("main")],
            "volumes": [{"name": "shared", "hostPath": {"path": shared, "type": "DirectoryOrCreate"}}],
        },
    })
}

pub(crate) fn order(shared: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(shared.join("order")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn init_sidecar_and_main_containers_start_in_order_and_stop_in_reverse() {
    let node = Node::start();
    let shared = node.path("shared");
    node.apply("ordered", &ordered_pod(&shared));
    let pod = node.running("ordered");
    node.eventually("every container has started", |_| {
        let order = order(&shared);
        if order.len() == 4 { Ok(()) } else { Err(format!("{order:?}")) }
    });
    assert_eq!(order(&shared), ["init ran", "sidecar-1 up", "sidecar-2 up", "main up"]);
    assert_eq!(container(&pod, "init")["state"]["terminated"]["reason"], "Completed");
    assert_eq!(pod["status"]["qosClass"], "BestEffort");

    node.delete("ordered");
    node.wait_until_gone("ordered", &uid(&pod));
    assert_eq!(order(&shared)[4..], ["main down", "sidecar-2 down", "sidecar-1 down"]);
}

#[test]
fn crash_loop_back_off_of_a_container_grows() {
    let node = Node::start();
    node.apply("crasher", &shell_pod("crasher", "echo about to fail; exit 3"));
    let waits = |text: &'static str| {
        node.pod_when("crasher", text, move |pod| {
            let waiting = &container(pod, "main")["state"]["waiting"];
            waiting["reason"] == "CrashLoopBackOff"
                && waiting["message"].as_str().is_some_and(|m| m.starts_with(text))
        })
    };
    let first = waits("back-off 10s restarting failed container=main pod=crasher-node_default(");
    assert_eq!(restarts(&first, "main"), 1, "the first restart is free");
    let terminated = &container(&first, "main")["lastState"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(3), &json!("Error")));
    let second = waits("back-off 20s restarting failed container=main");
    assert_eq!(restarts(&second, "main"), 2);
    assert!(node.container_log(&second, "main").contains("about to fail"));
}

#[test]
fn edited_manifest_restarts_only_changed_containers() {
    let node = Node::start();
    let mut pod = shell_pod("edited", FOREVER);
    pod["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    pod["spec"]["containers"] = json!([shell("same", FOREVER), shell("changed", FOREVER)]);
    node.apply("edited", &pod);
    node.apply("neighbour", &shell_pod("neighbour", FOREVER));
    let before = node.running("edited");
    let neighbour = node.running("neighbour");

    pod["spec"]["containers"][1]["image"] = "localhost/busybox:other".into();
    node.ctr(&["images", "tag", crate::node::IMAGE, "localhost/busybox:other"]);
    node.apply("edited", &pod);
    let after = node.pod_when("edited", "runs the new image", |pod| {
        container(pod, "changed")["image"] == "localhost/busybox:other"
            && container(pod, "changed")["state"]["running"].is_object()
    });
    let id = |pod: &Value, name: &str| container(pod, name)["containerID"].clone();
    assert_eq!(id(&after, "same"), id(&before, "same"));
    assert_ne!(id(&after, "changed"), id(&before, "changed"));
    let neighbour_now = node.running("neighbour");
    assert_eq!(id(&neighbour_now, "main"), id(&neighbour, "main"));
}

#[test]
fn changed_manifest_without_uid_is_a_new_pod_that_waits_for_the_old_one() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let old = node.running("web");
    let mut changed = shell_pod("web", FOREVER);
    changed["metadata"]["labels"] = json!({"version": "2"});
    node.apply("web", &changed);
    let new = node.pod_when("web", "runs with the new content", |pod| {
        uid(pod) != uid(&old) && pod["status"]["phase"] == "Running"
    });
    let old_end = node.runtime_ids(&uid(&old)).expect("the runtime answers");
    assert!(old_end.is_empty(), "the predecessor is gone before the successor runs: {old_end:?}");
    assert_eq!(new["metadata"]["labels"]["version"], "2");
}

#[test]
fn deleted_pod_gets_pre_stop_hook_and_grace_period_and_leaves_no_resources() {
    let node = Node::start();
    let shared = node.path("shared");
    let mut pod = shell_pod(
        "polite",
        "trap 'echo term >> /shared/order; sleep 1; echo bye >> /shared/order; exit 0' TERM; \
         while :; do sleep 3600 & wait $!; done",
    );
    pod["spec"]["terminationGracePeriodSeconds"] = 30.into();
    pod["spec"]["volumes"] = json!([
        {"name": "shared", "hostPath": {"path": shared, "type": "DirectoryOrCreate"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]);
    let main = &mut pod["spec"]["containers"][0];
    main["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", "echo hook >> /shared/order"]}}});
    main["volumeMounts"] = json!([
        {"name": "shared", "mountPath": "/shared"},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "memory", "mountPath": "/memory"},
    ]);
    node.apply("polite", &pod);
    let pod = node.running("polite");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("the mount table");
    assert!(
        mounts.contains(&format!("{}/volumes/kubernetes.io~empty-dir/memory tmpfs", uid(&pod))),
        "{mounts}"
    );

    node.delete("polite");
    node.wait_until_gone("polite", &uid(&pod));
    assert_eq!(order(&shared), ["hook", "term", "bye"]);
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("the mount table");
    assert!(!mounts.contains(&uid(&pod)), "{mounts}");
}

#[test]
fn container_that_ignores_sigterm_is_killed_after_the_grace_period() {
    let node = Node::start();
    node.apply("stubborn", &shell_pod("stubborn", "trap '' TERM; while :; do sleep 1; done"));
    let pod = node.running("stubborn");
    node.delete("stubborn");
    node.wait_until_gone("stubborn", &uid(&pod));
}

#[test]
fn thirty_pods_start_and_terminate_concurrently() {
    let node = Node::start();
    let names: Vec<String> = (0..30).map(|n| format!("pod-{n:02}")).collect();
    for name in &names {
        node.apply(name, &shell_pod(name, FOREVER));
    }
    let uids: Vec<String> = names.iter().map(|name| uid(&node.running(name))).collect();
    for name in &names {
        node.delete(name);
    }
    for (name, uid) in names.iter().zip(&uids) {
        node.wait_until_gone(name, uid);
    }
    assert_eq!(names_in(&node.path("root/pods")), Vec::<String>::new());
}

#[test]
fn run_once_pod_stays_succeeded_or_failed() {
    let node = Node::start();
    for (name, policy, script) in [("done", "OnFailure", "exit 0"), ("failed", "Never", "exit 7")] {
        let mut pod = shell_pod(name, script);
        pod["spec"]["restartPolicy"] = policy.into();
        node.apply(name, &pod);
    }
    let done = node.pod_when("done", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
    assert_eq!(container(&done, "main")["state"]["terminated"]["reason"], "Completed");
    let failed = node.pod_when("failed", "has failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(container(&failed, "main")["state"]["terminated"]["exitCode"], 7);
    assert_eq!(restarts(&failed, "main"), 0);
}

#[test]
fn pod_past_its_active_deadline_fails_with_deadline_exceeded() {
    let node = Node::start();
    let mut pod = shell_pod("late", FOREVER);
    pod["spec"]["activeDeadlineSeconds"] = 3.into();
    node.apply("late", &pod);
    let pod = node.pod_when("late", "has failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert_eq!(pod["status"]["message"], "Pod was active on the node longer than the specified deadline");
}

#[test]
fn container_sees_its_environment_hosts_file_and_termination_log() {
    let node = Node::start();
    let script = "echo ip=$POD_IP name=$NAME cpu=$CPU hello=$HELLO; grep -c 'Kubernetes-managed hosts file' /etc/hosts; \
                  grep custom.example /etc/hosts; cat /etc/resolv.conf; hostname; echo last words > /dev/termination-log; exit 0";
    let mut pod = shell_pod("env", script);
    pod["spec"]["restartPolicy"] = "Never".into();
    pod["spec"]["hostAliases"] = json!([{"ip": "192.0.2.7", "hostnames": ["custom.example"]}]);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1500m", "memory": "64Mi"}});
    pod["spec"]["containers"][0]["env"] = json!([
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "HELLO", "value": "$(NAME)!"},
    ]);
    node.apply("env", &pod);
    let pod = node.pod_when("env", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
    let log = node.container_log(&pod, "main");
    let ip = pod["status"]["podIP"].as_str().expect("a pod IP");
    assert!(log.contains(&format!("ip={ip} name=env-node cpu=1500 hello=env-node!")), "{log}");
    assert!(log.contains("192.0.2.7\tcustom.example") && log.contains("F 1\n"), "{log}");
    assert!(log.contains("nameserver 192.0.2.1") && log.contains("F env-node\n"), "{log}");
    assert_eq!(container(&pod, "main")["state"]["terminated"]["message"], "last words\n");
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
}

/// KEP-4960: the signal of the spec is sent to the runtime, and the status has what the runtime reports.
#[test]
fn stop_signal_reaches_the_runtime_and_the_pod_status_with_its_gate_only() {
    for is_on in [true, false] {
        let runtime = FakeRuntime::with_clock(ports::Clock::system());
        let node = Node::on_fake(&runtime, json!({"featureGates": {"ContainerStopSignals": is_on}}));
        let mut pod = shell_pod("web", FOREVER);
        pod["spec"]["os"] = json!({"name": "linux"});
        pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        pod["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGUSR1"});
        node.apply("web", &pod);
        let pod = node.running("web");
        let request = runtime.container_request("web-node", "main").expect("a request");
        assert_eq!(request.stop_signal.as_deref(), is_on.then_some("SIGUSR1"));
        let expected = if is_on { json!("SIGUSR1") } else { Value::Null };
        assert_eq!(container(&pod, "main")["stopSignal"], expected);
    }
}
