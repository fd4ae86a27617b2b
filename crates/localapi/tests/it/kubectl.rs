//! Common kubectl commands.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::server::Server;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: busybox, command: [sleep, "100"], ports: [{containerPort: 80}]}
"#;

#[test]
fn pod_is_created_listed_described_and_deleted() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    assert_eq!(kubectl.feed(&["create", "-f", "-"], POD), "pod/web created\n");
    assert!(kubectl.refused(&["create", "-f", "-"], POD).contains("\"web\" already exists"));
    let table = kubectl.ok(&["get", "pods"]);
    let words: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(words[..5], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(words[5..9], ["web", "0/1", "Pending", "0"]);
    assert!(kubectl.ok(&["get", "pods", "-o", "wide"]).contains("NOMINATED NODE"));
    let described = kubectl.ok(&["describe", "pod", "web"]);
    for part in ["Image:      busybox", "QoS Class:", "BestEffort", "kube-api-access-", "not-ready:NoExecute"]
    {
        assert!(described.contains(part), "{part} is missing in {described}");
    }
    let deleted = kubectl.ok(&["delete", "pod", "web"]);
    // kubectl 1.33 and later name the namespace, too.
    assert!(deleted.starts_with("pod \"web\" deleted"), "{deleted}");
    assert!(kubectl.refused(&["get", "pod", "web"], "").contains("NotFound"));
}

#[test]
fn apply_is_idempotent_and_patches_changed_fields() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    let map = |value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{a: '{value}', b: kept}}\n")
    };
    assert_eq!(kubectl.feed(&["apply", "-f", "-"], &map("1")), "configmap/m created\n");
    let version = ["get", "configmap", "m", "-o", "jsonpath={.metadata.resourceVersion}"];
    let before = kubectl.ok(&version);
    assert_eq!(kubectl.feed(&["apply", "-f", "-"], &map("1")), "configmap/m unchanged\n");
    assert_eq!(kubectl.ok(&version), before);
    assert_eq!(kubectl.feed(&["apply", "-f", "-"], &map("2")), "configmap/m configured\n");
    assert_eq!(kubectl.ok(&["get", "configmap", "m", "-o", "jsonpath={.data.a} {.data.b}"]), "2 kept");
}

#[test]
fn json_merge_and_strategic_patches_are_applied() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    kubectl.feed(&["create", "-f", "-"], POD);
    let patch = |kind: &str, patch: &str| kubectl.ok(&["patch", "pod", "web", "--type", kind, "-p", patch]);
    patch("json", r#"[{"op": "add", "path": "/metadata/labels/one", "value": "1"}]"#);
    patch("merge", r#"{"metadata": {"labels": {"two": "2", "app": null}}}"#);
    // Containers are merged by name, so the command stays.
    patch("strategic", r#"{"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}"#);
    let shown = "jsonpath={.metadata.labels} {.spec.containers[*].image} {.spec.containers[0].command[0]} {.metadata.generation}";
    let shown = kubectl.ok(&["get", "pod", "web", "-o", shown]);
    assert_eq!(shown, r#"{"one":"1","two":"2"} busybox:2 sleep 2"#);
    let refused = kubectl.refused(
        &[
            "patch",
            "pod",
            "web",
            "--type",
            "json",
            "-p",
            r#"[{"op": "test", "path": "/spec/nodeName", "value": "x"}]"#,
        ],
        "",
    );
    assert!(refused.contains("\"web\" is invalid"), "{refused}");
}

#[test]
fn objects_are_selected_by_labels_and_fields() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    kubectl.feed(&["create", "-f", "-"], POD);
    kubectl.feed(&["create", "-f", "-"], &POD.replace("web", "other"));
    kubectl.ok(&["label", "pod", "web", "tier=front"]);
    kubectl.ok(&["annotate", "pod", "web", "note=hello"]);
    let names = |selector: &[&str]| kubectl.ok(&[&["get", "pods", "-o", "name"], selector].concat());
    assert_eq!(names(&["-l", "tier in (front,back)"]), "pod/web\n");
    assert_eq!(names(&["-l", "tier!=front"]), "pod/other\n");
    assert_eq!(names(&["--field-selector", "metadata.name=other"]), "pod/other\n");
    let note = kubectl.ok(&["get", "pod", "web", "-o", "jsonpath={.metadata.annotations.note}"]);
    assert_eq!(note, "hello");
    assert!(
        kubectl.refused(&["get", "pods", "--field-selector", "spec.colour=red"], "").contains("spec.colour")
    );
}

#[test]
fn watch_prints_each_change() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    kubectl.feed(&["create", "-f", "-"], POD);
    let mut watch = kubectl
        .command(&["get", "pods", "-w", "--output-watch-events", "--no-headers"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl watches");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut next = || {
        let line = lines.next().expect("another line").expect("text");
        line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(next(), "ADDED web");
    kubectl.ok(&["label", "pod", "web", "seen=yes"]);
    assert_eq!(next(), "MODIFIED web");
    kubectl.feed(&["create", "-f", "-"], &POD.replace("web", "other"));
    assert_eq!(next(), "ADDED other");
    kubectl.ok(&["delete", "pod", "web", "--wait=false"]);
    assert_eq!(next(), "DELETED web");
    watch.kill().expect("the watch can be ended");
    watch.wait().expect("the watch ends");
}

#[test]
fn namespace_deletion_deletes_its_content() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    kubectl.feed(&["create", "-f", "-"], namespace);
    kubectl.feed(&["create", "-n", "shop", "-f", "-"], POD);
    let bound = POD.replace("spec:", "spec:\n  nodeName: one").replace("web", "bound");
    kubectl.feed(&["create", "-n", "shop", "-f", "-"], &bound);
    kubectl.ok(&["delete", "namespace", "shop", "--wait=false"]);
    // A bound pod waits for its kubelet, and the namespace for the pod.
    assert_eq!(kubectl.ok(&["get", "namespace", "shop", "-o", "jsonpath={.status.phase}"]), "Terminating");
    assert_eq!(kubectl.ok(&["get", "-n", "shop", "pods,configmaps", "-o", "name"]), "pod/bound\n");
    assert!(
        kubectl.refused(&["create", "-n", "shop", "-f", "-"], POD).contains("because it is being terminated")
    );
    kubectl.ok(&["delete", "-n", "shop", "pod", "bound", "--force", "--grace-period=0"]);
    assert!(kubectl.refused(&["get", "namespace", "shop"], "").contains("NotFound"));
    assert!(kubectl.refused(&["delete", "namespace", "default"], "").contains("may not be deleted"));
}

#[test]
fn two_hundred_objects_are_created_listed_in_pages_and_deleted_as_a_collection() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    let all: String = (0..200)
        .map(|number| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m{number}, labels: {{all: 'yes'}}}}\n"))
        .collect();
    assert_eq!(kubectl.feed(&["create", "-f", "-"], &all).lines().count(), 200);
    let listed = kubectl.ok(&["get", "configmaps", "-l", "all=yes", "--chunk-size=30", "-o", "name"]);
    assert_eq!(listed.lines().count(), 200);
    kubectl.ok(&["delete", "configmaps", "-l", "all=yes"]);
    assert_eq!(kubectl.ok(&["get", "configmaps", "-l", "all=yes", "-o", "name"]), "");
}

