//! What `kubelet why` says of pods that run: why they restarted, and what is near a limit; and of the node: how near it is to its
//! thresholds of eviction.

use serde_json::json;

use crate::node::{FOREVER, Node, shell_pod};
use crate::why::{ask, says};

#[test]
fn running_pod_says_why_it_restarted_and_what_is_near_its_limit() {
    let node = Node::start();
    let mut crashed = shell_pod(
        "crashed",
        &format!("[ -e /data/ran ] || {{ touch /data/ran; sh -c 'kill -SEGV $$$$'; exit $?; }}; {FOREVER}"),
    );
    crashed["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    crashed["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    node.apply("crashed", &crashed);
    let mut unhealthy = shell_pod("unhealthy", FOREVER);
    unhealthy["spec"]["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 3});
    node.apply("unhealthy", &unhealthy);
    let mut full = shell_pod("full", &format!("dd if=/dev/zero of=/data/file bs=1M count=56; {FOREVER}"));
    full["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {"medium": "Memory"}}]);
    full["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    full["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}});
    node.apply("full", &full);

    says(
        &node,
        "crashed",
        0,
        &["restarted once, the last instance ended with Error, exit code 139 (SIGSEGV)"],
    );
    node.eventually("kubelet why names the probe that ended the container", |node| {
        let text = String::from_utf8_lossy(&ask(node, &["why", "unhealthy"]).stdout).into_owned();
        let in_one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = "Container main failed liveness probe, will be restarted";
        if in_one_line.contains("the last instance ended") && in_one_line.matches(wanted).count() > 1 {
            Ok(())
        } else {
            Err(text)
        }
    });
    node.eventually("kubelet why names the memory that is near its limit", |node| {
        // A sample, as a monitoring system takes it; kubelet why takes none.
        node.get("/metrics/resource")?;
        let text = String::from_utf8_lossy(&ask(node, &["why", "full"]).stdout).into_owned();
        let is_said = text.contains("Near a limit, as measured") && text.contains("memory of main: 5");
        if is_said && text.contains("MiB of 64.0 MiB") { Ok(()) } else { Err(text) }
    });
}

#[test]
fn node_says_how_near_it_is_to_each_threshold() {
    let node =
        Node::start_with(json!({"evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi"}}));
    says(
        &node,
        "node",
        0,
        &[
            "memory.available",
            "are available; pods are evicted below 1.0 MiB.",
            "nodefs.available",
            "nothing is wrong",
        ],
    );
    let output = ask(&node, &["why", "node", "-o", "json"]).stdout;
    let document: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    let names: Vec<&str> = document["signals"]
        .as_array()
        .expect("signals")
        .iter()
        .filter_map(|signal| signal["name"].as_str())
        .collect();
    assert!(names.contains(&"memory.available") && names.contains(&"nodefs.available"), "{names:?}");
}
