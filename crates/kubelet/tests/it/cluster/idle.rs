//! A node on which nothing changes makes no API requests except lease renewals, heartbeats and watches, even if the API returns
//! unknown fields.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fixtures::stretched;
use serde_json::{Value, json};

use super::{Cluster, bound};
use crate::node::{FOREVER, IMAGE, Node, once_pod, shell, shell_pod};

/// How long no request may be made.
const WINDOW: Duration = Duration::from_secs(60);
/// After so long without a request, everything that the pods caused is over.
const SETTLED: Duration = Duration::from_secs(8);

/// Requests of the node since the API server started, except the periodic ones.
fn requests(cluster: &Cluster) -> Vec<String> {
    let calls = cluster.audit_log().into_iter().filter(|call| {
        let (verb, uri) =
            (call["verb"].as_str().unwrap_or_default(), call["uri"].as_str().unwrap_or_default());
        let is_lease = verb == "update" && uri.contains("/leases/node");
        !is_lease && verb != "watch"
    });
    calls.map(|call| format!("{} {} {}", call["verb"], call["uri"], call["request"])).collect()
}

/// Pods of every kind that settle.
fn pods() -> Vec<Value> {
    let mut probed = shell_pod("probed", FOREVER);
    // A probe that a busy machine delays is no fault of the kubelet: it gets time, and one failure changes nothing.
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 30});
    probed["spec"]["containers"][0]["readinessProbe"] = probe.clone();
    probed["spec"]["containers"][0]["livenessProbe"] = probe;
    let mut limited = shell_pod("limited", FOREVER);
    limited["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "0.02", "memory": "16Mi"}, "limits": {"cpu": "0.1", "memory": "0.0625Gi"}});
    let mut sidecar = once_pod("sidecar", "sleep 1");
    let mut proxy = shell("proxy", FOREVER);
    proxy["restartPolicy"] = json!("Always");
    sidecar["spec"]["initContainers"] = json!([proxy, shell("setup", "true")]);
    let mut volumes = shell_pod("volumes", FOREVER);
    volumes["spec"]["volumes"] = json!([
        {"name": "e", "emptyDir": {}},
        {"name": "c", "configMap": {"name": "kube-root-ca.crt"}},
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}]}},
    ]);
    volumes["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "e", "mountPath": "/e"}, {"name": "c", "mountPath": "/c"}, {"name": "t", "mountPath": "/t"},
    ]);
    let mut host = shell_pod("host", FOREVER);
    host["spec"]["hostNetwork"] = json!(true);
    let mut refused = shell_pod("refused", FOREVER);
    refused["spec"]["nodeSelector"] = json!({"no": "such"});
    let all = [
        probed,
        limited,
        sidecar,
        volumes,
        host,
        refused,
        once_pod("completes", "true"),
        once_pod("fails", "exit 3"),
    ];
    all.into_iter().map(bound).collect()
}

/// A static pod whose quantities the API writes in another form than its manifest.
fn static_pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": IMAGE, "command": ["sleep", "3600"], "resources": {
            "requests": {"cpu": "0.01", "memory": "0.015625Gi"}, "limits": {"cpu": "1000m", "memory": "65536Ki"}}}]}})
}

fn has_settled(cluster: &Cluster) -> Result<(), String> {
    let expected = BTreeMap::from([
        ("probed", "Running"),
        ("limited", "Running"),
        ("sidecar", "Succeeded"),
        ("volumes", "Running"),
        ("host", "Running"),
        ("refused", "Failed"),
        ("completes", "Succeeded"),
        ("fails", "Failed"),
        ("static-node", "Running"),
    ]);
    for (name, phase) in expected {
        let pod = cluster.kubectl.get("pod", name)?;
        if pod["status"]["phase"] != phase {
            return Err(format!("{name}: {}", pod["status"]));
        }
    }
    Ok(())
}

#[test]
fn idle_node_makes_only_heartbeat_requests_even_with_unknown_fields_in_responses() {
    // Each pod is synced again every three seconds: the first sync reports the values its cgroup enforces, later ones nothing.
    let node = Node::on_containerd(json!({"serverTLSBootstrap": true, "syncFrequency": "3s"}));
    let mut cluster = Cluster::audited(node, &["--unknown-fields"]);
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    cluster.node.apply("static", &static_pod());
    cluster.kubectl.create(&pods());
    cluster.node.eventually("the pods have settled", |_| has_settled(&cluster));

    let (mut known_count, mut since) = (0, Instant::now());
    cluster.node.eventually("the node makes no requests", |_| {
        let made = requests(&cluster);
        if made.len() != known_count {
            (known_count, since) = (made.len(), Instant::now());
        }
        if since.elapsed() >= stretched(SETTLED) {
            Ok(())
        } else {
            Err(made[made.len().saturating_sub(5)..].join("\n"))
        }
    });

    let began = Instant::now();
    while began.elapsed() < WINDOW {
        std::thread::sleep(Duration::from_millis(500));
        let made = requests(&cluster).split_off(known_count);
        let (heartbeats, others): (Vec<_>, Vec<_>) =
            made.into_iter().partition(|line| line.starts_with("\"patch\" \"/api/v1/nodes/node/status"));
        assert!(others.is_empty(), "after {:?}:\n{}", began.elapsed(), others.join("\n"));
        // One every five minutes, plus or minus half, while nothing of the node changes.
        assert!(heartbeats.len() <= 1, "after {:?}:\n{}", began.elapsed(), heartbeats.join("\n"));
    }
}
