//! `--single-node`: kubectl on a machine without a control plane.

mod attachments;
mod commands;
mod resource_claims;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use crate::book::shell::{Client, Shell};
use crate::book::{provide_image, run_pages};
use crate::cluster::kubectl::Kubectl;
use crate::node::{FOREVER, Node, condition, free_port, restarts, shell_pod, signal, uid};
use crate::processes::children_of;
use crate::runtime_faults::container_id;
use crate::why::ask;

/// `open` in base64, as the Secret has it.
const OPEN: &str = "b3Blbg==";

/// A node that serves its API, and an unmodified kubectl with the kubeconfig that it wrote.
struct SingleNode {
    node: Node,
    kubectl: Kubectl,
    port: u16,
}

impl SingleNode {
    fn start() -> Self {
        let mut node = Node::on_containerd(json!({
            // As in the Debian package.
            "address": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
        }));
        let (kubeconfig, port) = (Shell::path(&node, "etc/kubernetes/admin.conf"), free_port());
        std::fs::create_dir_all(kubeconfig.parent().expect("a directory")).expect("a directory");
        let flags = [
            "--single-node".to_owned(),
            format!("--single-node-port={port}"),
            format!("--admin-kubeconfig={}", kubeconfig.display()),
            "--admin-kubeconfig-group=adm".to_owned(),
            format!("--single-node-key={}", Shell::path(&node, "etc/kubernetes/single-node.key").display()),
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

    /// Runs `kubelet single-node` with this file; returns what it prints.
    fn command(&self, command: &str, file: &Path) -> String {
        let output = self.try_command(command, file);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn try_command(&self, command: &str, file: &Path) -> Output {
        let file = file.display().to_string();
        ask(&self.node, &["single-node", command, &file])
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
    let kubeconfig = std::fs::metadata(&single.kubectl.kubeconfig).expect("the kubeconfig");
    let group = std::fs::read_to_string("/etc/group").expect("the groups");
    let group =
        group.lines().find_map(|line| line.strip_prefix("adm:")?.split(':').nth(1)).expect("the group adm");
    assert_eq!((kubeconfig.mode() & 0o777, kubeconfig.gid().to_string()), (0o640, group.to_owned()));
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
fn damaged_database_is_named_and_pods_run_on_until_a_backup_is_restored() {
    let mut single = SingleNode::start();
    let before = single.run_web();
    let uid = uid(&before);
    let backup = single.node.path("backup.jsonl");
    let written = single.command("backup", &backup);
    assert!(written.contains(" objects are in "), "{written}");
    assert!(!std::fs::read_to_string(&backup).expect("a backup").contains(OPEN), "Secrets are encrypted");
    single.node.kill_kubelet();
    std::fs::write(single.database(), "").expect("a damaged database");
    single.node.spawn_kubelet();
    single.node.wait_for_log(
        "objects.redb is damaged: it is empty. Bring a backup back with kubelet single-node restore",
    );
    single.node.eventually("the node works without its API", |node| {
        if node.kubelet_age() > Duration::from_secs(20) {
            node.get("/pods").map(|_| ())
        } else {
            Err("early".to_owned())
        }
    });
    assert_eq!(single.node.running_containers(&uid), 1);
    assert!(single.command("restore", &backup).starts_with("restored "));
    let after = single.running("web");
    assert_eq!((container_id(&after), restarts(&after, "main")), (container_id(&before), 0));
}

#[test]
fn restore_returns_to_the_objects_of_a_backup_while_pods_run_on() {
    let single = SingleNode::start();
    let before = single.run_web();
    let backup = single.node.path("backup.jsonl");
    single.command("backup", &backup);
    single.kubectl.ok(&["delete", "configmap", "settings"]);
    single.kubectl.ok(&["create", "configmap", "later", "--from-literal=a=b"]);
    assert!(single.command("restore", &backup).starts_with("restored "));
    single.node.eventually("the objects are those of the backup", |_| {
        single.kubectl.get("configmap", "settings")?;
        single.kubectl.get("configmap", "later").map_or(Ok(()), |_| Err("the later one exists".to_owned()))
    });
    let after = single.running("web");
    assert_eq!((container_id(&after), restarts(&after, "main")), (container_id(&before), 0));
    // A file that is no backup changes nothing.
    let other = single.node.path("other");
    std::fs::write(&other, "kind: Pod\n").expect("a file");
    let refused = single.try_command("restore", &other);
    assert!(!refused.status.success() && single.kubectl.get("configmap", "settings").is_ok());
}

#[test]
fn claim_of_a_pod_is_a_directory_that_outlives_the_pod_and_goes_with_the_claim() {
    let single = SingleNode::start();
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    });
    let pod = |name: &str, script: &str| {
        let mut pod = shell_pod(name, &format!("{script}; {FOREVER}"));
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        pod
    };
    single.kubectl.apply(&[claim, pod("writer", "echo kept >/data/word")]);
    single.running("writer");
    let volume =
        single.kubectl.get("persistentvolumeclaim", "data").expect("the claim")["spec"]["volumeName"].clone();
    let volume = volume.as_str().expect("it is bound").to_owned();
    let directory = single.node.path("root/single-node/volumes").join(&volume);
    single.node.eventually("the pod has written", |_| {
        std::fs::read_to_string(directory.join("word")).map_err(|error| error.to_string())
    });
    single.kubectl.ok(&["delete", "pod", "writer", "--grace-period=1"]);
    single.kubectl.apply(&[pod("reader", "cat /data/word")]);
    single.running("reader");
    single.node.eventually("another pod reads it", |_| {
        let log = single.kubectl.ok(&["logs", "reader"]);
        if log == "kept\n" { Ok(()) } else { Err(log) }
    });
    single.kubectl.ok(&["delete", "persistentvolumeclaim", "data", "--wait=false"]);
    assert!(single.kubectl.get("persistentvolumeclaim", "data").is_ok(), "a pod uses it");
    single.kubectl.ok(&["delete", "pod", "reader", "--grace-period=1"]);
    single.node.eventually("claim, volume and directory are gone", |_| {
        match (single.kubectl.get("persistentvolume", &volume), directory.exists()) {
            (Err(_), false) => Ok(()),
            (volume, exists) => Err(format!("{volume:?}, directory {exists}")),
        }
    });
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
