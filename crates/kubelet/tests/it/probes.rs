//! Effects of probes on pods.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use fixtures::stretched;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, condition, container, restarts, shell_pod};
use crate::processes::commands_of;

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
fn readiness_probe_failure_clears_ready_and_success_sets_it_again() {
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
fn startup_probe_delays_liveness_and_readiness_probes() {
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
    let began = Instant::now();
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

#[test]
fn exec_probe_timeout_leaves_no_process_and_never_runs_two_commands_at_once() {
    let node = Node::start();
    let probe = |script: &str| json!({"exec": {"command": ["/bin/sh", "-c", script]}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1000});
    let mut pod = shell_pod("hanging", FOREVER);
    pod["spec"]["containers"][0]["readinessProbe"] =
        probe("sleep 4242 & sh -c 'trap \"\" TERM HUP; sleep 4243' & sleep 4244");
    node.apply("hanging", &pod);
    // A child process that keeps the probe's output open must not block the probe.
    let mut pod = shell_pod("daemon", FOREVER);
    pod["spec"]["containers"][0]["livenessProbe"] = probe("sleep 4245 & exit 0");
    node.apply("daemon", &pod);
    let first_processes = ["hanging", "daemon"].map(|name| {
        let runs = |pod: &Value| container(pod, "main")["state"]["running"].is_object();
        node.container_pid(&node.pod_when(name, "runs", runs), "main")
    });
    // Leftovers of an attempt, or an attempt that overlaps with another, are seen together with the next one.
    let mut attempts = [BTreeSet::new(), BTreeSet::new()];
    node.eventually("each probe has been carried out six times", |_| {
        for (first, seen) in first_processes.iter().zip(&mut attempts) {
            let live = commands_of(*first, "sleep 424");
            assert!(live.len() <= 1, "processes of several attempts at once: {live:?}");
            seen.extend(live.into_keys());
        }
        if attempts.iter().all(|seen| seen.len() >= 6) { Ok(()) } else { Err(format!("{attempts:?}")) }
    });
    let timeouts = node.kubelet_log().matches("timed out").count();
    assert!(timeouts >= 5, "{timeouts}");
    assert_eq!(restarts(&node.pod("daemon").expect("the pod"), "main"), 0);
}

/// Processes of the node that have nothing to do with its pods.
struct OtherProcesses(Vec<Child>);

impl OtherProcesses {
    fn start(count: usize) -> Self {
        let start = |_| Command::new("sleep").arg("600").spawn().expect("a process");
        Self((0..count).map(start).collect())
    }
}

impl Drop for OtherProcesses {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
        }
        for process in &mut self.0 {
            let _ = process.wait();
        }
    }
}

#[test]
fn timed_out_exec_probes_of_20_containers_among_6000_processes_delay_no_other_pod() {
    const CONTAINERS: usize = 20;
    let node = Node::start();
    let mut pod = shell_pod("hanging", FOREVER);
    let mut main = pod["spec"]["containers"][0].clone();
    main["readinessProbe"] = json!({"exec": {"command": ["/bin/sleep", "4250"]}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1000});
    let containers = (0..CONTAINERS).map(|n| {
        main["name"] = format!("c{n}").into();
        main.clone()
    });
    pod["spec"]["containers"] = containers.collect();
    let _others = OtherProcesses::start(6000);
    node.apply("hanging", &pod);
    node.eventually("as many probes have timed out as there are containers", |node| {
        match node.kubelet_log().matches("timed out after 1s").count() {
            enough if enough >= CONTAINERS => Ok(()),
            few => Err(few.to_string()),
        }
    });
    let asked_at = Instant::now();
    node.apply("other", &shell_pod("other", FOREVER));
    node.running("other");
    let started_after = asked_at.elapsed();
    assert!(started_after < stretched(Duration::from_secs(10)), "the other pod ran after {started_after:?}");
}

/// The server is in the test's own process; the pod uses the host network, so its address is the server's too.
#[test]
fn grpc_probes_follow_the_health_status_of_each_service() {
    let node = Node::start();
    let server = node.enter_runtime(fakes::HealthServer::start).expect("a server");
    server.set("ready", false);
    server.set("alive", true);
    let mut pod = shell_pod("rpc", FOREVER);
    pod["spec"]["hostNetwork"] = true.into();
    let probe = |service: &str| json!({"grpc": {"port": server.port(), "service": service}, "periodSeconds": 1, "failureThreshold": 1});
    pod["spec"]["containers"][0]["readinessProbe"] = probe("ready");
    pod["spec"]["containers"][0]["livenessProbe"] = probe("alive");
    node.apply("rpc", &pod);
    node.wait_for_log("Readiness probe failed: service unhealthy (responded with");
    let unready = node.pod("rpc").expect("the pod");
    assert_eq!(condition(&unready, "Ready"), "False");
    server.set("ready", true);
    let ready = node.running("rpc");
    assert_eq!(restarts(&ready, "main"), 0);
    server.set("ready", false);
    node.pod_when("rpc", "is unready again", |pod| condition(pod, "Ready") == "False");
    server.set("ready", true);
    server.set("alive", false);
    node.pod_when("rpc", "was restarted", |pod| restarts(pod, "main") >= 1);
    server.set("alive", true);
    node.running("rpc");
}
