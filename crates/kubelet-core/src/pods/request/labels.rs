//! Labels and annotations of sandboxes and containers. Each kubelet adopts the other's containers by them, so every key and
//! every value is written as the Go kubelet writes them (docs/behaviour/container-runtime.md).

use std::collections::BTreeMap;

use model::annotations as keys;
use model::containers::{ContainerRef, spec_of};
use model::k8s::{ContainerPort, Pod};
use serde::Serialize;

/// The pod's own labels, and its identity.
#[must_use]
pub fn sandbox_labels(pod: &Pod) -> BTreeMap<String, String> {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(identity(pod));
    labels
}

/// The pod's own annotations, without the one that only the kubelet's checkpoint needs.
#[must_use]
pub fn sandbox_annotations(pod: &Pod) -> BTreeMap<String, String> {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(keys::CONFIG_FILE);
    annotations
}

/// The identity of the pod and of the container.
#[must_use]
pub fn container_labels(pod: &Pod, container: &ContainerRef<'_>) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<_, _> = identity(pod).into_iter().collect();
    labels.insert(keys::CONTAINER_NAME_LABEL.to_owned(), container.name().to_owned());
    labels
}

fn identity(pod: &Pod) -> [(String, String); 3] {
    let who = model::PodRef::of(pod);
    [
        (keys::POD_NAME_LABEL.to_owned(), who.name.to_string()),
        (keys::POD_NAMESPACE_LABEL.to_owned(), who.namespace.to_string()),
        (keys::POD_UID_LABEL.to_owned(), who.uid.to_string()),
    ]
}

/// What a later kubelet needs to know about the container without its spec.
#[must_use]
pub fn container_annotations(
    pod: &Pod,
    container: &ContainerRef<'_>,
    hash: u32,
    restart_count: u32,
) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([
        (keys::CONTAINER_HASH.to_owned(), format!("{hash:x}")),
        (keys::CONTAINER_RESTART_COUNT.to_owned(), restart_count.to_string()),
        (
            keys::CONTAINER_TERMINATION_MESSAGE_PATH.to_owned(),
            container.termination_message_path().to_owned(),
        ),
        (
            keys::CONTAINER_TERMINATION_MESSAGE_POLICY.to_owned(),
            container.termination_message_policy().to_owned(),
        ),
    ]);
    if let Some(grace) = pod.metadata.deletion_grace_period_seconds {
        annotations.insert(keys::POD_DELETION_GRACE_PERIOD.to_owned(), grace.to_string());
    }
    if let Some(grace) = spec_of(pod).termination_grace_period_seconds {
        annotations.insert(keys::POD_TERMINATION_GRACE_PERIOD.to_owned(), grace.to_string());
    }
    let pre_stop = container.lifecycle().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    if let Some(json) = pre_stop.and_then(|handler| serde_json::to_string(handler).ok()) {
        annotations.insert(keys::CONTAINER_PRE_STOP_HANDLER.to_owned(), json);
    }
    if let Some(json) = ports_json(container.ports()) {
        annotations.insert(keys::CONTAINER_PORTS.to_owned(), json);
    }
    annotations
}

/// Field order and omitted fields are those of Go's encoder.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PortRecord<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    host_port: i32,
    container_port: i32,
    #[serde(skip_serializing_if = "str::is_empty")]
    protocol: &'a str,
    #[serde(rename = "hostIP", skip_serializing_if = "str::is_empty")]
    host_ip: &'a str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn ports_json(ports: &[ContainerPort]) -> Option<String> {
    if ports.is_empty() {
        return None;
    }
    let records: Vec<_> = ports
        .iter()
        .map(|port| PortRecord {
            name: port.name.as_deref().unwrap_or_default(),
            host_port: port.host_port.unwrap_or_default(),
            container_port: port.container_port,
            protocol: port.protocol.as_deref().unwrap_or_default(),
            host_ip: port.host_ip.as_deref().unwrap_or_default(),
        })
        .collect();
    serde_json::to_string(&records).ok()
}
