//! Nodes of a cluster: objects that are missing, an API server that is away, certificates that have expired.

use harness::SmallDisk;
use serde_json::json;

use super::Page;
use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, shell_pod};
use crate::unkillable::{FrozenDisk, writing_to};

#[test]
fn objects_that_a_pod_waits_for_are_named() {
    let cluster = Cluster::start();
    let mut config = shell_pod("config", FOREVER);
    config["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
    let mut disk = shell_pod("disk", FOREVER);
    disk["spec"]["volumes"] = json!([{"name": "data", "csi": {"driver": "disk.example.com"}}]);
    disk["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let mut secret = shell_pod("secret", FOREVER);
    secret["spec"]["volumes"] = json!([{"name": "key", "secret": {"secretName": "tls"}}]);
    secret["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "key", "mountPath": "/tls"}]);
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"},
        "spec": {"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"]},
    });
    cluster.kubectl.apply(&[driver, bound(config), bound(disk), bound(secret)]);
    let node = &cluster.node;
    Page::new(
        node,
        "config-map-missing",
        "A container waits for a ConfigMap",
        "The environment of the container comes from a ConfigMap that does not exist.",
    )
    .says(&["why", "config"], 3, &["settings", "Create the object"])
    .end();
    Page::new(
        node,
        "secret-missing",
        "A volume waits for a Secret",
        "The Secret of a volume does not exist.",
    )
    .says(&["why", "secret"], 3, &["tls", "Create the object"])
    .end();
    Page::new(
        node,
        "csi-driver-missing",
        "A volume waits for its CSI driver",
        "The node plugin of the driver does not run on this node.",
    )
    .says(&["why", "disk"], 3, &["disk.example.com", "Start the node plugin"])
    .end();
}

#[test]
fn api_server_that_is_away_is_named_with_what_waits_for_it() {
    let mut cluster = Cluster::start();
    cluster.kubectl.apply(&[bound(shell_pod("web", FOREVER))]);
    cluster.running("web");
    cluster.api.stop();
    Page::new(
        &cluster.node,
        "api-server-away",
        "The API server cannot be reached",
        "The control plane is down. Pods run on; what the node has to report is sent later.",
    )
    .says(&["why", "node"], 3, &["The API server does not answer", "the lease was last renewed"])
    .says(&["why", "web"], 0, &["The pod runs and is ready."])
    .end();
    cluster.api.start_again(&[]);
    cluster.wait_until_ready();
}

#[test]
fn container_that_cannot_be_killed_is_named_while_its_pod_terminates() {
    let disk = SmallDisk::new(16, 100);
    let cluster = Cluster::start();
    cluster.kubectl.apply(&[bound(writing_to(&disk, shell_pod("writer", FOREVER)))]);
    let pod = cluster.running("writer");
    let frozen = FrozenDisk::new(&disk);
    cluster.kubectl.ok(&["delete", "pod", "writer", "--grace-period=1", "--wait=false"]);
    Page::new(
        &cluster.node,
        "terminating-process-stays",
        "A pod stays Terminating: a process does not die",
        "A process of the container waits for a disk that does not answer; SIGKILL has no effect before it does.",
    )
    .says(&["why", "writer"], 3, &["have not ended after their grace period", "state D waits for a disk"])
    .end();
    drop(frozen);
    cluster.wait_until_gone(&pod);
}

#[test]
fn memory_pressure_is_named_with_its_threshold_and_refuses_pods_that_request_none() {
    let cluster = Cluster::start_with(json!({"evictionHard": {"memory.available": "99%"}}));
    cluster.node.eventually("the node is under pressure", |node| {
        let (text, _) = super::ask(node, &["why", "node"]);
        if text.contains("short of memory") { Ok(()) } else { Err(text) }
    });
    cluster.kubectl.apply(&[bound(shell_pod("web", FOREVER))]);
    Page::new(
        &cluster.node,
        "memory-pressure",
        "The node evicts and refuses pods for memory",
        "Less memory is available than the threshold of `evictionHard` allows.",
    )
    .says(&["why", "node"], 3, &["The node is short of memory"])
    .says(&["why", "web"], 4, &["MemoryPressure", "set requests"])
    .end();
}
