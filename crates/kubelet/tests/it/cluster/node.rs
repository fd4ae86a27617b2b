//! The node itself, as kubectl shows it.

use serde_json::{Value, json};

use fakes::FakeRuntime;

use super::{Cluster, bound};
use crate::node::{FOREVER, Node, condition, shell_pod};

/// The value of a label of `kubectl describe`, such as `Kernel Version:`.
#[track_caller]
fn described<'a>(text: &'a str, label: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label));
    line.unwrap_or_else(|| panic!("no {label} in {text}")).trim()
}

#[test]
fn the_node_becomes_ready_and_kubectl_describes_it() {
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let table = cluster.kubectl.ok(&["get", "nodes", "-o", "wide", "--no-headers"]);
    let columns: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(columns[..3], ["node", "Ready", "<none>"], "{table}");
    assert_eq!(columns[4], "v1.36.2", "{table}");
    assert!(columns.last().is_some_and(|runtime| runtime.starts_with("containerd://")), "{table}");

    let declared = &cluster.kubectl.get("node", "node").expect("the node")["status"]["declaredFeatures"];
    let websockets = json!("ExtendWebSocketsToKubelet");
    assert!(declared.as_array().is_some_and(|names| names.contains(&websockets)), "{declared}");
    let text = cluster.kubectl.ok(&["describe", "node", "node"]);
    assert!(text.contains("kubernetes.io/hostname=node"), "{text}");
    assert_eq!(described(&text, "HolderIdentity:"), "node");
    assert_eq!(described(&text, "Hostname:"), "node");
    assert!(described(&text, "InternalIP:").parse::<std::net::IpAddr>().is_ok(), "{text}");
    assert_eq!(described(&text, "pods:"), "110");
    assert_eq!(described(&text, "Kubelet Version:"), "v1.36.2");
    assert_eq!(described(&text, "Taints:"), "<none>");
    assert_eq!(described(&text, "Unschedulable:"), "false");
    for (kind, status, reason) in [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ] {
        let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{kind} ")));
        let line = line.unwrap_or_else(|| panic!("no condition {kind} in {text}"));
        assert_eq!(line.split_whitespace().nth(1), Some(status), "{line}");
        assert!(line.contains(reason), "{line}");
    }
    // Requested by kind and name: `kubectl describe node` before 1.24 shows only events without the UID of the Node.
    cluster.node.eventually("the events of the node are reported", |_| {
        let events = cluster.events("Node", "node");
        let is_reported =
            |reason: &&str| events.iter().any(|event| event.starts_with(&format!("{reason}: ")));
        let wanted = ["Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
        if wanted.iter().all(is_reported) { Ok(()) } else { Err(format!("{events:?}")) }
    });
}

#[test]
fn node_lease_is_renewed_more_often_than_the_node_status() {
    let cluster = Cluster::start_with(json!({"nodeLeaseDurationSeconds": 4}));
    cluster.wait_until_ready();
    let lease = |_: &Node| {
        let args = ["get", "lease", "-n", "kube-node-lease", "node", "-o", "json"];
        serde_json::from_str::<Value>(&cluster.kubectl.attempt(&args)?).map_err(|error| error.to_string())
    };
    // The first one may be older than the Node object.
    let first = cluster.node.eventually("the lease has an owner reference", |node| {
        let lease = lease(node)?;
        if lease["metadata"]["ownerReferences"].is_array() { Ok(lease) } else { Err(lease.to_string()) }
    });
    assert_eq!(
        (&first["spec"]["holderIdentity"], &first["spec"]["leaseDurationSeconds"]),
        (&json!("node"), &json!(4))
    );
    let node = cluster.kubectl.get("node", "node").expect("the node");
    let owner = &first["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &node["metadata"]["uid"]));
    let mut last = first;
    for _ in 0..3 {
        last = cluster.node.eventually("the lease is renewed", |node| {
            let now = lease(node)?;
            let is_renewed = now["spec"]["renewTime"].as_str() > last["spec"]["renewTime"].as_str();
            if is_renewed { Ok(now) } else { Err(now["spec"].to_string()) }
        });
    }
    let heartbeats = |node: &Value| node["status"]["conditions"][0]["lastHeartbeatTime"].clone();
    let after = cluster.kubectl.get("node", "node").expect("the node");
    assert_eq!(heartbeats(&after), heartbeats(&node), "no relevant change has happened");
}

#[test]
fn existing_node_keeps_foreign_labels_and_taints_after_a_kubelet_restart() {
    let mut cluster = Cluster::start_with(json!({"nodeStatusUpdateFrequency": "1s"}));
    cluster.wait_until_ready();
    let before = cluster.kubectl.get("node", "node").expect("the node");
    cluster.kubectl.ok(&["label", "node", "node", "tier=front"]);
    cluster.kubectl.ok(&["annotate", "node", "node", "note=kept"]);
    cluster.kubectl.ok(&["cordon", "node"]);
    cluster.kubectl.ok(&["label", "node", "node", "kubernetes.io/arch=sparc", "--overwrite"]);
    cluster.node.restart_kubelet();
    let after = cluster.node.eventually("the label of the kubelet is correct", |_| {
        let node = cluster.kubectl.get("node", "node")?;
        let arch = node["metadata"]["labels"]["kubernetes.io/arch"].as_str().unwrap_or_default();
        if arch == "sparc" { Err(arch.to_owned()) } else { Ok(node) }
    });
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "it is the same Node");
    assert_eq!(after["metadata"]["labels"]["tier"], "front");
    assert_eq!(after["metadata"]["annotations"]["note"], "kept");
    assert_eq!(after["spec"]["unschedulable"], true);
    cluster.kubectl.ok(&["uncordon", "node"]);
    cluster.node.eventually("cordon and uncordon are reported", |_| {
        let events = cluster.events("Node", "node");
        if events.iter().any(|event| event.contains("NodeSchedulable")) {
            Ok(())
        } else {
            Err(format!("{events:?}"))
        }
    });
}

/// The address that this machine would use as a source; finding it sends nothing.
pub(crate) fn own_address() -> String {
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
    socket.connect(("192.0.2.1", 9)).expect("a default route");
    socket.local_addr().expect("an address").ip().to_string()
}

#[test]
fn node_object_follows_flags_and_configuration() {
    let address = own_address();
    let mut cluster = Cluster::with_node(Node::on_containerd(json!({
        "podsPerCore": 1, "nodeStatusMaxImages": 1, "nodeStatusUpdateFrequency": "1s",
        "registerWithTaints": [{"key": "tier", "value": "edge", "effect": "PreferNoSchedule"}],
    })));
    cluster.node.add_flags(&[
        "--node-labels=rack=r7,node.kubernetes.io/shelf=2",
        "--cloud-provider=external",
        "--provider-id=shop://7",
        &format!("--node-ip={address}"),
    ]);
    cluster.node.start_kubelet();
    let node = cluster.node.eventually("the node is ready", |_| {
        let node = cluster.kubectl.get("node", "node")?;
        if condition(&node, "Ready") == "True" { Ok(node) } else { Err(node["status"].to_string()) }
    });
    let (labels, status) = (&node["metadata"]["labels"], &node["status"]);
    assert_eq!((&labels["rack"], &labels["node.kubernetes.io/shelf"]), (&json!("r7"), &json!("2")));
    assert_eq!(node["spec"]["providerID"], "shop://7");
    let taints = json!([
        {"key": "tier", "value": "edge", "effect": "PreferNoSchedule"},
        {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
    ]);
    assert_eq!(node["spec"]["taints"], taints);
    // Where a cloud provider reports the addresses, `--node-ip` only selects one of them.
    let hint = &node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"];
    assert_eq!(hint, &json!(address), "{node}");
    assert_eq!(status["capacity"]["pods"], status["capacity"]["cpu"], "one pod a CPU");
    assert_eq!(status["images"].as_array().map(Vec::len), Some(1), "of two: {}", status["images"]);
    let kinds = status["conditions"].as_array().expect("conditions").iter().map(|one| one["type"].clone());
    assert_eq!(kinds.collect::<Vec<_>>(), ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], cluster.node.main_port());
}

#[test]
fn register_node_false_waits_for_the_node_object_and_then_reports_status() {
    let fake = FakeRuntime::with_clock(ports::Clock::system());
    let settings = json!({"registerNode": false, "nodeStatusUpdateFrequency": "1s"});
    let mut cluster = Cluster::with_node(Node::with_fake(&fake, settings));
    cluster.node.start_kubelet();
    cluster.node.wait_for_log("Error updating node status, will retry");
    assert!(cluster.kubectl.get("node", "node").is_err(), "it was not created");
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
    cluster.kubectl.apply(&[object]);
    cluster.wait_until_ready();
    let status = cluster.kubectl.get("node", "node").expect("it exists")["status"].clone();
    assert_eq!(status["features"], json!({"supplementalGroupsPolicy": true}));
    let features = json!({"recursiveReadOnlyMounts": true, "userNamespaces": true});
    assert_eq!(status["runtimeHandlers"], json!([{"name": "", "features": features}]));
    let declared = status["declaredFeatures"].as_array().expect("the features of the node");
    assert!(declared.contains(&json!("ExtendWebSocketsToKubelet")), "{declared:?}");
}

/// The Go kubelet needs a list of Nodes, not a Node in it (`kubelet_nodecache.go`); pods are admitted to the one it would register.
#[test]
fn pods_of_the_api_run_and_are_admitted_by_their_labels_without_a_node_object() {
    let mut cluster = Cluster::with_node(Node::on_containerd(json!({"registerNode": false})));
    cluster.node.add_flags(&["--node-labels=rack=r7"]);
    cluster.node.start_kubelet();
    let selecting = |name: &str, rack: &str| {
        let mut pod = bound(shell_pod(name, FOREVER));
        pod["spec"]["nodeSelector"] = json!({"rack": rack, "kubernetes.io/hostname": "node"});
        pod
    };
    let mut large = bound(shell_pod("large", FOREVER));
    large["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "5000"}});
    cluster.kubectl.apply(&[selecting("here", "r7"), selecting("elsewhere", "r8"), large]);
    cluster.running("here");
    for (name, reason) in [("elsewhere", "NodeAffinity"), ("large", "OutOfcpu")] {
        let pod = cluster.pod_when(name, "has failed", |pod| pod["status"]["phase"] == "Failed");
        assert_eq!(pod["status"]["reason"], reason, "{}", pod["status"]);
    }
    let answer = cluster.kubectl.get("node", "node").expect_err("it was not created");
    assert!(answer.contains("NotFound"), "{answer}");
}

/// `container_manager_linux.go`: the Go kubelet validates the cgroup before it calls the API server.
#[test]
fn cgroup_root_that_does_not_exist_ends_the_start_before_the_node_registers() {
    let mut cluster = Cluster::with_node(Node::on_containerd(json!({})));
    cluster.node.configure(json!({"cgroupRoot": "/kubelet-test-nowhere"}));
    cluster.node.spawn_kubelet();
    assert_eq!(cluster.node.wait_for_exit().code(), Some(1));
    let reason = "invalid configuration: cgroup-root /kubelet-test-nowhere doesn't exist";
    assert!(cluster.node.kubelet_log().contains(reason), "{}", cluster.node.kubelet_log());
    let answer = cluster.kubectl.get("node", "node").expect_err("it has not registered");
    assert!(answer.contains("NotFound"), "{answer}");
}

/// Events have a budget of their own, and pod statuses too.
#[test]
fn kube_api_qps_and_burst_limit_api_calls() {
    let fake = FakeRuntime::with_clock(ports::Clock::system());
    let rates = json!({"kubeAPIQPS": 5, "kubeAPIBurst": 1, "eventRecordQPS": 2, "eventBurst": 1});
    let mut cluster = Cluster::with_node(Node::with_fake(&fake, rates));
    cluster.node.start_kubelet();
    let names: Vec<String> = (0..4).map(|n| format!("web-{n}")).collect();
    let pods = names.iter().map(|name| {
        let mut pod = bound(shell_pod(name, FOREVER));
        pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        pod
    });
    // At once, so that their statuses are due together on a slow machine, too.
    cluster.kubectl.create(&pods.collect::<Vec<_>>());
    for name in &names {
        cluster.running(name);
    }
    let moments = cluster.node.eventually("a dozen events have arrived", |_| {
        let mut moments = Vec::new();
        for name in &names {
            let events = cluster.kubectl.events("Pod", name)?;
            let made =
                events.iter().map(|event| event["metadata"]["creationTimestamp"].as_str().map(str::parse));
            moments.extend(
                made.flatten().collect::<Result<Vec<jiff::Timestamp>, _>>().map_err(|e| e.to_string())?,
            );
        }
        if moments.len() >= 12 { Ok(moments) } else { Err(format!("{} events", moments.len())) }
    });
    // Timestamps have whole seconds; with the default limits all events would have the same one.
    let (first, last) = (moments.iter().min().expect("a dozen"), moments.iter().max().expect("a dozen"));
    assert!(last.duration_since(*first).as_secs() >= 4, "{moments:?}");
    let metrics = cluster.node.get("/metrics").expect("metrics");
    // Which request waits for which depends on their order: the node's own ones come in between.
    let waited =
        metrics.lines().filter(|line| line.starts_with("rest_client_rate_limiter_duration_seconds_sum"));
    let waited: f64 = waited.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert!(waited > 0.2, "requests were delayed by the budget: {waited}");
}