#[test]
fn every_kind_can_be_listed() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    let resources = kubectl.ok(&["api-resources", "--verbs=list", "-o", "name"]);
    kubectl.ok(&["get", &resources.lines().collect::<Vec<_>>().join(","), "-A"]);
    assert!(resources.contains("leases.coordination.k8s.io"), "{resources}");
}

#[test]
fn kubectl_wait_ends_when_the_condition_is_met() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    kubectl.feed(&["create", "-f", "-"], POD);
    let waiting = kubectl
        .command(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl waits");
    let status = r#"{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}"#;
    // Old versions of kubectl cannot patch a status, so this replaces it by its raw path.
    let file = server.file("status.json");
    let mut pod: serde_json::Value =
        serde_json::from_str(&kubectl.ok(&["get", "pod", "web", "-o", "json"])).expect("a pod");
    pod["status"] = serde_json::from_str::<serde_json::Value>(status).expect("a status")["status"].clone();
    std::fs::write(&file, pod.to_string()).expect("a file");
    let path = "/api/v1/namespaces/default/pods/web/status";
    kubectl.ok(&["replace", "--raw", path, "-f", file.to_str().expect("a path")]);
    let output = waiting.wait_with_output().expect("kubectl ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "pod/web condition met\n");
}

#[test]
fn evictions_of_both_api_versions_delete_pods() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    for version in ["policy/v1", "policy/v1beta1"] {
        kubectl.feed(&["create", "-f", "-"], POD);
        let eviction =
            format!(r#"{{"apiVersion": "{version}", "kind": "Eviction", "metadata": {{"name": "web"}}}}"#);
        let path = "/api/v1/namespaces/default/pods/web/eviction";
        kubectl.feed(&["create", "--raw", path, "-f", "-"], &eviction);
        assert!(kubectl.refused(&["get", "pod", "web"], "").contains("NotFound"));
    }
}

#[test]
fn pod_is_replaced_and_node_is_cordoned_and_tainted() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    kubectl.feed(&["create", "-f", "-"], POD);
    let shown = kubectl.ok(&["get", "pod", "web", "-o", "json"]);
    kubectl.feed(&["replace", "-f", "-"], &shown.replace("\"busybox\"", "\"busybox:3\""));
    assert_eq!(kubectl.ok(&["get", "pod", "web", "-o", "jsonpath={.spec.containers[0].image}"]), "busybox:3");
    assert!(kubectl.refused(&["replace", "-f", "-"], &shown).contains("the object has been modified"));
    kubectl.feed(&["create", "-f", "-"], "apiVersion: v1\nkind: Node\nmetadata: {name: one}\n");
    kubectl.ok(&["cordon", "one"]);
    kubectl.ok(&["taint", "node", "one", "key=value:NoSchedule"]);
    let spec =
        kubectl.ok(&["get", "node", "one", "-o", "jsonpath={.spec.unschedulable} {.spec.taints[0].key}"]);
    assert_eq!(spec, "true key");
}

/// Newer versions of kubectl send these in protobuf, older ones in JSON.
#[test]
fn objects_that_kubectl_constructs_are_accepted() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    let exists = |what: &[&str], path: &str| kubectl.ok(&[&["get"], what, &["-o", path]].concat());
    kubectl.ok(&["create", "namespace", "shop"]);
    assert_eq!(exists(&["namespace", "shop"], "jsonpath={.status.phase}"), "Active");
    kubectl.ok(&["create", "configmap", "map", "--from-literal=a=b", "--from-literal=empty="]);
    assert_eq!(exists(&["configmap", "map"], "jsonpath={.data}"), r#"{"a":"b","empty":""}"#);
    kubectl.ok(&["create", "secret", "generic", "password", "--from-literal=a=b"]);
    assert_eq!(exists(&["secret", "password"], "jsonpath={.data.a} {.type}"), "Yg== Opaque");
    kubectl.ok(&["create", "serviceaccount", "robot", "-n", "shop"]);
    assert_eq!(exists(&["serviceaccount", "robot", "-n", "shop"], "name"), "serviceaccount/robot\n");
    assert_eq!(kubectl.ok(&["auth", "can-i", "delete", "pods"]), "yes\n");
}
