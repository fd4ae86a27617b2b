//! Pods that the API refuses or completes because of other objects, or of what they were before.

use serde_json::{Value, json};

use crate::server::{Kubectl, Server};

fn pod(name: &str, spec: Value) -> String {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "busybox"}]);
    pod.to_string()
}

fn stored(admin: &Kubectl, name: &str) -> Value {
    serde_json::from_str(&admin.ok(&["get", "pod", name, "-o", "json"])).expect("a pod")
}

#[test]
fn pod_of_an_unknown_runtime_class_is_refused_until_the_class_exists() {
    let server = Server::start(&[]);
    let admin = server.admin();
    let pod = pod("sandboxed", json!({"runtimeClassName": "kata"}));
    let refused = admin.refused(&["create", "-f", "-"], &pod);
    assert!(refused.contains("pod rejected: RuntimeClass \"kata\" not found"), "{refused}");
    let class = r#"{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}"#;
    admin.feed(&["create", "-f", "-"], class);
    admin.feed(&["create", "-f", "-"], &pod);
}

#[test]
fn negative_termination_grace_period_is_one_second() {
    let server = Server::start(&[]);
    let admin = server.admin();
    admin.feed(&["create", "-f", "-"], &pod("hasty", json!({"terminationGracePeriodSeconds": -1})));
    assert_eq!(stored(&admin, "hasty")["spec"]["terminationGracePeriodSeconds"], 1);
}

#[test]
fn resize_that_changes_the_quality_of_service_class_is_refused() {
    let server = Server::start(&[]);
    let admin = server.admin();
    admin.feed(&["create", "-f", "-"], &pod("p", json!({})));
    let resize = |resources: Value| {
        json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}).to_string()
    };
    let patch = |patch: &str| admin.run(&["patch", "pod", "p", "--subresource=resize", "-p", patch], "");
    let refused = patch(&resize(json!({"requests": {"cpu": "10m"}})));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("Pod QOS Class may not change as a result of resizing"), "{text}");
    assert!(patch(&resize(json!({}))).status.success());
}

#[test]
fn ephemeral_container_gets_the_defaults_of_a_container() {
    let server = Server::start(&[]);
    let admin = server.admin();
    admin.feed(&["create", "-f", "-"], &pod("p", json!({})));
    let path = "/api/v1/namespaces/default/pods/p/ephemeralcontainers";
    let mut changed = stored(&admin, "p");
    changed["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "busybox"}]);
    admin.feed(&["replace", "--raw", path, "-f", "-"], &changed.to_string());
    let container = stored(&admin, "p")["spec"]["ephemeralContainers"][0].clone();
    for (field, value) in [
        ("imagePullPolicy", "Always"),
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
    ] {
        assert_eq!(container[field], value, "{field}");
    }
    // The same request again changes nothing, although it has no defaults.
    changed["metadata"]["resourceVersion"] = Value::Null;
    admin.feed(&["replace", "--raw", path, "-f", "-"], &changed.to_string());
}

#[test]
fn node_of_an_administrator_is_tainted_until_it_is_ready() {
    let server = Server::start(&["--node=own"]);
    let admin = server.admin();
    let node =
        |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string();
    admin.feed(&["create", "-f", "-"], &node("bare"));
    server.kubectl("own.kubeconfig").feed(&["create", "-f", "-"], &node("own"));
    let taints = |name: &str| admin.ok(&["get", "node", name, "-o", "jsonpath={.spec.taints[*].key}"]);
    assert_eq!((taints("bare").as_str(), taints("own").as_str()), ("node.kubernetes.io/not-ready", ""));
    let ready = r#"{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}"#;
    admin.ok(&["patch", "node", "bare", "--subresource=status", "-p", ready]);
    assert_eq!(taints("bare"), "");
}
