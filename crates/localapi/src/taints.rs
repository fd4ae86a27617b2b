//! Taints: what keeps new pods from a node, and claims from a device, unless they tolerate it. Pure.

use serde_json::{Value, json};

use crate::object::{items, text};

/// The key of the taint that a cordoned node has for the tolerations of pods.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The first taint that keeps out what has these tolerations.
pub(crate) fn untolerated<'a>(taints: &'a [Value], tolerations: &[Value]) -> Option<&'a Value> {
    let keeps_out = |taint: &&Value| ["NoSchedule", "NoExecute"].contains(&text(taint, "/effect"));
    taints
        .iter()
        .filter(keeps_out)
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let is_or_any = |field: &str| {
        let given = text(toleration, field);
        given.is_empty() || given == text(taint, field)
    };
    let has_value = match text(toleration, "/operator") {
        "Exists" => true,
        "" | "Equal" => {
            !text(toleration, "/key").is_empty() && text(toleration, "/value") == text(taint, "/value")
        }
        _ => false,
    };
    is_or_any("/key") && is_or_any("/effect") && has_value
}

/// Why a node takes no new pod like this one, as a scheduler says it; `None` if it takes it.
pub(crate) fn refusal(node: &Value, pod: &Value) -> Option<String> {
    let tolerations = items(pod, "/spec/tolerations");
    let is_cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or_default();
    let cordon = [json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"})];
    if is_cordoned && untolerated(&cordon, tolerations).is_some() {
        return Some("1 node(s) were unschedulable".to_owned());
    }
    let taint = untolerated(items(node, "/spec/taints"), tolerations)?;
    let (key, value) = (text(taint, "/key"), text(taint, "/value"));
    Some(format!("1 node(s) had untolerated taint {{{key}: {value}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_takes_new_pods_unless_it_is_cordoned_or_has_a_taint_that_they_do_not_tolerate() {
        let unschedulable = "1 node(s) were unschedulable";
        let tainted = "1 node(s) had untolerated taint {a: b}";
        let taints = |effect: &str| json!({"taints": [{"key": "a", "value": "b", "effect": effect}]});
        let cordoned = || json!({"unschedulable": true});
        let cases = [
            (json!({}), json!([]), None),
            (json!({"unschedulable": false}), json!([]), None),
            (cordoned(), json!([]), Some(unschedulable)),
            (cordoned(), json!([{"key": UNSCHEDULABLE, "operator": "Exists"}]), None),
            (cordoned(), json!([{"operator": "Exists"}]), None),
            (cordoned(), json!([{"key": "a", "operator": "Exists"}]), Some(unschedulable)),
            (taints("NoSchedule"), json!([]), Some(tainted)),
            (taints("NoExecute"), json!([]), Some(tainted)),
            (taints("PreferNoSchedule"), json!([]), None),
            (taints("NoSchedule"), json!([{"key": "a", "value": "b"}]), None),
            (taints("NoSchedule"), json!([{"key": "a", "operator": "Equal", "value": "b"}]), None),
            (taints("NoSchedule"), json!([{"key": "a", "value": "c"}]), Some(tainted)),
            (taints("NoSchedule"), json!([{"key": "a", "operator": "Exists"}]), None),
            (taints("NoSchedule"), json!([{"key": "a", "operator": "Gt", "value": "b"}]), Some(tainted)),
            (taints("NoExecute"), json!([{"operator": "Exists", "effect": "NoSchedule"}]), Some(tainted)),
            (taints("NoExecute"), json!([{"operator": "Exists", "effect": "NoExecute"}]), None),
        ];
        for (node, tolerations, expected) in cases {
            let pod = json!({"spec": {"tolerations": tolerations}});
            let refused = refusal(&json!({"spec": node}), &pod);
            assert_eq!(refused.as_deref(), expected, "{node} {tolerations}");
        }
    }
}
