//! What probes do to pods.

use serde_json::json;

use crate::node::{FOREVER, Node, condition, container, restarts, shell_pod};

#[test]
fn a_failing_liveness_probe_restarts_the_container() {
    let node = Node::start();
    let mut pod = shell_pod("sick", FOREVER);
    pod["spec"]["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": ["/bin/false"]}, "periodSeconds": 1, "failureThreshold": 2});
    node.apply("sick", &pod);
    node.pod_when("sick", "was restarted", |pod| restarts(pod, "main") >= 1);
    let log = node.kubelet_log();
    assert!(log.contains("Liveness probe failed"), "{log}");
    assert!(log.contains("failed liveness probe, will be restarted"), "{log}");
}

#[test]
fn a_failing_readiness_probe_takes_readiness_away_and_a_passing_one_gives_it_back() {
    let node = Node::start();
    let flags = node.path("flags");
    std::fs::create_dir_all(&flags).expect("a directory");
    let mut pod = shell_pod("moody", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "flags", "hostPath": {"path": flags}}]);
    let main = &mut pod["spec"]["containers"][0];
    main["volumeMounts"] = json!([{"name": "flags", "mountPath": "/flags"}]);
    main["readinessProbe"] = json!({"exec": {"command": ["/bin/test", "-e", "/flags/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    node.apply("moody", &pod);
    let unready = node.pod_when("moody", "runs unready", |pod| {
        container(pod, "main")["state"]["running"].is_object() && condition(pod, "Ready") == "False"
    });
    assert_eq!(container(&unready, "main")["ready"], false);
    std::fs::write(flags.join("ready"), "").expect("a flag");
    let ready = node.running("moody");
    std::fs::remove_file(flags.join("ready")).expect("no flag");
    let again = node.pod_when("moody", "is unready again", |pod| condition(pod, "Ready") == "False");
    assert_eq!(restarts(&again, "main"), restarts(&ready, "main"), "readiness never restarts");
}

#[test]
fn a_startup_probe_holds_the_other_probes_back() {
    let node = Node::start();
    let flags = node.path("flags");
    std::fs::create_dir_all(&flags).expect("a directory");
    let mut pod = shell_pod("slow", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "flags", "hostPath": {"path": flags}}]);
    let main = &mut pod["spec"]["containers"][0];
    main["volumeMounts"] = json!([{"name": "flags", "mountPath": "/flags"}]);
    main["startupProbe"] = json!({"exec": {"command": ["/bin/test", "-e", "/flags/started"]}, "periodSeconds": 1, "failureThreshold": 100});
    main["livenessProbe"] = json!({
        "exec": {"command": ["/bin/sh", "-c", "echo probed >> /flags/liveness"]}, "periodSeconds": 1
    });
    node.apply("slow", &pod);
    let waiting = node
        .pod_when("slow", "has not started", |pod| container(pod, "main")["state"]["running"].is_object());
    assert_eq!(container(&waiting, "main")["started"], false);
    node.eventually("the startup probe has failed three times", |node| {
        let failures = node.kubelet_log().matches("Startup probe failed").count();
        if failures >= 3 { Ok(()) } else { Err(failures.to_string()) }
    });
    assert!(!flags.join("liveness").exists(), "liveness waits for the startup probe");
    std::fs::write(flags.join("started"), "").expect("a flag");
    node.pod_when("slow", "has started", |pod| container(pod, "main")["started"] == true);
    node.eventually("liveness is probed", |_| {
        if flags.join("liveness").exists() { Ok(()) } else { Err("not yet".to_owned()) }
    });
}

#[test]
fn http_and_tcp_probes_reach_the_pod_and_leave_no_port_in_time_wait() {
    let node = Node::start();
    let mut pod = shell_pod("web", "mkdir /www; echo hello > /www/index.html; exec httpd -f -p 8080 -h /www");
    let main = &mut pod["spec"]["containers"][0];
    main["ports"] = json!([{"name": "http", "containerPort": 8080}]);
    main["readinessProbe"] = json!({"httpGet": {"path": "/index.html", "port": "http"}, "periodSeconds": 1});
    main["livenessProbe"] = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    node.apply("web", &pod);
    let pod = node.running("web");
    let began = std::time::Instant::now();
    let ip = pod["status"]["podIP"].as_str().expect("an IP").to_owned();
    node.eventually("several rounds of probes have passed", |_| {
        if began.elapsed().as_secs() >= 5 { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let octets: Vec<u8> = ip.split('.').map(|o| o.parse().expect("an octet")).collect();
    let remote = format!("{:02X}{:02X}{:02X}{:02X}:1F90", octets[3], octets[2], octets[1], octets[0]);
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the socket table");
    let time_wait =
        table.lines().filter(|l| l.contains(&remote) && l.split_whitespace().nth(3) == Some("06")).count();
    assert_eq!(time_wait, 0, "{table}");
    assert_eq!(restarts(&node.running("web"), "main"), 0);
}

/// Process ids on the node of those processes of the container that run this program.
fn processes_of(node: &Node, pod: &serde_json::Value, argument: &str) -> Vec<String> {
    let pid = node.container_pid(pod, "main");
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace(&pid.to_string());
    let mut found = crate::node::names_in(std::path::Path::new("/proc"));
    found.retain(|pid| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        own.is_some() && namespace(pid) == own && command.contains(argument)
    });
    found
}

#[test]
fn an_exec_probe_that_times_out_leaves_no_process_behind_and_is_never_started_twice_at_once() {
    let node = Node::start();
    let probe = |script: &str| json!({"exec": {"command": ["/bin/sh", "-c", script]}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1000});
    let mut pod = shell_pod("hanging", FOREVER);
    pod["spec"]["containers"][0]["readinessProbe"] =
        probe("sleep 4242 & sh -c 'trap \"\" TERM HUP; sleep 4243' & sleep 4244");
    node.apply("hanging", &pod);
    // A child that keeps the probe's output open must not keep the probe.
    let mut pod = shell_pod("daemon", FOREVER);
    pod["spec"]["containers"][0]["livenessProbe"] = probe("sleep 4245 & exit 0");
    node.apply("daemon", &pod);
    let pod = node.pod_when("hanging", "runs", |pod| container(pod, "main")["state"]["running"].is_object());
    node.eventually("the probe has timed out three times", |node| {
        let count = node.kubelet_log().matches("timed out").count();
        if count >= 3 { Ok(()) } else { Err(count.to_string()) }
    });
    // During an attempt there are its own processes, but not those of earlier ones. A killed process may be seen for a
    // moment longer on a busy machine; left over, it would be seen in most samples, and more of them each time.
    let counts: Vec<(usize, usize)> = (0..40)
        .map(|_| {
            std::thread::park_timeout(std::time::Duration::from_millis(50));
            let count = |command| processes_of(&node, &pod, command).len();
            (count("sleep 424"), count("sleep 4244"))
        })
        .collect();
    let too_many = counts.iter().filter(|(all, _)| *all > 5).count();
    assert!(too_many <= 10, "the processes of one attempt, not of several: {counts:?}");
    let overlapping = counts.iter().filter(|(_, own)| *own > 2).count();
    assert!(overlapping <= 10, "a shell and its sleep, one probe at a time: {counts:?}");
    assert_eq!(restarts(&node.pod("daemon").expect("the pod"), "main"), 0);
}
