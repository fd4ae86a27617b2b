//! `kubectl logs`, through the API server's client certificate and the kubelet's own port.

use std::io::{BufRead, BufReader};

use serde_json::json;

use crate::kubelet_kills::share;
use crate::node::{container, once_pod, restarts, shell, shell_pod};

use super::{Cluster, bound};

/// Fails once; the second instance prints three lines, and a fourth as soon as `/shared/go` exists, and exits.
const TWO_INSTANCES: &str = "if [ ! -e /shared/lived ]; then touch /shared/lived; echo first life >&2; exit 1; fi; \
                         echo one; echo two; echo three; \
                         until [ -e /shared/go ]; do sleep 0.1; done; echo four";

/// A pod of several containers whose `main` has failed once and printed three lines since.
fn talker(cluster: &Cluster) {
    let mut pod = bound(shell_pod("talker", TWO_INSTANCES));
    pod["spec"]["restartPolicy"] = "OnFailure".into();
    pod["spec"]["initContainers"] = json!([shell("first", "echo prepared")]);
    share(&mut pod, &cluster.node.path("shared"));
    cluster.kubectl.apply(&[pod]);
    cluster.pod_when("talker", "runs again", |pod| {
        restarts(pod, "main") == 1 && pod["status"]["phase"] == "Running"
    });
    cluster.node.eventually("all three lines are shown", |_| {
        let logs = cluster.kubectl.attempt(&["logs", "talker", "-c", "main"])?;
        if logs.lines().count() == 3 { Ok(()) } else { Err(logs) }
    });
}

#[test]
fn kubectl_logs_serves_every_container_and_previous_instance_with_limits() {
    let cluster = Cluster::with_authorization(json!({}));
    talker(&cluster);
    let logs = |options: &[&str]| cluster.kubectl.ok(&[&["logs", "talker", "-c", "main"], options].concat());
    assert_eq!(logs(&[]), "one\ntwo\nthree\n");
    assert_eq!(logs(&["--tail=1"]), "three\n");
    assert_eq!(logs(&["--limit-bytes=6"]), "one\ntw");
    assert_eq!(logs(&["--since=1h"]), "one\ntwo\nthree\n");
    assert_eq!(logs(&["--since-time=2999-01-01T00:00:00Z"]), "");
    assert_eq!(logs(&["--previous"]), "first life\n");
    let timed = logs(&["--timestamps", "--tail=1"]);
    let (time, line) = timed.split_once(' ').expect("a time");
    assert_eq!((time.len(), line), ("2026-01-01T00:00:00.000000000Z".len(), "three\n"));
    assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    assert_eq!(cluster.kubectl.ok(&["logs", "talker", "-c", "first"]), "prepared\n");
    // kubectl chooses which container comes first.
    let all = cluster.kubectl.ok(&["logs", "talker", "--all-containers"]);
    assert!(["prepared\none\ntwo\nthree\n", "one\ntwo\nthree\nprepared\n"].contains(&all.as_str()), "{all}");
    cluster.node.eventually("the output is older than a second", |_| {
        let logs = logs(&["--since=1s"]);
        if logs.is_empty() { Ok(()) } else { Err(logs) }
    });

    // Follow returns new lines until the container has exited.
    let mut follower = cluster.kubectl.start(&["logs", "-f", "talker", "-c", "main", "--tail=1"]);
    let mut lines = BufReader::new(follower.stdout.take().expect("its output")).lines();
    let mut next = || lines.next().map(|line| line.expect("a line"));
    assert_eq!(next().as_deref(), Some("three"));
    std::fs::write(cluster.node.path("shared/go"), "").expect("the trigger to continue");
    assert_eq!((next().as_deref(), next()), (Some("four"), None));
    assert!(follower.wait().expect("kubectl ends").success());

    let refused = |arguments: &[&str]| cluster.kubectl.attempt(arguments).expect_err("it is rejected");
    let why = refused(&["logs", "talker", "-c", "first", "--previous"]);
    assert!(why.contains("previous terminated container \"first\" in pod \"talker\" not found"), "{why}");
    let why = refused(&["logs", "talker", "-c", "none"]);
    assert!(why.contains("container none is not valid for pod talker"), "{why}");
}

/// Each instance prints a first line and, when its file appears or the pod is deleted, its last lines before it exits.
const LIVES: &str = "n=$(cat /shared/n 2>/dev/null || echo 0); n=$((n + 1)); echo $n > /shared/n; \
                     trap 'echo farewell $n; exit 0' TERM; echo life $n; \
                     until [ -e /shared/end$n ]; do sleep 0.1; done; echo over $n; exit 1";

#[test]
fn kubectl_logs_follow_reads_the_last_lines_of_an_exited_container_and_of_a_deleted_pod() {
    let cluster = Cluster::with_authorization(json!({}));
    let mut pod = bound(shell_pod("mortal", LIVES));
    pod["spec"]["terminationGracePeriodSeconds"] = 30.into();
    share(&mut pod, &cluster.node.path("shared"));
    cluster.kubectl.apply(&[pod]);
    let follow = |life: i64| {
        let pod = cluster.pod_when("mortal", "lives", |pod| {
            restarts(pod, "main") == life - 1
                && pod["status"]["phase"] == "Running"
                && container(pod, "main")["state"]["running"].is_object()
        });
        let mut follower = cluster.kubectl.start(&["logs", "-f", "mortal"]);
        let lines = BufReader::new(follower.stdout.take().expect("its output")).lines();
        (pod, follower, lines.map(|line| line.expect("a line")))
    };
    let (_, mut follower, mut lines) = follow(1);
    assert_eq!(lines.next().as_deref(), Some("life 1"));
    std::fs::write(cluster.node.path("shared/end1"), "").expect("the trigger to exit");
    assert_eq!((lines.next().as_deref(), lines.next()), (Some("over 1"), None));
    assert!(follower.wait().expect("kubectl ends").success());

    let (pod, mut follower, mut lines) = follow(2);
    assert_eq!(lines.next().as_deref(), Some("life 2"));
    cluster.kubectl.ok(&["delete", "pod", "mortal", "--wait=false"]);
    assert_eq!((lines.next().as_deref(), lines.next()), (Some("farewell 2"), None));
    assert!(follower.wait().expect("kubectl ends").success());
    cluster.wait_until_gone(&pod);
}

#[test]
fn kubelet_logs_need_nodes_proxy_permission() {
    let cluster = Cluster::with_authorization(json!({}));
    cluster.kubectl.apply(&[bound(once_pod("once", "echo hello"))]);
    cluster.pod_when("once", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
    assert_eq!(cluster.kubectl.ok(&["logs", "once"]), "hello\n");
    let server = format!("--server=https://127.0.0.1:{}", cluster.node.main_port());
    let path = "/containerLogs/default/once/main";
    let at_the_node = |kubeconfig: &str| {
        let kubectl = super::Kubectl { kubeconfig: cluster.api.file(kubeconfig), ..cluster.kubectl.clone() };
        kubectl.attempt(&[&server, "--insecure-skip-tls-verify", "get", "--raw", path])
    };
    assert_eq!(at_the_node("admin.kubeconfig").expect("the administrator is authorized"), "hello\n");
    let why = at_the_node("node.kubeconfig").expect_err("a node may not");
    assert!(why.contains("Forbidden"), "{why}");
    let served = cluster.node.path("pki/kubelet.crt");
    let stranger = crate::server::connect(&cluster.node, &served, None).expect("a connection");
    let answer = crate::server::request(stranger, "GET", path).expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (401, "Unauthorized"));
}
