//! Which pods a node under pressure admits (docs/behaviour/admission.md): critical pods always; under memory pressure also
//! pods that are not BestEffort; under other pressure no others.

use std::borrow::Cow;

use base_core::pod_kind::is_critical_pod;
use config::Features;
use model::QosClass;
use model::containers::spec_of;
use model::k8s::{Pod, Taint};

use super::fit::tolerates;
use crate::rejection::Rejection;

/// The pressure conditions that eviction has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePressure {
    pub memory: bool,
    pub disk: bool,
    pub pids: bool,
}

const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// The rejection of a pod by a node under this pressure.
#[must_use]
pub fn refuse_under_pressure(pod: &Pod, pressure: NodePressure) -> Option<Rejection> {
    let NodePressure { memory, disk, pids } = pressure;
    let kinds = [(memory, "MemoryPressure"), (disk, "DiskPressure"), (pids, "PIDPressure")];
    let shown: Vec<&str> =
        kinds.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, name)| name).collect();
    if shown.is_empty() || is_critical_pod(pod) {
        return None;
    }
    let is_memory_alone = memory && !disk && !pids;
    if is_memory_alone && (QosClass::of(pod) != QosClass::BestEffort || tolerates_memory_pressure(pod)) {
        return None;
    }
    Some(Rejection {
        reason: Cow::Borrowed("Evicted"),
        message: format!("The node had condition: [{}]. ", shown.join(" ")),
    })
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let taint = Taint { key: MEMORY_TAINT.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    spec_of(pod)
        .tolerations
        .iter()
        .flatten()
        .any(|toleration| tolerates(toleration, &taint, Features::default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(shown: &str, pod: &Value, expected: &str) {
        let has = |kind: char| shown.contains(kind);
        let pressure = NodePressure { memory: has('m'), disk: has('d'), pids: has('p') };
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        let found = refuse_under_pressure(&pod, pressure).map(|r| format!("{}: {}", r.reason, r.message));
        assert_eq!(found.as_deref().unwrap_or("welcome"), expected, "{shown} {pod:?}");
    }

    #[test]
    fn node_under_memory_pressure_rejects_best_effort_pods() {
        let best_effort = json!({"spec": {"containers": [{"name": "a"}]}});
        let burstable =
            json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1m"}}}]}});
        let critical = json!({"spec": {"priority": 2_000_001_000, "containers": [{"name": "a"}]}});
        check("", &best_effort, "welcome");
        check("m", &best_effort, "Evicted: The node had condition: [MemoryPressure]. ");
        check("m", &burstable, "welcome");
        check("d", &burstable, "Evicted: The node had condition: [DiskPressure]. ");
        check("mp", &burstable, "Evicted: The node had condition: [MemoryPressure PIDPressure]. ");
        check("mdp", &critical, "welcome");
        let mut tolerant = best_effort;
        tolerant["spec"]["tolerations"] = json!([{"key": MEMORY_TAINT, "operator": "Exists"}]);
        check("m", &tolerant, "welcome");
        check("p", &tolerant, "Evicted: The node had condition: [PIDPressure]. ");
    }
}
