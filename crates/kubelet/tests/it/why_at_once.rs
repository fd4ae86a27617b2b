//! The commands that explain a node answer within a second whatever the node waits for, and take little memory.

use std::time::{Duration, Instant};

use fakes::FakeRuntime;
use fakes::fake::{Fault, Method};
use fixtures::{reduced, stretched};
use harness::SmallDisk;
use serde_json::json;

use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, Node, shell_pod};
use crate::unkillable::FrozenDisk;
use crate::why::{ask, says};

const LIMIT: Duration = Duration::from_secs(1);
/// Of three tries one may be slowed down by another test.
const TRIES: usize = 3;

/// Every command answers within the limit.
#[track_caller]
fn answers_at_once(node: &Node, pod: &str) {
    for arguments in [&["why"][..], &["why", pod], &["why", "node"], &["get", "pods"], &["events"]] {
        let tries = (0..TRIES).map(|_| {
            let began = Instant::now();
            let output = ask(node, arguments);
            assert!(!output.stdout.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            began.elapsed()
        });
        let best = tries.min().expect("a try");
        eprintln!("kubelet {}: {best:?}", arguments.join(" "));
        assert!(best < stretched(LIMIT), "{arguments:?} took {best:?}");
    }
}

/// Bytes of private memory of the kubelet.
fn private_memory(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.kubelet_pid())).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

#[test]
fn five_hundred_pods_that_wait_for_a_runtime_are_explained_within_a_second() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({"maxPods": 600}));
    runtime.fault_always(Method::RunPodSandbox, Some(Fault::Hang));
    let count = reduced(500);
    for number in 0..count {
        let name = format!("web-{number}");
        node.apply(&name, &shell_pod(&name, FOREVER));
    }
    says(&node, "node", 3, &[&format!("Pods on this node: {count}, not as desired: {count}.")]);
    says(&node, "web-0", 3, &["The container runtime creates its sandbox and network, for"]);
    answers_at_once(&node, "web-0");
}

#[test]
fn node_without_its_api_server_and_with_a_disk_that_does_not_answer_explains_itself_within_a_second() {
    let node = Node::on_containerd(json!({}));
    let disk = SmallDisk::at(node.path("root"), 64, 5000);
    let mut cluster = Cluster::with_node(node);
    cluster.node.start_kubelet();
    cluster.kubectl.apply(&[bound(shell_pod("web", FOREVER))]);
    cluster.running("web");
    cluster.api.stop();
    let frozen = FrozenDisk::new(&disk);
    says(&cluster.node, "node", 3, &["The API server does not answer"]);
    answers_at_once(&cluster.node, "web");
    drop(frozen);
    cluster.api.start_again(&[]);
    cluster.wait_until_ready();
    cluster.kubectl.delete("web");
    let pod = |_: &Node| match cluster.kubectl.get("pod", "web") {
        Ok(_) => Err("it is there".to_owned()),
        Err(_) => Ok(()),
    };
    cluster.node.eventually("the pod is gone", pod);
    cluster.node.kill_kubelet();
    drop(disk);
}

#[test]
fn local_socket_in_use_takes_at_most_half_a_megabyte() {
    const MAX: u64 = 500_000;
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    runtime.image("localhost/busybox:test");
    let count = reduced(100);
    for number in 0..count {
        let name = format!("web-{number}");
        node.apply(&name, &shell_pod(&name, FOREVER));
    }
    for number in 0..count {
        node.running(&format!("web-{number}"));
    }
    says(&node, "node", 0, &[&format!("Pods on this node: {count}, all as desired.")]);
    let before = private_memory(&node);
    let mut peak = before;
    for _ in 0..10 {
        answers_at_once(&node, "web-0");
        peak = peak.max(private_memory(&node));
    }
    let more = peak.saturating_sub(before);
    eprintln!("private memory with {count} pods: {before} bytes, at most {more} more while asked");
    assert!(more <= MAX, "{more} bytes more");
}
