//! Much data in the API, and a slow network to it: the node starts, and what needs little of the API does not wait for what needs much.

use std::net::SocketAddr;
use std::time::Duration;

use fixtures::rng::Rng;
use fixtures::stretched;
use harness::SlowLink;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, condition, shell_pod};

use super::{Cluster, bound};

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A node whose kubelet reaches the API server through a link of this rate. It is not started yet.
pub(crate) fn behind_slow_link(bytes_per_second: u64) -> (Cluster, SlowLink) {
    let mut node = Node::on_containerd(json!({}));
    let api =
        super::api_server::ApiServer::start(node.path("api"), &["--node", "node", "--no-service-accounts"]);
    let server = SocketAddr::from(([127, 0, 0, 1], api.port()));
    let link = node.finish(SlowLink::start(server, bytes_per_second)).expect("a link");
    let config = std::fs::read_to_string(api.file("node.kubeconfig")).expect("a kubeconfig");
    let mut config: Value = serde_json::from_str(&config).expect("localapi writes JSON");
    config["clusters"][0]["cluster"]["server"] = format!("https://127.0.0.1:{}", link.port()).into();
    let kubeconfig = node.path("slow.kubeconfig");
    std::fs::write(&kubeconfig, config.to_string()).expect("a kubeconfig");
    node.add_flags(&["--kubeconfig", kubeconfig.to_str().expect("a path")]);
    (Cluster::of(node, api), link)
}

/// As a deployment tool creates them, with a hash of what it deployed: 16 bytes that cannot be compressed.
pub(crate) fn service(i: usize) -> Value {
    let mut rng = Rng::new(i as u64);
    let hash: String = (0..2).map(|_| format!("{:016x}", rng.next())).collect();
    let labels =
        json!({"app.kubernetes.io/name": format!("app-{i}"), "app.kubernetes.io/managed-by": "Helm"});
    json!({
        "metadata": {"name": format!("service-{i}"), "labels": labels,
            "annotations": {"meta.helm.sh/release-name": format!("app-{i}"), "meta.helm.sh/release-namespace": "others", "hash": hash}},
        "spec": {"clusterIP": "None", "selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })
}

#[test]
fn node_with_5000_services_starts_over_a_link_of_30_kb_per_second() {
    let (mut cluster, link) = behind_slow_link(30_000);
    cluster.kubectl.post_all(SERVICES, (0..5_000).map(service));
    let mut without = bound(shell_pod("without-links", FOREVER));
    without["spec"]["enableServiceLinks"] = false.into();
    cluster.kubectl.apply(&[without, bound(shell_pod("with-links", FOREVER))]);
    cluster.node.start_kubelet();
    cluster.running("without-links");
    let first = cluster.node.kubelet_age();
    let others = cluster.kubectl.get("pod", "with-links").expect("the pod");
    let is_waiting = condition(&others, "Ready") != "True";
    cluster.running("with-links");
    let (all, bytes) = (cluster.node.kubelet_age(), link.bytes_to_clients());
    eprintln!("the pod without links runs after {first:?}, the other after {all:?}; {bytes} bytes");
    assert!(bytes > 5_000 * 16, "the link carries the hashes of all Services");
    assert!(is_waiting, "the pod without links runs first");
    assert!(all < stretched(Duration::from_secs(60)), "{all:?}");
}

#[test]
fn services_with_many_large_annotations_do_not_keep_pods_from_starting_after_a_restart() {
    let mut cluster = Cluster::start();
    let annotation = "x".repeat(255_000);
    let big = |i| {
        json!({
            "metadata": {"name": format!("big-{i}"), "annotations": {"a": annotation}},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        })
    };
    let good = json!({"metadata": {"name": "good"}, "spec": {"ports": [{"port": 80}]}});
    cluster.kubectl.post_all(SERVICES, (0..270).map(big).chain([good]));
    cluster.node.restart_kubelet();
    cluster.kubectl.apply(&[bound(shell_pod("links", "env | sort; exec sleep 3600"))]);
    let pod = cluster.running("links");
    cluster.node.eventually("the pod has the variables of a Service", |node| {
        let variables = node.logs(&pod, "main");
        if variables.contains("GOOD_SERVICE_PORT=80") { Ok(()) } else { Err(variables) }
    });
}
