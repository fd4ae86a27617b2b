//! What the trail of a pod has after a restart of the kubelet, and on the main port.

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell_pod, uid};
use crate::why::{ask, says};

fn timeline(node: &Node, pod: &str) -> String {
    String::from_utf8_lossy(&ask(node, &["why", pod, "--timeline"]).stdout).into_owned()
}

#[test]
fn start_of_a_pod_is_known_from_the_runtime_after_a_restart_of_the_kubelet() {
    let mut node = Node::start();
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "initialDelaySeconds": 2});
    node.apply("web", &pod);
    let uid = uid(&node.running("web"));
    says(&node, "web", 0, &["is ready", "ReadinessProbeSucceeded [main]"]);
    assert!(timeline(&node, "web").contains("CreatingSandbox"));
    node.restart_kubelet();
    says(
        &node,
        "web",
        0,
        &[
            "is ready",
            "BeforeSandbox",
            "StartingContainer [main]",
            "Adopted",
            "~ is from before the kubelet started",
        ],
    );
    let text = timeline(&node, "web");
    for step in ["BeforeSandbox", "BeforeContainer [main]", "(from the runtime)", "in all"] {
        assert!(text.contains(step), "{step} is missing: {text}");
    }
    let document: Value =
        serde_json::from_slice(&ask(&node, &["why", "web", "-o", "json"]).stdout).expect("JSON");
    let trail = document["pods"][0]["trail"].as_array().expect("a trail").clone();
    assert_eq!((&trail[0]["reason"], &trail[0]["isRestored"]), (&json!("BeforeSandbox"), &json!(true)));
    let picture = crate::server::get(&node, &format!("/debug/pods/{uid}/start.svg")).expect("an answer");
    assert!(picture.body.starts_with("<svg") && picture.body.contains("Pale: before"), "{}", picture.body);
}
