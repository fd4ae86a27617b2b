//! `kubectl top` and the API that it reads (`metrics.k8s.io`), through a running localapi to a fake kubelet.

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::kubelet::{Kubelet, Summary};
use crate::server::{Kubectl, Server, eventually};
use crate::streams::{create_node, create_pod, dead_port, requests};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const ASKED: &str = "GET /stats/summary?only_cpu_and_memory=true";

/// A server of the node `n` with the fake kubelet, and the pods `web` and `db` on it, of which `web` is measured.
struct SingleNode {
    server: Server,
    kubelet: Kubelet,
}

async fn single_node() -> SingleNode {
    let server = Server::start(&["--bind-to=n", "--token=secret:joe"]);
    let (_, lines) = mpsc::channel(1);
    let kubelet = Kubelet::start(&server.file("ca.crt"), lines).await;
    create_node(&server, "n", kubelet.address.port());
    create_pod(&server, "web", "n", &["main", "side"]);
    create_pod(&server, "db", "n", &["main"]);
    let kubectl = server.admin();
    for name in ["web", "db"] {
        kubectl.ok(&["label", "pod", name, &format!("app={name}")]);
    }
    kubelet.answer_summary(Summary::Document(summary(&uid(&kubectl, "web"))));
    SingleNode { server, kubelet }
}

