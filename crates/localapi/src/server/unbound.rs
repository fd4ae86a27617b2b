//! Why pods have no node, yet: for `kubelet why`, because the kubelet does not know them. Pure.

use model::explain::{Cause, PodExplanation, PodExplanations, Verdict};
use serde_json::Value;

use crate::object::{self, items, text};
use crate::store::{Key, Objects};
use crate::taints;

const OF_CLAIMS: &str = "The pod starts by itself once the devices are free or exist; kubectl get resourceclaims,resourceslices,deviceclasses shows what there is.";
const OF_THE_NODE: &str = "The pod starts by itself after kubectl uncordon of the node, or without the taint that the pod does not tolerate; kubectl describe node shows both.";

/// The pods that are shown.
const MAX_PODS: usize = 1000;

pub(super) fn explanations(node: &str, objects: &Objects) -> PodExplanations {
    let node = objects.get(&Key::new("nodes", "", node)).map(|node| &**node);
    let unbound = objects.of("pods", None).filter(|(_, pod)| {
        text(pod, "/spec/nodeName").is_empty()
            && !["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
    });
    let pods = unbound.take(MAX_PODS).map(|(_, pod)| explanation(pod, node)).collect();
    PodExplanations { pods, manifest_problems: Vec::new() }
}

fn explanation(pod: &Value, node: Option<&Value>) -> PodExplanation {
    let condition =
        items(pod, "/status/conditions").iter().find(|condition| text(condition, "/type") == "PodScheduled");
    let gates: Vec<&str> =
        items(pod, "/spec/schedulingGates").iter().map(|gate| text(gate, "/name")).collect();
    let (summary, cause) = match (gates.as_slice(), condition) {
        ([], Some(condition)) => {
            let (summary, advice) = match node.and_then(|node| taints::refusal(node, pod)) {
                Some(_) => ("It waits until this node takes new pods.", OF_THE_NODE),
                None => ("It waits for its claims of devices.", OF_CLAIMS),
            };
            let cause = Cause {
                reason: text(condition, "/reason").to_owned(),
                what: "The pod is not bound to this node.".to_owned(),
                error: text(condition, "/message").to_owned(),
                advice: vec![advice.to_owned()],
                ..Cause::default()
            };
            (summary, cause)
        }
        ([], None) => (
            "It is being bound to this node.",
            Cause {
                reason: "Pending".to_owned(),
                what: "The pod is not bound to this node, yet.".to_owned(),
                ..Cause::default()
            },
        ),
        (gates, _) => (
            "It waits until its scheduling gates are removed.",
            Cause {
                reason: "SchedulingGated".to_owned(),
                what: format!("The pod has the scheduling gates {}.", gates.join(", ")),
                ..Cause::default()
            },
        ),
    };
    let since = condition.map_or_else(
        || text(pod, "/metadata/creationTimestamp"),
        |condition| text(condition, "/lastTransitionTime"),
    );
    PodExplanation {
        namespace: object::namespace(pod).to_owned(),
        name: object::name(pod).to_owned(),
        uid: object::uid(pod).to_owned(),
        source: "api".to_owned(),
        verdict: Verdict::Waiting,
        summary: summary.to_owned(),
        since: since.parse().ok(),
        causes: vec![cause],
        ..PodExplanation::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_without_a_node_says_what_its_condition_says() {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "a", "uid": "u"},
            "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available: none", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        let explained = explanation(&pod, Some(&json!({"spec": {}})));
        assert_eq!(explained.summary, "It waits for its claims of devices.");
        assert_eq!(explained.verdict, Verdict::Waiting);
        assert_eq!(explained.causes[0].error, "0/1 nodes are available: none");
        assert_eq!(explained.since.map(|since| since.to_string()).as_deref(), Some("2026-01-01T00:00:00Z"));
        let cordoned = json!({"spec": {"unschedulable": true}});
        let explained = explanation(&pod, Some(&cordoned));
        assert_eq!(explained.summary, "It waits until this node takes new pods.");
        pod["spec"] = json!({"schedulingGates": [{"name": "example.com/later"}]});
        assert_eq!(
            explanation(&pod, None).causes[0].what,
            "The pod has the scheduling gates example.com/later."
        );
    }
}
