//! The node itself: restarts.

use serde_json::json;

use super::Page;
use crate::node::{FOREVER, Node, once_pod, shell_pod};

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
