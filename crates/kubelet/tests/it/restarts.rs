//! When containers are restarted, when not, and how hooks and deadlines affect that.

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, condition, container, once_pod, restarts, shell, shell_pod, uid};

fn share(pod: &mut Value, node: &Node, name: &str) -> std::path::PathBuf {
    let dir = node.path(name);
    std::fs::create_dir_all(&dir).expect("a directory");
    pod["spec"]["volumes"] = json!([{"name": "shared", "hostPath": {"path": dir}}]);
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            container["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
        }
    }
    dir
}

fn lines(path: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn container_restart_policy_and_rules_override_the_pods() {
    let node = Node::start();
    let mut pod = once_pod("ruled", FOREVER);
    let script = |code: u8| format!("test -e /shared/$0 && {{ {FOREVER}; }}; touch /shared/$0; exit {code}");
    let with_rules = |name: &str, code: u8| {
        let mut container = shell(name, &script(code));
        container["command"].as_array_mut().expect("a command").push(name.into());
        container["restartPolicy"] = "Never".into();
        container["restartPolicyRules"] =
            json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        container
    };
    let mut always = with_rules("always", 3);
    always["restartPolicy"] = "Always".into();
    always.as_object_mut().expect("an object").remove("restartPolicyRules");
    pod["spec"]["containers"] = json!([with_rules("matches", 42), with_rules("differs", 7), always]);
    share(&mut pod, &node, "shared");
    node.apply("ruled", &pod);
    let pod = node.pod_when("ruled", "has settled", |pod| {
        restarts(pod, "matches") == 1
            && restarts(pod, "always") == 1
            && container(pod, "matches")["state"]["running"].is_object()
            && container(pod, "always")["state"]["running"].is_object()
            && container(pod, "differs")["state"]["terminated"].is_object()
    });
    assert_eq!(restarts(&pod, "differs"), 0);
    assert_eq!(container(&pod, "differs")["state"]["terminated"]["exitCode"], 7);
}

#[test]
fn restart_all_containers_rule_runs_init_containers_again() {
    let node = Node::start();
    let mut pod = once_pod("all", FOREVER);
    let mut trigger = shell(
        "trigger",
        &format!("test -e /shared/once && {{ {FOREVER}; }}; touch /shared/once; sleep 2; exit 9"),
    );
    trigger["restartPolicy"] = "Never".into();
    trigger["restartPolicyRules"] =
        json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [9]}}]);
    pod["spec"]["initContainers"] = json!([shell("init", "echo init >> /shared/order")]);
    pod["spec"]["containers"] =
        json!([shell("bystander", &format!("echo bystander >> /shared/order; {FOREVER}")), trigger]);
    let dir = share(&mut pod, &node, "shared");
    node.apply("all", &pod);
    let before = node.running("all");
    let after = node.pod_when("all", "was restarted as a whole", |pod| {
        restarts(pod, "trigger") == 1
            && container(pod, "trigger")["state"]["running"].is_object()
            && container(pod, "bystander")["containerID"] != container(&before, "bystander")["containerID"]
            && container(pod, "bystander")["state"]["running"].is_object()
    });
    assert_eq!(uid(&after), uid(&before));
    for name in ["init", "bystander", "trigger"] {
        let before = &container(&after, name)["lastState"]["terminated"];
        assert_eq!(
            (&before["reason"], &before["exitCode"]),
            (&json!("RestartingAllContainers"), &json!(137))
        );
    }
    assert_eq!(lines(&dir.join("order")), ["init", "bystander", "init", "bystander"]);
}

#[test]
fn failed_post_start_hook_kills_the_container_and_backs_off() {
    let node = Node::start();
    let mut pod = shell_pod("hooked", FOREVER);
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", "echo no good; exit 1"]}}});
    node.apply("hooked", &pod);
    node.pod_when("hooked", "was restarted", |pod| restarts(pod, "main") >= 1);
    node.wait_for_log("FailedPostStartHook");
    let pod = node.pod_when("hooked", "waits", |pod| {
        let reason = &container(pod, "main")["state"]["waiting"]["reason"];
        reason == "CrashLoopBackOff" || reason == "PostStartHookError"
    });
    assert_eq!(condition(&pod, "Ready"), "False");
}

