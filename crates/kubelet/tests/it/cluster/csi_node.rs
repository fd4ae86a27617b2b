//! The CSINode that a member of a cluster creates before it is ready.

use serde_json::{Value, json};

use super::Cluster;
use crate::node::Node;

/// What the Go kubelet sent.
const RECORDED: &str = include_str!("../../../../localapi/tests/recorded/calls.jsonl");

/// The requests that created a CSINode; the name and the UID of their node are replaced.
fn creations(calls: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let is_creation =
        |call: &Value| call["verb"] == "create" && call["uri"].to_string().contains("/csinodes");
    let created = calls.into_iter().filter(is_creation).map(|mut call| {
        let request = &mut call["request"];
        request["metadata"]["name"] = json!("NODE");
        request["metadata"]["ownerReferences"][0]["name"] = json!("NODE");
        request["metadata"]["ownerReferences"][0]["uid"] = json!("UID");
        // The protobuf form of the recorded request has no empty list.
        if request["spec"]["drivers"].is_null() {
            request["spec"]["drivers"] = json!([]);
        }
        request.take()
    });
    created.collect()
}

#[test]
fn csi_node_is_created_as_the_go_kubelet_creates_it_and_kept_over_restarts() {
    let mut cluster = Cluster::audited(Node::on_containerd(json!({})), &["--no-service-accounts"]);
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    let recorded = RECORDED.lines().map(|line| serde_json::from_str(line).expect("a call"));
    let expected = creations(recorded);
    assert_eq!(expected.len(), 1);
    assert_eq!(creations(cluster.audit_log()), expected);
    let first = cluster.kubectl.get("csinode", "node").expect("the CSINode");
    let owner = &first["metadata"]["ownerReferences"][0];
    let node = cluster.kubectl.get("node", "node").expect("the node");
    assert_eq!(owner["uid"], node["metadata"]["uid"]);

    cluster.node.restart_kubelet();
    cluster.node.eventually("the kubelet has read the CSINode again", |_| {
        let calls = cluster.audit_log();
        let is_read = |call: &Value| {
            call["verb"] == "get" && call["uri"].to_string().contains("/csinodes/node") && call["code"] == 200
        };
        if calls.iter().any(is_read) { Ok(()) } else { Err(format!("{calls:?}")) }
    });
    assert_eq!(cluster.kubectl.get("csinode", "node").expect("the CSINode"), first, "nothing was written");

    // A CSINode that belonged to an earlier Node of this name.
    cluster.node.kill_kubelet();
    cluster.kubectl.ok(&["delete", "csinode", "node"]);
    let mut old = first.clone();
    old["metadata"]["ownerReferences"][0]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    old["metadata"]["resourceVersion"] = Value::Null;
    cluster.kubectl.run_with_input(&["create", "-f", "-"], &old.to_string());
    cluster.node.start_kubelet();
    cluster.node.eventually("the CSINode belongs to this Node", |_| {
        let now = cluster.kubectl.get("csinode", "node")?;
        let owner = &now["metadata"]["ownerReferences"][0]["uid"];
        if *owner == node["metadata"]["uid"] { Ok(()) } else { Err(now["metadata"].to_string()) }
    });
}
