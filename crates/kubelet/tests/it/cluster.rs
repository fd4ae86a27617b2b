//! The built binary as a node of a cluster: `localapi` is the API server, in a process of its own, and an unmodified kubectl
//! creates the objects and reads them.

mod api_server;
pub(crate) mod kubectl;
mod watch;

mod block_devices;
mod book;
pub(crate) mod bootstrap;
mod busy_thread;
pub(crate) mod certificate_rotation;
mod change_over;
mod csi;
mod csi_node;
mod deletion;
mod device_plugins;
mod fibre_channel;
mod flex_volumes;
mod flood;
mod idle;
mod image_disk;
mod image_pull_secrets;
mod jobs;
mod kubelet_kills;
mod large_pods;
mod logs;
mod many_pods;
mod metrics;
mod mirror_pods;
mod node;
mod objects;
mod outages;
mod pod_certificates;
mod pods;
pub(crate) mod poisoned_objects;
mod pressure;
mod program_disk;
mod recorded_metrics;
pub(crate) mod rejections;
mod resize;
mod resource_claims;
mod restarts;
pub(crate) mod slow_links;
mod storage_limits;
mod streams;
mod upgrade;
pub(crate) mod volumes;

use fakes::FakeRuntime;
use serde_json::{Value, json};

use crate::node::{Node, condition, uid};
use api_server::ApiServer;
use kubectl::Kubectl;

/// The file of [`Cluster::audit_log`], in the directory of the API server.
const AUDIT_LOG: &str = "audit.jsonl";

/// A node, its API server, and a kubectl with all permissions. They are dropped in this order.
pub(crate) struct Cluster {
    pub(crate) node: Node,
    pub(crate) api: ApiServer,
    pub(crate) kubectl: Kubectl,
}

impl Cluster {
    /// A cluster of one node on a real containerd, with a running kubelet.
    pub(crate) fn start() -> Self {
        Self::start_with(json!({}))
    }

    /// The same, with further configuration fields of the kubelet.
    pub(crate) fn start_with(extra: Value) -> Self {
        let mut cluster = Self::with_node(Node::on_containerd(extra));
        cluster.node.start_kubelet();
        cluster
    }

    /// Uses a fake runtime, for more pods than a real one starts within a test.
    fn on_fake(runtime: &FakeRuntime) -> Self {
        let mut cluster = Self::with_node(Node::with_fake(runtime, json!({})));
        cluster.node.start_kubelet();
        cluster
    }

    /// Uses a real containerd and a main port that authenticates and authorizes clients through the API server, as a node of a
    /// real cluster does.
    fn with_authorization(extra: Value) -> Self {
        let mut cluster = Self::with_node(Node::on_containerd(json!({
            "address": "0.0.0.0",
            "authorization": {"mode": "Webhook"},
        })));
        cluster.node.configure(json!({"authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": cluster.api.file("ca.crt")},
        }}));
        cluster.node.configure(extra);
        cluster.node.start_kubelet();
        cluster
    }

    pub(crate) fn with_node(node: Node) -> Self {
        Self::with_api(node, &["--no-service-accounts"])
    }

    /// A node that the API server knows from the start; its kubelet is not started yet.
    fn with_api(mut node: Node, arguments: &[&str]) -> Self {
        let api = ApiServer::start(node.path("api"), &[&["--node", "node"], arguments].concat());
        let kubeconfig = api.file("node.kubeconfig");
        node.add_flags(&["--kubeconfig", kubeconfig.to_str().expect("a path")]);
        Self::of(node, api)
    }

    /// Like [`Self::with_api`], with the requests of the node recorded: see [`Self::audit_log`].
    fn audited(node: Node, arguments: &[&str]) -> Self {
        let log = node.path("api").join(AUDIT_LOG);
        let log = log.to_str().expect("a path");
        Self::with_api(node, &[&["--audit-log-path", log], arguments].concat())
    }

    /// Every request of the node that has been answered, and its response.
    fn audit_log(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.api.file(AUDIT_LOG)).expect("an audit log");
        // The API server may just be writing the last line.
        let complete = log.rfind('\n').map_or("", |end| &log[..end]);
        complete.lines().map(|line| serde_json::from_str(line).expect("a call")).collect()
    }

    fn of(node: Node, api: ApiServer) -> Self {
        let (kubeconfig, home) = (api.file("admin.kubeconfig"), node.path("home"));
        let kubectl = Kubectl { kubeconfig, home, ..Kubectl::default() };
        Self { node, api, kubectl }
    }

    /// Waits until the API shows that the node is ready.
    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        self.node.eventually("the node is ready", |_| {
            let node = self.kubectl.get("node", "node")?;
            if condition(&node, "Ready") == "True" { Ok(()) } else { Err(node["status"].to_string()) }
        });
    }

    /// Waits until the pod that kubectl returns passes the check.
    #[track_caller]
    pub(crate) fn pod_when(&self, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
        self.node.eventually(&format!("kubectl shows that pod {name} {what}"), |_| {
            let pod = self.kubectl.get("pod", name)?;
            if check(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
        })
    }

    #[track_caller]
    pub(crate) fn running(&self, name: &str) -> Value {
        self.pod_when(name, "is running and ready", |pod| {
            pod["status"]["phase"] == "Running" && condition(pod, "Ready") == "True"
        })
    }

    /// Waits until neither the API nor the node has any trace of the pod.
    #[track_caller]
    pub(crate) fn wait_until_gone(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        self.node.eventually(&format!("the API has no pod {name} of that UID"), |_| {
            match self.kubectl.get("pod", name) {
                Ok(other) if uid(&other) != uid(pod) => Ok(()),
                Ok(same) => Err(same["metadata"].to_string()),
                Err(complaint) if complaint.contains("NotFound") => Ok(()),
                Err(complaint) => Err(complaint),
            }
        });
        self.node.eventually("the node has no trace of the pod", |node| node.has_no_trace_of(&uid(pod)));
    }

    /// The events of an object as `reason: message`, ordered by first timestamp.
    pub(crate) fn events(&self, kind: &str, name: &str) -> Vec<String> {
        let mut events = self.kubectl.events(kind, name).expect("a list of events");
        events.sort_by_key(|event| event["firstTimestamp"].as_str().unwrap_or_default().to_owned());
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        events.iter().map(|event| format!("{}: {}", text(event, "reason"), text(event, "message"))).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- API server log\n{}", self.api.log());
        }
    }
}

/// The pod, bound to the node of these tests, because there is no scheduler.
pub(crate) fn bound(mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = "node".into();
    pod
}
