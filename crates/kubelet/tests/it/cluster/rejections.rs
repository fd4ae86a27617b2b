//! Pods that the node rejects, as kubectl shows them: phase Failed, with reason and message; and pods that are preempted by a
//! critical one.

use model::Amount;
use model::k8s::Quantity;
use serde_json::{Value, json};

use crate::node::{FOREVER, condition, container, free_port, shell_pod, uid};
use crate::unkillable::{FrozenDisk, writing_to};
use harness::SmallDisk;

use super::{Cluster, bound};

/// The allocatable amount of a resource, in units; of `cpu` in thousandths.
pub(crate) fn allocatable(cluster: &Cluster, resource: &str) -> i64 {
    let node = cluster.kubectl.get("node", "node").expect("the node");
    let quantity = node["status"]["allocatable"][resource].as_str().expect("a quantity").to_owned();
    let amount = Amount::of(&Quantity(quantity)).expect("an amount");
    if resource == "cpu" { amount.milli() } else { amount.units() }
}

/// A pod that keeps running, with further fields of its spec.
fn with(name: &str, more: Value) -> Value {
    let mut pod = bound(shell_pod(name, FOREVER));
    for (field, value) in more.as_object().expect("fields") {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// A pod with further fields of its container.
pub(crate) fn requesting(name: &str, more: Value) -> Value {
    let mut pod = with(name, json!({"tolerations": [{"operator": "Exists"}]}));
    for (field, value) in more.as_object().expect("fields") {
        pod["spec"]["containers"][0][field] = value.clone();
    }
    pod
}

pub(crate) fn requests(resource: &str, amount: &str) -> Value {
    json!({"resources": {"requests": {resource: amount}}})
}

/// Creates the pod and waits until it is rejected with exactly this reason and message, in its status and in an event.
#[track_caller]
fn wait_until_rejected(cluster: &Cluster, pod: &Value, reason: &str, message: &str) {
    let name = pod["metadata"]["name"].as_str().expect("a name");
    cluster.kubectl.apply(std::slice::from_ref(pod));
    let pod = cluster.pod_when(name, "has failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(pod["status"]["reason"], reason, "{}", pod["status"]);
    assert_eq!(pod["status"]["message"], format!("Pod was rejected: {message}"));
    let table = cluster.kubectl.ok(&["get", "pod", name, "--no-headers"]);
    assert_eq!(table.split_whitespace().nth(2), Some(reason), "{table}");
    cluster.node.eventually("the error is returned", |_| {
        let events = cluster.events("Pod", name);
        if events == [format!("{reason}: {message}")] { Ok(()) } else { Err(format!("{events:?}")) }
    });
    assert_eq!(cluster.node.runtime_ids(&uid(&pod)), Ok(Vec::new()), "nothing of it was ever created");
}

#[test]
fn pod_that_does_not_match_the_node_is_rejected_with_a_reason() {
    // It has this from the start, so that no pod is earlier.
    let cluster = Cluster::start_with(json!({"registerWithTaints": [
        {"key": "maintenance", "value": "now", "effect": "NoExecute"}, {"key": "full", "effect": "NoSchedule"},
    ]}));
    cluster.wait_until_ready();
    let port = json!({"ports": [{"containerPort": 80, "hostPort": free_port()}]});
    let tolerant =
        json!([{"key": "maintenance", "operator": "Equal", "value": "now", "effect": "NoExecute"}]);
    let mut first = requesting("first", port.clone());
    first["spec"]["tolerations"] = tolerant.clone();
    cluster.kubectl.apply(&[first]);
    let first = cluster.running("first");

    let ports = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    wait_until_rejected(&cluster, &requesting("ports", port.clone()), "NodePorts", ports);
    let taints = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    wait_until_rejected(&cluster, &with("taints", json!({})), "TaintToleration", taints);
    let other = json!([{"key": "maintenance", "operator": "Equal", "value": "later", "effect": "NoExecute"}]);
    wait_until_rejected(&cluster, &with("later", json!({"tolerations": other})), "TaintToleration", taints);
    let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    let selector = json!({"tolerations": tolerant, "nodeSelector": {"disk": "ssd"}});
    wait_until_rejected(&cluster, &with("selector", selector), "NodeAffinity", affinity);
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let affine = json!({"tolerations": tolerant, "affinity": {"nodeAffinity": required}});
    wait_until_rejected(&cluster, &with("affine", affine), "NodeAffinity", affinity);
    let os = "Failed to admit pod as the OS field doesn't match node OS";
    wait_until_rejected(&cluster, &with("os", json!({"os": {"name": "windows"}})), "PodOSNotSupported", os);
    let os = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
    let mut labelled = with("label", json!({}));
    labelled["metadata"]["labels"]["kubernetes.io/os"] = "windows".into();
    wait_until_rejected(&cluster, &labelled, "PodOSSelectorNodeLabelDoesNotMatch", os);
    let windows = json!({"tolerations": tolerant, "nodeSelector": {"kubernetes.io/os": "windows"}});
    wait_until_rejected(&cluster, &with("windows", windows), "NodeAffinity", affinity);

    // A rejected pod holds nothing, and what a removed pod releases is free again.
    cluster.kubectl.ok(&["delete", "pod", "first"]);
    cluster.wait_until_gone(&first);
    cluster.kubectl.apply(&[requesting("next", port)]);
    cluster.running("next");
    cluster.kubectl.ok(&["delete", "pod", "ports"]);
    cluster.kubectl.ok(&["wait", "--for=delete", "pod/ports", "--timeout=120s"]);
}

#[test]
fn pod_with_excess_requests_is_rejected_with_the_available_amounts() {
    let cluster = Cluster::start_with(json!({"maxPods": 2}));
    cluster.wait_until_ready();
    let (cpu, memory) = (allocatable(&cluster, "cpu"), allocatable(&cluster, "memory"));
    cluster.kubectl.apply(&[requesting("first", requests("cpu", "300m"))]);
    cluster.running("first");
    let short = |resource: &str, requested: i64, used: i64, capacity: i64| {
        format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    };
    let wanted = cpu - 299;
    let pod = requesting("cpu", requests("cpu", &format!("{wanted}m")));
    wait_until_rejected(&cluster, &pod, "OutOfcpu", &short("cpu", wanted, 300, cpu));
    let pod = requesting("memory", requests("memory", &(memory + 1).to_string()));
    wait_until_rejected(&cluster, &pod, "OutOfmemory", &short("memory", memory + 1, 0, memory));
    let huge = json!({"resources": {"limits": {"cpu": "1m", "hugepages-32Mi": "64Mi"}}});
    let message = short("hugepages-32Mi", 64 << 20, 0, 0);
    wait_until_rejected(&cluster, &requesting("huge", huge), "OutOfhugepages-32Mi", &message);
    // A request of exactly the rest is admitted.
    let pod = requesting("rest", requests("cpu", &format!("{}m", cpu - 300)));
    cluster.kubectl.apply(&[pod]);
    cluster.running("rest");
    wait_until_rejected(&cluster, &requesting("third", json!({})), "OutOfpods", &short("pods", 1, 2, 2));
}

#[test]
fn critical_pod_preempts_other_pods_and_kubectl_shows_it() {
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let cpu = allocatable(&cluster, "cpu");
    let share = |percent: i64| requests("cpu", &format!("{}m", cpu * percent / 100));
    cluster.kubectl.apply(&[requesting("small", share(20)), requesting("large", share(60))]);
    let (small, large) = (cluster.running("small"), cluster.running("large"));
    let mut critical = requesting("critical", share(50));
    critical["spec"]["priorityClassName"] = "system-node-critical".into();
    cluster.kubectl.apply(&[critical]);
    cluster.running("critical");

    let large = cluster
        .pod_when("large", "has failed", |pod| pod["status"]["phase"] == "Failed" && uid(pod) == uid(&large));
    let message = "Preempted in order to admit critical pod";
    assert_eq!(large["status"]["reason"], "Preempting", "{}", large["status"]);
    assert_eq!(large["status"]["message"], message);
    assert_eq!(condition(&large, "DisruptionTarget"), "True");
    assert!(container(&large, "main")["state"]["terminated"].is_object(), "{}", large["status"]);
    cluster.node.eventually("it is reported", |_| {
        let events = cluster.events("Pod", "large");
        let is_reported = events.contains(&format!("Preempting: {message}"));
        if is_reported { Ok(()) } else { Err(format!("{events:?}")) }
    });
    let metrics = cluster.node.get("/metrics").expect("metrics");
    assert!(metrics.contains("kubelet_preemptions{preemption_signal=\"cpu\"} 1\n"), "{metrics}");
    let after = cluster.running("small");
    assert_eq!(container(&after, "main")["containerID"], container(&small, "main")["containerID"]);
    // A pod for which preemption cannot free enough is rejected, critical or not.
    let mut huge = requesting("huge", share(1000));
    huge["spec"]["priorityClassName"] = "system-node-critical".into();
    cluster.kubectl.apply(&[huge]);
    let huge = cluster.pod_when("huge", "has failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(huge["status"]["reason"], "UnexpectedAdmissionError", "{}", huge["status"]);
    cluster.running("small");
    cluster.running("critical");
}

/// `preemption.go`: it goes on after one and a half times the grace period, or ten seconds.
#[test]
fn critical_static_pod_starts_although_the_pod_that_it_preempts_cannot_be_killed() {
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let disk = SmallDisk::new(16, 100);
    let cpu = allocatable(&cluster, "cpu");
    let share = |percent: i64| requests("cpu", &format!("{}m", cpu * percent / 100));
    cluster.kubectl.apply(&[writing_to(&disk, requesting("victim", share(60)))]);
    let victim = cluster.running("victim");
    let frozen = FrozenDisk::new(&disk);
    cluster.node.apply("critical", &requesting("critical", share(50)));
    cluster.running("critical-node");
    assert_eq!(cluster.node.running_containers(&uid(&victim)), 1, "it has not ended");
    let timed_out = "PreemptionTimedOut: preempted pod default/victim did not end within 10s, starting without waiting for it";
    let exceeded =
        "ExceededGracePeriod: Container runtime did not kill the pod within specified grace period.";
    for (name, event) in [("critical-node", timed_out), ("victim", exceeded)] {
        cluster.node.eventually("it is reported", |_| {
            let events = cluster.events("Pod", name);
            if events.iter().any(|text| text == event) { Ok(()) } else { Err(format!("{events:?}")) }
        });
    }
    drop(frozen);
    cluster.pod_when("victim", "has failed", |pod| pod["status"]["reason"] == "Preempting");
    cluster.running("critical-node");
}