fn uid(kubectl: &Kubectl, pod: &str) -> String {
    kubectl.ok(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"])
}

fn summary(uid: &str) -> String {
    let usage = |nanocores: u64, mebibytes: u64| {
        json!({
            "startTime": "2026-01-01T00:00:00Z",
            "cpu": {"time": "2026-01-01T00:01:00Z", "usageNanoCores": nanocores},
            "memory": {"time": "2026-01-01T00:01:00Z", "workingSetBytes": mebibytes << 20},
        })
    };
    let named = |field: &str, name: &str, mut usage: Value| {
        usage[field] = json!(name);
        usage
    };
    let pod = json!({
        "podRef": {"name": "web", "namespace": "default", "uid": uid},
        "containers": [named("name", "main", usage(12_500_000, 20)), named("name", "side", usage(7_000_000, 3))],
    });
    json!({"node": named("nodeName", "n", usage(250_000_000, 900)), "pods": [pod]}).to_string()
}

/// The words of a table, line by line.
fn lines(table: &str) -> Vec<String> {
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn get(kubectl: &Kubectl, path: &str) -> Value {
    serde_json::from_str(&kubectl.ok(&["get", "--raw", &format!("{METRICS}{path}")])).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_top_shows_the_usage_that_the_kubelet_measures() {
    let single = single_node().await;
    let kubectl = single.server.admin();
    let top = |arguments: &[&str]| lines(&kubectl.ok(&[&["top"], arguments].concat()));
    let of_pod = ["NAME CPU(cores) MEMORY(bytes)", "web 20m 23Mi"];
    let allocatable = json!({"status": {"allocatable": {"cpu": "2", "memory": "1800Mi"}}}).to_string();
    kubectl.ok(&["patch", "node", "n", "--subresource=status", "-p", &allocatable]);
    let columns = "NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)";
    assert_eq!(top(&["node"]), [columns, "n 250m 12% 900Mi 50%"]);
    assert_eq!(top(&["pod"]), of_pod);
    assert_eq!(top(&["pod", "web"]), of_pod);
    assert_eq!(top(&["pod", "-l", "app=web"]), of_pod);
    assert_eq!(top(&["pod", "--field-selector", "metadata.name=web"]), of_pod);
    assert_eq!(
        top(&["pod", "-A", "--containers"]),
        [
            "NAMESPACE POD NAME CPU(cores) MEMORY(bytes)",
            "default web main 13m 20Mi",
            "default web side 7m 3Mi",
        ]
    );
    let unmeasured = kubectl.refused(&["top", "pod", "db"], "");
    assert_eq!(
        unmeasured,
        "Error from server (NotFound): podmetrics.metrics.k8s.io \"default/db\" not found\n"
    );
    let none = kubectl.refused(&["top", "pod", "-l", "app=db"], "");
    assert_eq!(none, "error: metrics not available yet\n");
    assert_eq!(
        lines(&kubectl.ok(&["get", "podmetrics"])),
        ["NAME CPU MEMORY WINDOW", "web 19500u 23Mi 1m0s"]
    );
    let listed = kubectl.ok(&["api-resources", "--api-group=metrics.k8s.io"]);
    let expected = [
        "NAME SHORTNAMES APIVERSION NAMESPACED KIND",
        "nodes metrics.k8s.io/v1beta1 false NodeMetrics",
        "pods metrics.k8s.io/v1beta1 true PodMetrics",
    ];
    assert_eq!(lines(&listed), expected);
    assert!(kubectl.ok(&["explain", "podmetrics.containers"]).contains("usage\t<map[string]string>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn measurements_have_the_form_of_metrics_server_and_are_never_stored() {
    let single = single_node().await;
    let kubectl = single.server.admin();
    let mut pod = get(&kubectl, "/namespaces/default/pods/web");
    let created = pod["metadata"]["creationTimestamp"].take();
    assert!(created.as_str().is_some_and(|time| time.ends_with('Z')), "{created}");
    let expected = json!({
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "web", "namespace": "default", "creationTimestamp": null, "labels": {"app": "web"}},
        "timestamp": "2026-01-01T00:01:00Z",
        "window": "1m0s",
        "containers": [
            {"name": "main", "usage": {"cpu": "12500u", "memory": "20Mi"}},
            {"name": "side", "usage": {"cpu": "7m", "memory": "3Mi"}},
        ],
    });
    assert_eq!(pod, expected);
    let nodes = get(&kubectl, "/nodes");
    assert_eq!((&nodes["kind"], &nodes["metadata"]), (&json!("NodeMetricsList"), &json!({})));
    assert_eq!(nodes["items"][0]["usage"], json!({"cpu": "250m", "memory": "900Mi"}));
    assert_eq!((nodes["items"][0].get("kind"), nodes["items"].as_array().map(Vec::len)), (None, Some(1)));
    assert_eq!(get(&kubectl, "/pods?labelSelector=app%21%3Dweb")["items"], json!([]));
    assert_eq!(get(&kubectl, "/namespaces/kube-system/pods")["items"], json!([]));
    for (path, expected) in [
        ("/namespaces/default/pods/none", "pods \"none\" not found"),
        ("/nodes/none", "node \"none\" not found"),
        (
            "/nodes?fieldSelector=spec.unschedulable%3Dtrue",
            "\"spec.unschedulable\" is not a known field selector",
        ),
        ("/pods?watch=true", "watch is not supported on resources of kind \"pods.metrics.k8s.io\""),
        ("/namespaces/default/pods/web/log", "could not find the requested resource"),
    ] {
        let refused = kubectl.refused(&["get", "--raw", &format!("{METRICS}{path}")], "");
        assert!(refused.contains(expected), "{path}: {refused}");
    }
    for arguments in [&["delete", "podmetrics", "web"][..], &["label", "podmetrics", "web", "a=b"]] {
        let refused = kubectl.refused(arguments, "");
        assert!(refused.contains("(MethodNotAllowed)"), "{arguments:?}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_poll_cost_the_kubelet_one_question_a_second() {
    let single = single_node().await;
    let client = single.server.client("admin.kubeconfig").await;
    single.kubelet.take_requests();
    let started = std::time::Instant::now();
    let pods = || {
        client
            .request_text(http::Request::get(format!("{METRICS}/pods")).body(Vec::new()).expect("a request"))
    };
    let all = futures_util::future::join_all((0..20).map(|_| pods())).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let asked = single.kubelet.take_requests();
    assert_eq!(asked[0], requests(ASKED)[0]);
    assert!(asked.len() as u64 <= 1 + started.elapsed().as_secs(), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_that_does_not_answer_is_named() {
    let single = single_node().await;
    let kubectl = single.server.admin();
    let refused = |expected: &str| {
        eventually(expected, || {
            let refused = kubectl.run(&["top", "node"], "");
            let error = String::from_utf8_lossy(&refused.stderr).into_owned();
            error.contains(expected).then_some(error)
        })
    };
    let port = single.kubelet.address.port();
    single.kubelet.answer_summary(Summary::Refused);
    let error = refused("403 Forbidden: Forbidden (verb=get)");
    let expected = format!(
        "Error from server (ServiceUnavailable): failed to read the usage of node \"n\" from its kubelet: Get \"https://127.0.0.1:{port}/stats/summary?only_cpu_and_memory=true\": "
    );
    assert!(error.starts_with(&expected), "{error}");
    single.kubelet.answer_summary(Summary::Document("{\"node\": 1}".to_owned()));
    refused("unknown answer: invalid type: integer `1`");
    single.kubelet.answer_summary(Summary::Document(" ".repeat(17 << 20)));
    refused("more than 16777216 bytes");
    single.kubelet.answer_summary(Summary::Silence);
    refused("no answer within 10 s");
    let patch =
        json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": dead_port()}}}}).to_string();
    kubectl.ok(&["patch", "node", "n", "--subresource=status", "-p", &patch]);
    refused(": dial tcp 127.0.0.1:");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_who_may_view_may_read_measurements() {
    let single = single_node().await;
    let (admin, joe) = (single.server.admin(), single.server.with_token("secret"));
    let refused = joe.refused(&["top", "pod"], "");
    let expected = "Error from server (Forbidden): pods.metrics.k8s.io is forbidden: User \"joe\" cannot list resource \"pods\" in API group \"metrics.k8s.io\" in the namespace \"default\"";
    assert!(refused.starts_with(expected), "{refused}");
    admin.ok(&["create", "rolebinding", "joe-views", "--clusterrole=view", "--user=joe"]);
    assert_eq!(lines(&joe.ok(&["top", "pod"])).last().map(String::as_str), Some("web 20m 23Mi"));
    assert!(joe.refused(&["top", "node"], "").contains("nodes.metrics.k8s.io is forbidden"));
    let role =
        admin.ok(&["get", "clusterrole", "system:aggregated-metrics-reader", "-o", "jsonpath={.rules}"]);
    let expected =
        r#"[{"apiGroups":["metrics.k8s.io"],"resources":["pods","nodes"],"verbs":["get","list","watch"]}]"#;
    assert_eq!(role, expected);
}

#[test]
fn server_without_a_kubelet_to_ask_measures_nothing() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    assert_eq!(kubectl.refused(&["top", "node"], ""), "error: Metrics API not available\n");
    assert!(!kubectl.ok(&["get", "clusterroles", "-o", "name"]).contains("metrics-reader"));
    assert!(!kubectl.ok(&["get", "--raw", "/openapi/v3"]).contains("metrics.k8s.io"));
}