#[test]
fn http_and_sleep_pre_stop_hooks_delay_sigterm() {
    let node = Node::start();
    let serving = "mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho hook >> /shared/order\\nprintf \"Content-Type: text/plain\\r\\n\\r\\nok\\n\"' > /www/cgi-bin/stop; \
                   chmod +x /www/cgi-bin/stop; httpd -p 8080 -h /www; \
                   trap 'echo term >> /shared/order; exit 0' TERM; while :; do sleep 3600 & wait $!; done";
    let mut http = shell_pod("http", serving);
    http["spec"]["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 8080}]);
    http["spec"]["containers"][0]["lifecycle"] =
        json!({"preStop": {"httpGet": {"path": "/cgi-bin/stop", "port": "web"}}});
    http["spec"]["containers"][0]["readinessProbe"] =
        json!({"tcpSocket": {"port": "web"}, "periodSeconds": 1});
    let order = share(&mut http, &node, "http").join("order");
    let mut sleeping = shell_pod(
        "sleeping",
        "trap 'date +%s > /shared/term; exit 0' TERM; while :; do sleep 3600 & wait $!; done",
    );
    sleeping["spec"]["terminationGracePeriodSeconds"] = 30.into();
    sleeping["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 3}}});
    let term = share(&mut sleeping, &node, "sleeping").join("term");
    node.apply("http", &http);
    node.apply("sleeping", &sleeping);
    let (http, sleeping) = (node.running("http"), node.running("sleeping"));
    let deleted_at = jiff_seconds();
    node.delete("http");
    node.delete("sleeping");
    node.wait_until_gone("http", &uid(&http));
    node.wait_until_gone("sleeping", &uid(&sleeping));
    assert_eq!(lines(&order), ["hook", "term"]);
    let term: u64 = lines(&term)[0].parse().expect("a time");
    assert!(term >= deleted_at + 3, "deleted at {deleted_at}, SIGTERM at {term}");
}

fn jiff_seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

#[test]
fn termination_message_falls_back_to_logs_only_on_error_and_by_policy() {
    let node = Node::start();
    let failing = "echo first; echo last words of the log; exit 3";
    for (name, policy, script) in [
        ("fallback", "FallbackToLogsOnError", failing),
        ("file", "File", failing),
        ("fine", "FallbackToLogsOnError", "echo all is well"),
        ("both", "FallbackToLogsOnError", "echo in the log; echo in the file > /tmp/words; exit 3"),
    ] {
        let mut pod = once_pod(name, script);
        pod["spec"]["containers"][0]["terminationMessagePolicy"] = policy.into();
        if name == "both" {
            pod["spec"]["containers"][0]["terminationMessagePath"] = "/tmp/words".into();
        }
        node.apply(name, &pod);
    }
    let message = |name: &str| {
        let pod = node.pod_when(name, "has ended", |pod| {
            ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
        });
        container(&pod, "main")["state"]["terminated"]["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(message("fallback"), "first\nlast words of the log\n");
    assert_eq!(message("file"), "");
    assert_eq!(message("fine"), "");
    assert_eq!(message("both"), "in the file\n");
}

#[test]
fn probe_level_termination_grace_period_is_used_for_its_kill() {
    let node = Node::start();
    let stubborn = "trap '' TERM; while :; do sleep 1; done";
    for kind in ["livenessProbe", "startupProbe"] {
        let name = if kind == "livenessProbe" { "liveness" } else { "startup" };
        let mut pod = shell_pod(name, stubborn);
        pod["spec"]["terminationGracePeriodSeconds"] = 3600.into();
        pod["spec"]["containers"][0][kind] = json!({
            "exec": {"command": ["/bin/false"]}, "periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 2,
        });
        node.apply(name, &pod);
    }
    for name in ["liveness", "startup"] {
        let pod = node.pod_when(name, "was killed and restarted", |pod| restarts(pod, "main") >= 1);
        assert_eq!(container(&pod, "main")["lastState"]["terminated"]["exitCode"], 137);
    }
}

#[test]
fn failed_init_container_is_restarted_or_fails_the_pod_by_restart_policy() {
    let node = Node::start();
    let mut retried = shell_pod("retried", FOREVER);
    retried["spec"]["initContainers"] =
        json!([shell("init", "test -e /shared/x && exit 0; touch /shared/x; exit 1")]);
    share(&mut retried, &node, "shared");
    let mut failed = once_pod("failed", FOREVER);
    failed["spec"]["initContainers"] = json!([shell("init", "exit 5"), shell("never", "exit 0")]);
    node.apply("retried", &retried);
    node.apply("failed", &failed);
    let pod = node.running("retried");
    assert_eq!(restarts(&pod, "init"), 1);
    let pod = node.pod_when("failed", "has failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(container(&pod, "init")["state"]["terminated"]["exitCode"], 5);
    assert!(container(&pod, "main")["containerID"].is_null(), "{pod}");
}

#[test]
fn dead_sidecar_restarts_without_affecting_other_containers() {
    let node = Node::start();
    let mut pod = shell_pod("aided", FOREVER);
    let mut sidecar = shell("sidecar", FOREVER);
    sidecar["restartPolicy"] = "Always".into();
    pod["spec"]["initContainers"] = json!([sidecar]);
    node.apply("aided", &pod);
    let before = node.running("aided");
    node.signal_container(&before, "sidecar", "KILL");
    let after = node.pod_when("aided", "has its sidecar back", |pod| {
        restarts(pod, "sidecar") == 1 && container(pod, "sidecar")["state"]["running"].is_object()
    });
    assert_eq!(container(&after, "main")["containerID"], container(&before, "main")["containerID"]);
}
