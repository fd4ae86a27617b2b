//! `--single-node`: kubectl on a machine without a control plane.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::book::shell::{Client, Shell};
use crate::book::{provide_image, run_pages};
use crate::cluster::kubectl::Kubectl;
use crate::node::{FOREVER, Node, condition, free_port, restarts, shell_pod, signal, uid};
use crate::processes::children_of;
use crate::runtime_faults::container_id;

/// A node that serves its API, and an unmodified kubectl with the kubeconfig that it wrote.
struct SingleNode {
    node: Node,
    kubectl: Kubectl,
    port: u16,
}

impl SingleNode {
    fn start() -> Self {
        let mut node = Node::on_containerd(json!({
            // The API server asks the kubelet at the address of the node.
            "address": "0.0.0.0",
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}},
            "authorization": {"mode": "Webhook"},
        }));
        let (kubeconfig, port) = (Shell::path(&node, "etc/kubernetes/admin.conf"), free_port());
        std::fs::create_dir_all(kubeconfig.parent().expect("a directory")).expect("a directory");
        let flags = [
            "--single-node".to_owned(),
            format!("--single-node-port={port}"),
            format!("--admin-kubeconfig={}", kubeconfig.display()),
        ];
        node.add_flags(&flags.each_ref().map(String::as_str));
        node.start_kubelet();
        let kubectl = Kubectl { kubeconfig, home: node.path("home"), ..Kubectl::default() };
        let single = Self { node, kubectl, port };
        single.node.eventually("the node is ready", |_| {
            let node = single.kubectl.get("node", "node")?;
            if condition(&node, "Ready") == "True" { Ok(()) } else { Err(node["status"].to_string()) }
        });
        single
    }

    fn running(&self, name: &str) -> Value {
        self.node.eventually(&format!("pod {name} is running and ready"), |_| {
            let pod = self.kubectl.get("pod", name)?;
            if condition(&pod, "Ready") == "True" { Ok(pod) } else { Err(pod["status"].to_string()) }
        })
    }

    /// Runs a pod that prints what it gets from a ConfigMap and a Secret; it is created without a node.
    fn run_web(&self) -> Value {
        let mut pod = shell_pod("web", &format!("echo $color $word; {FOREVER}"));
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "login"}}]);
        self.kubectl.apply(&[
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"color": "green"}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"word": "open"}}),
            pod,
        ]);
        self.running("web")
    }

    /// The process that serves the API.
    fn api_server(&self) -> Result<u32, String> {
        let children = children_of(self.node.kubelet_pid());
        let is_it = |pid: &&u32| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.contains("api-server"))
        };
        children.iter().find(is_it).copied().ok_or_else(|| format!("none in {children:?}"))
    }

    fn database(&self) -> PathBuf {
        self.node.path("root/single-node/objects.redb")
    }
}

#[test]
fn kubectl_creates_reads_and_deletes_on_a_single_node_and_kills_lose_nothing() {
    let mut single = SingleNode::start();
    let before = single.run_web();
    assert_eq!(before["spec"]["nodeName"], "node");
    single.node.eventually("kubectl logs shows what it got", |_| {
        let log = single.kubectl.ok(&["logs", "web"]);
        if log == "green open\n" { Ok(()) } else { Err(log) }
    });
    assert_eq!(single.kubectl.ok(&["exec", "web", "--", "echo", "from inside"]), "from inside\n");
    let nodes = single.kubectl.ok(&["get", "nodes", "--no-headers"]);
    assert!(nodes.starts_with("node ") && nodes.contains(" Ready "), "{nodes}");

    let killed = single.api_server().expect("the API server runs");
    signal(killed, "KILL");
    single.node.eventually("another process serves the API", |_| match single.api_server()? {
        pid if pid == killed => Err("the same one".to_owned()),
        _ => single.kubectl.get("pod", "web").map(|_| ()),
    });
    single.kubectl.ok(&["create", "configmap", "answered", "--from-literal=a=b"]);
    let last = single.api_server().expect("the API server runs");

    single.node.kill_kubelet();
    single.node.eventually("the API server ended with the kubelet", |_| {
        let state = std::fs::read_to_string(format!("/proc/{last}/cmdline")).unwrap_or_default();
        if state.contains("api-server") { Err(state) } else { Ok(()) }
    });
    single.node.start_kubelet();
    let after = single.running("web");
    assert_eq!((container_id(&after), restarts(&after, "main")), (container_id(&before), 0));
    let answered = single.kubectl.get("configmap", "answered").expect("what was answered is there");
    assert_eq!(answered["data"]["a"], "b");
    single.kubectl.ok(&["delete", "pod", "web"]);
    single.node.eventually("nothing is left of the pod", |node| node.has_no_trace_of(&uid(&after)));
}

#[test]
fn damaged_database_is_named_and_pods_run_on_until_it_is_replaced() {
    let mut single = SingleNode::start();
    let before = single.run_web();
    let uid = uid(&before);
    single.node.kill_kubelet();
    let backup = std::fs::read(single.database()).expect("the database");
    std::fs::write(single.database(), "").expect("a damaged database");
    single.node.spawn_kubelet();
    single.node.wait_for_log("objects.redb is damaged: it is empty. Put a backup in its place");
    single.node.eventually("the node works without its API", |node| {
        if node.kubelet_age() > Duration::from_secs(20) {
            node.get("/pods").map(|_| ())
        } else {
            Err("early".to_owned())
        }
    });
    assert_eq!(single.node.running_containers(&uid), 1);
    std::fs::write(single.database(), backup).expect("a backup");
    let after = single.running("web");
    assert_eq!((container_id(&after), restarts(&after, "main")), (container_id(&before), 0));
}

#[test]
fn every_command_for_a_single_node_runs_there() {
    let mut single = SingleNode::start();
    provide_image(&single.node);
    let kubeconfig = single.kubectl.kubeconfig.clone();
    let client = Client { kubectl: Kubectl::binary().into(), kubeconfig, port: single.port };
    let mut shell = Shell::of(&mut single.node, Some(client));
    let count = run_pages("single", &mut shell);
    assert!(count >= 5, "{count} blocks ran");
}
