//! The taints of Nodes: that of one that is not ready, and when others were added. A real cluster taints each new Node, and its controllers remove the taint once the Node is ready. Here
//! a Node that its kubelet registers has none, because there is no scheduler that would need it.

use serde_json::{Value, json};

use super::Context;
use crate::object::{self, items, text};
use crate::taints;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const NO_SCHEDULE: &str = "NoSchedule";

fn is_not_ready(taint: &Value) -> bool {
    text(taint, "/key") == NOT_READY && text(taint, "/effect") == NO_SCHEDULE
}

/// Records when taints were added, for the controller of a single node that ends pods because of them.
pub(super) fn record_taints(context: &Context<'_>, node: &mut Value, old: Option<&Value>) {
    if context.api.behaviour.bind_to.is_some() {
        taints::record_times(node, old, context.api.now());
    }
}

/// Taints a Node without a kubelet.
pub(super) fn create(context: &Context<'_>, node: &mut Value) {
    record_taints(context, node, None);
    if context.user.node().is_some() || items(node, "/spec/taints").iter().any(is_not_ready) {
        return;
    }
    let taint = json!({"key": NOT_READY, "effect": NO_SCHEDULE});
    let taints = object::map_at(node, "spec").entry("taints").or_insert_with(|| json!([]));
    if taints.is_null() {
        *taints = json!([]);
    }
    // Validation refuses any other type.
    if let Some(taints) = taints.as_array_mut() {
        taints.push(taint);
    }
}

/// Removes the taint of a Node that is ready.
pub(super) fn update_status(node: &mut Value) {
    let is_ready =
        |condition: &Value| text(condition, "/type") == "Ready" && text(condition, "/status") == "True";
    if !items(node, "/status/conditions").iter().any(is_ready)
        || !items(node, "/spec/taints").iter().any(is_not_ready)
    {
        return;
    }
    let spec = object::map_at(node, "spec");
    let taints = spec.get("taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let rest = taints.into_iter().filter(|taint| !is_not_ready(taint)).collect();
    object::set_list(spec, "taints", rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_ready_taint_is_removed_from_a_ready_node_only() {
        let taints_after = |ready: &str, taints: Value| {
            let condition = json!({"type": "Ready", "status": ready});
            let mut node = json!({"spec": {"taints": taints}, "status": {"conditions": [condition]}});
            update_status(&mut node);
            node["spec"].get("taints").cloned()
        };
        let not_ready = json!({"key": NOT_READY, "effect": NO_SCHEDULE});
        let other = json!({"key": NOT_READY, "effect": "NoExecute"});
        assert_eq!(taints_after("True", json!([not_ready])), None);
        assert_eq!(taints_after("True", json!([other, not_ready])), Some(json!([other])));
        assert_eq!(taints_after("False", json!([not_ready])), Some(json!([not_ready])));
    }
}
