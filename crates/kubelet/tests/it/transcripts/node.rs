//! The node itself: restarts, a second kubelet, certificates.

use serde_json::json;

use super::Page;
use crate::cluster::bootstrap::node_with_bootstrap;
use crate::cluster::certificate_rotation::pending_request;
use crate::node::{FOREVER, Node, once_pod, shell_pod};
use crate::service::start_second;

#[test]
fn restart_of_the_kubelet_leaves_pods_ready() {
    let mut node = Node::start();
    let mut web = shell_pod("web", FOREVER);
    web["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["true"]}, "periodSeconds": 600, "initialDelaySeconds": 1});
    node.apply("web", &web);
    node.running("web");
    node.pod_when("web", "is ready", |pod| crate::node::condition(pod, "Ready") == "True");
    node.apply("job", &once_pod("job", "exit 0"));
    node.pod_when("job", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
    node.restart_kubelet();
    Page::new(
        &node,
        "kubelet-restarted",
        "The kubelet was restarted",
        "The probe of the pod would run again only after ten minutes; the pod stays ready meanwhile. There is no API server: the \
         node answers by itself.",
    )
    .says(&["why", "web"], 0, &["The pod runs and is ready."])
    .says(&["why", "job"], 0, &["The pod has finished its work."])
    .says(&["get", "pods"], 0, &["web-node", "1/1", "Completed"])
    .says(&["why", "node"], 0, &["The node is ready"])
    .end();
}

#[test]
fn second_kubelet_of_a_node_is_refused_with_the_process_of_the_first() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    let (code, errors) = start_second(&node, &node.path("root"));
    let pid = format!("process {}", node.kubelet_pid());
    assert!(errors.contains(&pid), "{errors}");
    Page::new(
        &node,
        "second-kubelet",
        "A second kubelet is started on a node",
        "A service was enabled next to the kubelet that runs already. Two of them would stop each other's pods.",
    )
    .shows(
        "kubelet --config /etc/kubernetes/kubelet.yaml",
        &errors.replace(&pid, "process 4711"),
        code.unwrap_or(-1),
        &["is used by another kubelet"],
    )
    .says(&["why", "web"], 0, &["The pod runs and is ready."])
    .end();
}

#[test]
fn certificate_that_has_ended_is_named_with_what_renews_it() {
    let mut cluster = node_with_bootstrap(
        &["--approve-by-hand", "--certificate-lifetime-seconds=20"],
        json!({"rotateCertificates": true}),
    );
    cluster.node.spawn_kubelet();
    let first = cluster.node.eventually("the node requests a certificate", |_| pending_request(&cluster));
    cluster.kubectl.ok(&["certificate", "approve", &first]);
    cluster.wait_until_ready();
    Page::new(
        &cluster.node,
        "certificate-expired",
        "The certificate of the kubelet has ended",
        "The request to renew it was not approved in time. The node requests another one by itself; nothing has to be restarted.",
    )
    .says(&["why", "node"], 4, &["The client certificate ended", "kubectl get csr"])
    .end();
}
