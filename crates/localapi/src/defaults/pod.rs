//! Defaults of pods, and what the admission plugins of every cluster add to them.

use model::QosClass;
use model::k8s::Pod;
use serde_json::{Value, json};

use super::image::pull_policy;
use super::tree::{child, flag, items, section, set, set_absent, text};
use super::{Tree, probe, requests, volume};

/// The annotation of a mirror pod, which gets no service account.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The toleration of nodes that are not ready or not reachable, in seconds.
const EVICTION_SECONDS: i32 = 300;

pub(super) fn apply(pod: &mut Tree) {
    let is_mirror = pod.get("metadata").and_then(|meta| meta.get("annotations")?.get(MIRROR)).is_some();
    let Some(spec) = section(pod, "spec") else { return };
    spec_defaults(spec);
    if !is_mirror {
        service_account(spec);
    }
    priority(spec);
    tolerations(spec);
    if let Some(status) = section(pod, "status") {
        set(status, "phase", "Pending");
    }
    // The QoS class is immutable: `set` keeps the class of an existing pod.
    let class = qos_class(pod.get("spec"));
    if let (Some(class), Some(status)) = (class, section(pod, "status")) {
        set(status, "qosClass", class.as_str());
    }
}

/// The class of a pod with this spec; `None` if the spec does not decode. Without metadata: managed fields may be valid here and still
/// not decode.
pub(crate) fn qos_class(spec: Option<&Value>) -> Option<QosClass> {
    let pod = serde_json::from_value::<Pod>(json!({"spec": spec})).ok()?;
    Some(QosClass::of(&pod))
}

fn spec_defaults(spec: &mut Tree) {
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    set(spec, "schedulerName", "default-scheduler");
    set_absent(spec, "securityContext", json!({}));
    set_absent(spec, "terminationGracePeriodSeconds", 30);
    set_absent(spec, "enableServiceLinks", true);
    let host_network = flag(spec, "hostNetwork");
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            container_defaults(container);
            for port in items(container, "ports") {
                set(port, "protocol", "TCP");
                if host_network && let Some(number) = port.get("containerPort").cloned() {
                    set(port, "hostPort", number);
                }
            }
            if let Some(resources) = section(container, "resources") {
                requests::from_limits(resources);
            }
        }
    }
    for container in items(spec, "ephemeralContainers") {
        container_defaults(container);
        set_absent(container, "resources", json!({}));
    }
    items(spec, "volumes").for_each(volume::apply);
    requests::of_pod(spec);
}

fn container_defaults(container: &mut Tree) {
    let policy = pull_policy(text(container, "image"));
    set(container, "imagePullPolicy", policy);
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    for variable in items(container, "env") {
        if let Some(source) = child(variable, "valueFrom") {
            volume::reference(source);
        }
    }
    probe::apply(container);
}

/// The ServiceAccount admission plugin. `serviceAccount` is the deprecated name of the field.
fn service_account(spec: &mut Tree) {
    let older = text(spec, "serviceAccount").to_owned();
    set(spec, "serviceAccountName", if older.is_empty() { "default" } else { &older });
    let name = text(spec, "serviceAccountName").to_owned();
    set(spec, "serviceAccount", name);
}

/// The Priority admission plugin, with the built-in priority classes. An unknown class sets no priority.
fn priority(spec: &mut Tree) {
    let number = match text(spec, "priorityClassName") {
        "" => 0,
        "system-cluster-critical" => 2_000_000_000,
        "system-node-critical" => 2_000_001_000,
        _ => return,
    };
    set_absent(spec, "priority", number);
    set(spec, "preemptionPolicy", "PreemptLowerPriority");
}

/// The DefaultTolerationSeconds admission plugin.
fn tolerations(spec: &mut Tree) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = items(spec, "tolerations").any(|toleration| {
            ["", key].contains(&text(toleration, "key"))
                && ["", "NoExecute"].contains(&text(toleration, "effect"))
        });
        if tolerated {
            continue;
        }
        set_absent(spec, "tolerations", json!([]));
        if let Some(list) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            list.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": EVICTION_SECONDS,
            }));
        }
    }
}
