//! The values of the Go kubelet's tables of pod conditions (`status/generate_test.go`, 1.36). A container of ours always has a
//! status, so that those cases are left out that are about a list of statuses that is missing or empty.

use model::k8s::{ContainerStatus, Pod, PodCondition};
use serde_json::{Value, json};

use super::super::ContainerStatuses;
use super::{Finding, containers_ready, initialized, ready};
use crate::pods::status::Phase;

/// `a b x:i y:s gate=g`: regular containers, an init container, a sidecar, a readiness gate.
fn pod(text: &str) -> Pod {
    let (mut init, mut regular, mut gates) = (Vec::new(), Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        match (word.strip_prefix("gate="), word.split_once(':')) {
            (Some(gate), _) => gates.push(json!({"conditionType": gate})),
            (None, Some((name, "i"))) => init.push(json!({"name": name})),
            (None, Some((name, _))) => init.push(json!({"name": name, "restartPolicy": "Always"})),
            (None, None) => regular.push(json!({"name": word})),
        }
    }
    let spec = json!({"initContainers": init, "containers": regular, "readinessGates": gates});
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

/// `a+ b-`: ready or not; `a=started`, `a=pending`; `a=running`, `a=terminated`, `a=waiting`.
fn statuses(pod: &Pod, text: &str) -> ContainerStatuses {
    let mut all = ContainerStatuses::default();
    for word in text.split_whitespace() {
        let (name, fields): (&str, Value) = match word.split_once('=') {
            Some((name, "started")) => (name, json!({"started": true})),
            Some((name, "pending")) => (name, json!({"started": false})),
            Some((name, state)) => (name, json!({"state": {state: {"exitCode": 0}}})),
            None => (&word[..word.len() - 1], json!({"ready": word.ends_with('+')})),
        };
        let mut whole = json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0});
        for (field, value) in fields.as_object().unwrap() {
            whole[field] = value.clone();
        }
        let status: ContainerStatus = serde_json::from_value(whole).unwrap();
        let mut inits = pod.spec.as_ref().unwrap().init_containers.iter().flatten();
        let is_init = inits.any(|c| c.name == name);
        if is_init { &mut all.init } else { &mut all.regular }.push(status);
    }
    all
}

fn shown(finding: &Finding) -> String {
    let sign = if finding.is_met { "+" } else { "-" };
    format!("{sign} {} {}", finding.reason, finding.message).trim_end().to_owned()
}

#[test]
fn containers_ready_condition_table() {
    for (spec, containers, phase, expected) in [
        ("1234 5678", "1234+ 5678+", Phase::Running, "+"),
        ("1234 5678", "1234+", Phase::Running, "- ContainersNotReady containers with unknown status: [5678]"),
        (
            "1234 5678",
            "1234+ 5678-",
            Phase::Running,
            "- ContainersNotReady containers with unready status: [5678]",
        ),
        ("1234", "1234-", Phase::Succeeded, "- PodCompleted"),
        ("r1:s a", "a+", Phase::Running, "- ContainersNotReady containers with unknown status: [r1]"),
        ("r1:s r2:s a", "r1+ r2+ a+", Phase::Running, "+"),
        (
            "r1:s r2:s a",
            "r1+ a+",
            Phase::Running,
            "- ContainersNotReady containers with unknown status: [r2]",
        ),
        (
            "r1:s r2:s a",
            "r1+ r2- a+",
            Phase::Running,
            "- ContainersNotReady containers with unready status: [r2]",
        ),
    ] {
        let pod = pod(spec);
        let found = containers_ready(&pod, &statuses(&pod, containers), phase);
        assert_eq!(shown(&found), expected, "{spec} | {containers}");
    }
}

#[test]
fn pod_ready_condition_with_readiness_gates_table() {
    let missing = |gate: &str| {
        format!(
            "- ReadinessGatesNotReady corresponding condition of pod readiness gate {gate:?} does not exist."
        )
    };
    let shut = |gate: &str| {
        format!(
            "- ReadinessGatesNotReady the status of pod readiness gate {gate:?} is not \"True\", but False"
        )
    };
    let unready = "- ContainersNotReady containers with unready status: [a]".to_owned();
    for (spec, containers, conditions, expected) in [
        ("a", "a+", "", "+".to_owned()),
        ("a gate=gate1", "a+", "", missing("gate1")),
        ("a gate=gate1", "a+", "gate1=False", shut("gate1")),
        ("a gate=gate1", "a+", "gate1=True", "+".to_owned()),
        ("a gate=gate1 gate=gate2", "a+", "gate1=True", missing("gate2")),
        ("a gate=gate1 gate=gate2", "a+", "gate1=True gate2=False", shut("gate2")),
        ("a gate=gate1 gate=gate2", "a+", "gate1=True gate2=True", "+".to_owned()),
        ("a gate=gate1", "a-", "gate1=True", unready),
    ] {
        let pod = pod(spec);
        let conditions: Vec<PodCondition> = conditions
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap())
            .map(|(kind, status)| PodCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                ..PodCondition::default()
            })
            .collect();
        let containers_ready = containers_ready(&pod, &statuses(&pod, containers), Phase::Running);
        assert_eq!(shown(&ready(&pod, &conditions, &containers_ready)), expected, "{spec} | {containers}");
    }
}

#[test]
fn pod_initialized_condition_table() {
    let unmet = "- ContainersNotInitialized";
    for (spec, containers, phase, expected) in [
        ("regular", "", Phase::Running, "+"),
        ("1:i regular", "", Phase::Running, unmet),
        ("1:i 2:i regular", "1+ 2+", Phase::Running, "+"),
        ("1:i 2:i regular", "1+", Phase::Running, unmet),
        ("1:i 2:i regular", "1+ 2-", Phase::Running, unmet),
        ("1:i regular", "1+", Phase::Succeeded, "+ PodCompleted"),
        ("1:s regular", "1=pending", Phase::Pending, unmet),
        ("1:s regular", "1=started", Phase::Running, "+"),
        ("1:s regular", "1=pending regular=running", Phase::Running, "+"),
        ("1:i regular", "1=waiting regular=terminated", Phase::Running, "+"),
    ] {
        let pod = pod(spec);
        let found = initialized(&pod, &statuses(&pod, containers), phase);
        let shown = shown(&Finding { message: String::new(), ..found });
        assert_eq!(shown, expected, "{spec} | {containers}");
    }
}
