//! Nodes of a cluster: objects that are missing or unreadable, pods that wait for others, an API server that is away or slow.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use fakes::DevicePlugin;
use harness::SmallDisk;
use serde_json::json;

use super::Page;
use crate::cluster::poisoned_objects::poison_status;
use crate::cluster::rejections::{allocatable, requesting, requests};
use crate::cluster::slow_links::{behind_slow_link, service};
use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, Node, shell_pod};
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

/// A server that refuses every request, as an overloaded API server does. Returns its port.
fn serve_refusals() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || refuse_requests(client));
        }
    });
    port
}

/// Until the connection ends. No request of the kubelet has a body that is sent in chunks.
fn refuse_requests(mut client: TcpStream) -> Option<()> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429,
        "message": "too many requests, please try again later",
    });
    let status = status.to_string();
    let length = status.len();
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{status}"
    );
    let mut requests = BufReader::new(client.try_clone().ok()?);
    loop {
        let mut body = 0;
        loop {
            let mut line = String::new();
            if requests.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                body = length.trim().parse().ok()?;
            }
        }
        std::io::copy(&mut requests.by_ref().take(body), &mut std::io::sink()).ok()?;
        client.write_all(answer.as_bytes()).ok()?;
    }
}

#[test]
fn overloaded_api_server_is_named_and_stops_no_pod() {
    let mut node = Node::on_containerd(json!({}));
    let kubeconfig = node.path("busy.kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "busy",
        "clusters": [{"name": "busy", "cluster": {"server": format!("http://127.0.0.1:{}", serve_refusals())}}],
        "contexts": [{"name": "busy", "context": {"cluster": "busy", "user": "node"}}],
        "users": [{"name": "node", "user": {}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).expect("a kubeconfig");
    node.add_flags(&["--kubeconfig", kubeconfig.to_str().expect("a path")]);
    node.apply("web", &shell_pod("web", FOREVER));
    node.start_kubelet();
    Page::new(
        &node,
        "api-server-overloaded",
        "The API server is overloaded",
        "A control plane has just been restarted, and all nodes talk to it at once: it answers 429 with `Retry-After: 5`. The kubelet was \
         restarted, too. The pod of a manifest on the node starts all the same.",
    )
    .says(
        &["why", "node"],
        3,
        &["The API server is overloaded and refuses calls", "too many requests", "each call is repeated later"],
    )
    .says(&["why", "web"], 0, &["The pod runs and is ready."])
    .end();
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

#[test]
fn pod_that_cannot_be_read_any_more_runs_on_and_is_named() {
    let cluster = Cluster::start();
    cluster.kubectl.apply(&[bound(shell_pod("web", FOREVER)), bound(shell_pod("other", FOREVER))]);
    cluster.running("web");
    cluster.running("other");
    poison_status(&cluster, "web");
    Page::new(
        &cluster.node,
        "object-unreadable",
        "An object of the API cannot be read",
        "The API holds a pod that its server takes and the node cannot decode: here a time in the year 10000. It costs \
         only itself.",
    )
    .says(&["why", "web"], 4, &["cannot read the newest version", "runs on as it last was", "Correct what the error names"])
    .says(&["why", "other"], 0, &["The pod runs and is ready."])
    .end();
}

#[test]
fn pods_that_wait_for_others_name_them() {
    let disk = SmallDisk::new(16, 100);
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let share = |percent: i64| requests("cpu", &format!("{}m", allocatable(&cluster, "cpu") * percent / 100));
    cluster.kubectl.apply(&[
        writing_to(&disk, requesting("victim", share(60))),
        writing_to(&disk, bound(shell_pod("stuck", FOREVER))),
    ]);
    let (victim, old) = (cluster.running("victim"), cluster.running("stuck"));
    let frozen = FrozenDisk::new(&disk);
    let mut critical = requesting("critical", share(50));
    critical["spec"]["priorityClassName"] = "system-node-critical".into();
    cluster.kubectl.apply(&[critical]);
    Page::new(
        &cluster.node,
        "preemption-waits",
        "A critical pod waits for the pods that make way for it",
        "The node is full, and a critical pod comes. The pod that is preempted does not end: its disk does not answer.",
    )
    .says(&["why", "critical"], 3, &["pods that were preempted for it still hold their resources"])
    .end();
    cluster.kubectl.ok(&["delete", "pod", "stuck", "--grace-period=0", "--force"]);
    cluster.kubectl.apply(&[bound(shell_pod("stuck", FOREVER))]);
    Page::new(
        &cluster.node,
        "previous-pod-of-the-name",
        "A pod does not start: one of its name still runs",
        "A pod was deleted by force and created again. The API has forgotten the old one, and its process cannot be killed.",
    )
    .says(&["why", "stuck"], 3, &["The previous pod of this name", "state D waits for a disk"])
    .end();
    drop(frozen);
    cluster.wait_until_gone(&old);
    cluster.running("critical");
    assert_eq!(
        crate::node::uid(&cluster.kubectl.get("pod", "victim").expect("the pod")),
        crate::node::uid(&victim)
    );
}

#[test]
fn pod_that_waits_for_services_over_a_slow_link_says_so() {
    let (mut cluster, _link) = behind_slow_link(1_000);
    cluster.kubectl.post_all("/api/v1/namespaces/default/services", (0..300).map(service));
    cluster.kubectl.apply(&[bound(shell_pod("web", FOREVER))]);
    cluster.node.start_kubelet();
    Page::new(
        &cluster.node,
        "services-not-read",
        "A pod waits for the services of the cluster",
        "The link to the API server is very slow, and the node has not read all services yet, which the pod gets as variables.",
    )
    .says(&["why", "web"], 3, &["services have not yet been read", "enableServiceLinks: false"])
    .end();
}

#[test]
fn device_whose_plugin_has_not_registered_is_named() {
    let mut cluster = Cluster::start();
    cluster.wait_until_ready();
    let mut plugin = DevicePlugin::serve(&cluster.node.path("root/device-plugins"), "example.com/gpu", "0 1");
    cluster.node.eventually("the plugin is registered", |_| plugin.register());
    cluster.node.eventually("the API has its devices", |_| {
        let node = cluster.kubectl.get("node", "node")?;
        let amount = &node["status"]["allocatable"]["example.com/gpu"];
        if amount == "2" { Ok(()) } else { Err(amount.to_string()) }
    });
    cluster.node.restart_kubelet();
    let mut pod = bound(shell_pod("gpu", FOREVER));
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"example.com/gpu": "1"}});
    cluster.kubectl.apply(&[pod]);
    Page::new(
        &cluster.node,
        "device-plugin-missing",
        "UnexpectedAdmissionError: a device is not there",
        "The kubelet was restarted, and the plugin of a device that a new pod needs has not registered again.",
    )
    .says(&["why", "gpu"], 4, &["example.com/gpu", "kubelet get plugins"])
    .end();
}

#[test]
fn node_without_its_object_says_so() {
    let mut cluster = Cluster::with_node(Node::on_containerd(json!({"registerNode": false})));
    cluster.node.start_kubelet();
    cluster.kubectl.apply(&[bound(shell_pod("web", FOREVER))]);
    cluster.running("web");
    Page::new(
        &cluster.node,
        "node-object-missing",
        "The node does not show up in the cluster",
        "`registerNode` is false, and the Node object was never created.",
    )
    .says(&["why", "node"], 3, &["no Node object of this node", "registerNode"])
    .says(&["why", "web"], 0, &["The pod runs and is ready."])
    .end();
}
