//! `kubectl logs`, through the API server's client certificate and the kubelet's own port.

use std::io::{BufRead, BufReader};

use serde_json::json;

use crate::killed::share;
use crate::node::{once_pod, restarts, shell, shell_pod};

use super::{Cluster, bound};

/// Fails once; the second life says three lines, and a fourth as soon as `/shared/go` is there, and ends.
const TWO_LIVES: &str = "if [ ! -e /shared/lived ]; then touch /shared/lived; echo first life >&2; exit 1; fi; \
                         echo one; echo two; echo three; \
                         until [ -e /shared/go ]; do sleep 0.1; done; echo four";

/// A pod of several containers whose `main` has failed once and said three lines since.
fn talker(cluster: &Cluster) {
    let mut pod = bound(shell_pod("talker", TWO_LIVES));
    pod["spec"]["restartPolicy"] = "OnFailure".into();
    pod["spec"]["initContainers"] = json!([shell("first", "echo prepared")]);
    share(&mut pod, &cluster.node.path("shared"));
    cluster.kubectl.apply(&[pod]);
    cluster.shown_when("talker", "runs again", |pod| {
        restarts(pod, "main") == 1 && pod["status"]["phase"] == "Running"
    });
    cluster.node.eventually("all three lines are shown", |_| {
        let said = cluster.kubectl.attempt(&["logs", "talker", "-c", "main"])?;
        if said.lines().count() == 3 { Ok(()) } else { Err(said) }
    });
}

#[test]
fn kubectl_shows_logs_of_every_container_and_life_and_cuts_them_as_asked() {
    let cluster = Cluster::guarded(json!({}));
    talker(&cluster);
    let said = |options: &[&str]| {
        cluster.kubectl.ok(&[&["logs", "talker", "-c", "main"], options].concat())
    };
    assert_eq!(said(&[]), "one\ntwo\nthree\n");
    assert_eq!(said(&["--tail=1"]), "three\n");
    assert_eq!(said(&["--limit-bytes=6"]), "one\ntw");
    assert_eq!(said(&["--since=1h"]), "one\ntwo\nthree\n");
    assert_eq!(said(&["--since-time=2999-01-01T00:00:00Z"]), "");
    assert_eq!(said(&["--previous"]), "first life\n");
    let timed = said(&["--timestamps", "--tail=1"]);
    let (time, line) = timed.split_once(' ').expect("a time");
    assert_eq!((time.len(), line), ("2026-01-01T00:00:00.000000000Z".len(), "three\n"));
    assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    assert_eq!(cluster.kubectl.ok(&["logs", "talker", "-c", "first"]), "prepared\n");
    // Which container comes first is kubectl's affair.
    let all = cluster.kubectl.ok(&["logs", "talker", "--all-containers"]);
    assert!(["prepared\none\ntwo\nthree\n", "one\ntwo\nthree\nprepared\n"].contains(&all.as_str()), "{all}");
    cluster.node.eventually("what was said is older than a second", |_| {
        let said = said(&["--since=1s"]);
        if said.is_empty() { Ok(()) } else { Err(said) }
    });

    // A follower gets what comes, until the container has ended.
    let mut follower = cluster.kubectl.start(&["logs", "-f", "talker", "-c", "main", "--tail=1"]);
    let mut lines = BufReader::new(follower.stdout.take().expect("its output")).lines();
    let mut next = || lines.next().map(|line| line.expect("a line"));
    assert_eq!(next().as_deref(), Some("three"));
    std::fs::write(cluster.node.path("shared/go"), "").expect("the sign to go on");
    assert_eq!((next().as_deref(), next()), (Some("four"), None));
    assert!(follower.wait().expect("kubectl ends").success());

    let refused = |arguments: &[&str]| cluster.kubectl.attempt(arguments).expect_err("it is refused");
    let why = refused(&["logs", "talker", "-c", "first", "--previous"]);
    assert!(why.contains("previous terminated container \"first\" in pod \"talker\" not found"), "{why}");
    let why = refused(&["logs", "talker", "-c", "none"]);
    assert!(why.contains("container none is not valid for pod talker"), "{why}");
}

#[test]
fn only_who_may_use_the_nodes_proxy_reads_logs_at_its_own_port() {
    let cluster = Cluster::guarded(json!({}));
    cluster.kubectl.apply(&[bound(once_pod("once", "echo said"))]);
    cluster.shown_when("once", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
    assert_eq!(cluster.kubectl.ok(&["logs", "once"]), "said\n");
    let server = format!("--server=https://127.0.0.1:{}", cluster.node.main_port());
    let path = "/containerLogs/default/once/main";
    let at_the_node = |kubeconfig: &str| {
        let kubectl = super::Kubectl { kubeconfig: cluster.api.file(kubeconfig), ..cluster.kubectl.clone() };
        kubectl.attempt(&[&server, "--insecure-skip-tls-verify", "get", "--raw", path])
    };
    assert_eq!(at_the_node("admin.kubeconfig").expect("the administrator may"), "said\n");
    let why = at_the_node("node.kubeconfig").expect_err("a node may not");
    assert!(why.contains("Forbidden"), "{why}");
    let served = cluster.node.path("pki/kubelet.crt");
    let stranger = crate::server::connect(&cluster.node, &served, None).expect("a connection");
    let answer = crate::server::ask(stranger, "GET", path).expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (401, "Unauthorized"));
}
