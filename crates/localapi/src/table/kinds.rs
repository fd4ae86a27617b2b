//! The rows of resources with computed cells, except pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{View, age, text_of};

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";
/// The deprecated annotation for the storage class.
const CLASS_ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

pub(super) fn node(node: View<'_>) -> Vec<Value> {
    let ready = node.list("/status/conditions").iter().rfind(|c| text_of(c, "type") == "Ready");
    let mut status = match ready.map(|condition| text_of(condition, "status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.flag("/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind| {
        let found = node.list("/status/addresses").iter().find(|a| text_of(a, "type") == kind);
        Value::from(found.map_or(NONE, |address| text_of(address, "address")))
    };
    vec![
        node.name(),
        status.into(),
        roles(node).into(),
        node.age(),
        node.text("/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        node.text_or("/status/nodeInfo/osImage", UNKNOWN).into(),
        node.text_or("/status/nodeInfo/kernelVersion", UNKNOWN).into(),
        node.text_or("/status/nodeInfo/containerRuntimeVersion", UNKNOWN).into(),
    ]
}

fn roles(node: View<'_>) -> String {
    let labels = node.object.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    joined_or(roles, NONE)
}

pub(super) fn event(event: View<'_>) -> Vec<Value> {
    let first = match event.text("/firstTimestamp") {
        "" => event.since("/eventTime"),
        _ => event.since("/firstTimestamp"),
    };
    let has_series = event.object.get("series").is_some_and(Value::is_object);
    let last = match event.text("/lastTimestamp") {
        _ if has_series => event.since("/series/lastObservedTime"),
        "" => first.clone(),
        _ => event.since("/lastTimestamp"),
    };
    let number = |pointer| event.object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let count = if has_series { number("/series/count") } else { number("/count").max(1) };
    let kind = event.text("/involvedObject/kind").to_lowercase();
    let target = match event.text("/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = event.text_or("/source/component", event.text("/reportingComponent"));
    let source = match event.text_or("/source/host", event.text("/reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        last.into(),
        event.text("/type").into(),
        event.text("/reason").into(),
        target.into(),
        event.text("/involvedObject/fieldPath").into(),
        source.into(),
        event.text("/message").trim().into(),
        first.into(),
        count.into(),
        event.name(),
    ]
}

pub(super) fn service(service: View<'_>) -> Vec<Value> {
    let ports = service.list("/spec/ports").iter().map(|port| {
        let number = |field| port.get(field).and_then(Value::as_i64).unwrap_or_default();
        let protocol = text_of(port, "protocol");
        match number("nodePort") {
            ..=0 => format!("{}/{protocol}", number("port")),
            node_port => format!("{}:{node_port}/{protocol}", number("port")),
        }
    });
    let selector = service.object.pointer("/spec/selector").and_then(Value::as_object);
    let pairs: BTreeSet<String> = selector
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    vec![
        service.name(),
        service.text("/spec/type").into(),
        service.text_or("/spec/clusterIPs/0", NONE).into(),
        external_ip(service).into(),
        joined_or(ports, NONE).into(),
        service.age(),
        joined_or(pairs, NONE).into(),
    ]
}

fn external_ip(service: View<'_>) -> String {
    let fixed = service.list("/spec/externalIPs").iter().filter_map(Value::as_str);
    match service.text("/spec/type") {
        "ClusterIP" | "NodePort" => joined_or(fixed, NONE),
        "LoadBalancer" => {
            let given: BTreeSet<&str> = service
                .list("/status/loadBalancer/ingress")
                .iter()
                .map(|ingress| match text_of(ingress, "ip") {
                    "" => text_of(ingress, "hostname"),
                    ip => ip,
                })
                .filter(|address| !address.is_empty())
                .collect();
            joined_or(given.into_iter().chain(fixed), "<pending>")
        }
        "ExternalName" => service.text("/spec/externalName").to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

pub(super) fn persistent_volume(volume: View<'_>) -> Vec<Value> {
    let claim = match volume.object.pointer("/spec/claimRef") {
        Some(claim) => format!("{}/{}", text_of(claim, "namespace"), text_of(claim, "name")),
        None => String::new(),
    };
    vec![
        volume.name(),
        volume.text_or("/spec/capacity/storage", "0").into(),
        access_modes(volume.list("/spec/accessModes")).into(),
        volume.text("/spec/persistentVolumeReclaimPolicy").into(),
        phase(volume).into(),
        claim.into(),
        volume.text_or(CLASS_ANNOTATION, volume.text("/spec/storageClassName")).into(),
        volume.text_or("/spec/volumeAttributesClassName", UNSET).into(),
        volume.text("/status/reason").into(),
        volume.age(),
        volume.text_or("/spec/volumeMode", UNSET).into(),
    ]
}

pub(super) fn persistent_volume_claim(claim: View<'_>) -> Vec<Value> {
    let is_bound = !claim.text("/spec/volumeName").is_empty();
    let (capacity, modes) = if is_bound {
        let capacity = claim.text_or("/status/capacity/storage", "0");
        (capacity, access_modes(claim.list("/status/accessModes")))
    } else {
        ("", String::new())
    };
    vec![
        claim.name(),
        phase(claim).into(),
        claim.text("/spec/volumeName").into(),
        capacity.into(),
        modes.into(),
        claim.text_or(CLASS_ANNOTATION, claim.text("/spec/storageClassName")).into(),
        claim.text_or("/spec/volumeAttributesClassName", UNSET).into(),
        claim.age(),
        claim.text_or("/spec/volumeMode", UNSET).into(),
    ]
}

fn phase(object: View<'_>) -> &str {
    if object.is_terminating() { "Terminating" } else { object.text("/status/phase") }
}

/// The abbreviated access modes, in the order of kubectl.
fn access_modes(modes: &[Value]) -> String {
    let names = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = names.into_iter().filter(|(name, _)| modes.iter().any(|mode| mode == name));
    joined_or(given.map(|(_, short)| short), "")
}

pub(super) fn certificate_signing_request(request: View<'_>) -> Vec<Value> {
    let has = |kind| request.list("/status/conditions").iter().any(|c| text_of(c, "type") == kind);
    let decision = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let mut condition = vec![decision];
    if has("Failed") {
        condition.push("Failed");
    }
    if !request.text("/status/certificate").is_empty() {
        condition.push("Issued");
    }
    let seconds = request.object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    vec![
        request.name(),
        request.age(),
        request.text_or("/spec/signerName", NONE).into(),
        request.text("/spec/username").into(),
        seconds.map_or_else(|| NONE.to_owned(), age::human).into(),
        condition.join(",").into(),
    ]
}

pub(super) fn volume_attachment(attachment: View<'_>) -> Vec<Value> {
    vec![
        attachment.name(),
        attachment.text("/spec/attacher").into(),
        attachment.text("/spec/source/persistentVolumeName").into(),
        attachment.text("/spec/nodeName").into(),
        attachment.flag("/status/attached").into(),
        attachment.age(),
    ]
}

pub(super) fn resource_claim(claim: View<'_>) -> Vec<Value> {
    let is_deleted = !claim.text("/metadata/deletionTimestamp").is_empty();
    let is_allocated = claim.object.pointer("/status/allocation").is_some_and(|made| !made.is_null());
    let is_reserved = is_allocated && !claim.list("/status/reservedFor").is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_allocated && !is_deleted, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    let states: Vec<&str> = states.into_iter().filter(|(is_so, _)| *is_so).map(|(_, state)| state).collect();
    vec![claim.name(), states.join(",").into(), claim.age()]
}

pub(super) fn resource_slice(slice: View<'_>) -> Vec<Value> {
    let fields = ["/spec/nodeName", "/spec/driver", "/spec/pool/name"].map(|field| slice.text(field).into());
    let mut cells = vec![slice.name()];
    cells.extend(fields);
    cells.push(slice.age());
    cells
}

pub(super) fn csi_driver(driver: View<'_>) -> Vec<Value> {
    let attaches = driver.object.pointer("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true);
    let modes = driver.list("/spec/volumeLifecycleModes").iter().filter_map(Value::as_str);
    let tokens = match driver.object.pointer("/spec/tokenRequests") {
        None | Some(Value::Null) => UNSET.to_owned(),
        Some(_) => {
            joined_or(driver.list("/spec/tokenRequests").iter().map(|token| text_of(token, "audience")), "")
        }
    };
    vec![
        driver.name(),
        attaches.into(),
        driver.flag("/spec/podInfoOnMount").into(),
        driver.flag("/spec/storageCapacity").into(),
        tokens.into(),
        driver.flag("/spec/requiresRepublish").into(),
        joined_or(modes, NONE).into(),
        driver.age(),
    ]
}

pub(super) fn role_binding(binding: View<'_>) -> Vec<Value> {
    let subjects = |kind: &str| {
        let of_kind = binding.list("/subjects").iter().filter(|subject| text_of(subject, "kind") == kind);
        let names = of_kind.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text_of(subject, "namespace"), text_of(subject, "name")),
            _ => text_of(subject, "name").to_owned(),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        binding.name(),
        format!("{}/{}", binding.text("/roleRef/kind"), binding.text("/roleRef/name")).into(),
        binding.age(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn joined_or(parts: impl IntoIterator<Item = impl Into<String>>, none: &str) -> String {
    let parts: Vec<String> = parts.into_iter().map(Into::into).collect();
    if parts.is_empty() { none.to_owned() } else { parts.join(",") }
}

pub(super) fn resource_quota(quota: View<'_>) -> Vec<Value> {
    let hard = quota.object.pointer("/status/hard").and_then(Value::as_object);
    let mut names: Vec<&String> = hard.into_iter().flatten().map(|(name, _)| name).collect();
    names.sort_unstable();
    let shown = |limits: bool| {
        let named = names.iter().filter(|name| name.starts_with("limits.") == limits);
        let one = |name: &&String| {
            let of = |side: &str| {
                quota.object["status"][side].get(name.as_str()).and_then(Value::as_str).unwrap_or("0")
            };
            format!("{name}: {}/{}", of("used"), of("hard"))
        };
        Value::from(named.map(one).collect::<Vec<_>>().join(", "))
    };
    vec![quota.name(), shown(false), shown(true), quota.age()]
}

pub(super) fn priority_class(class: View<'_>) -> Vec<Value> {
    vec![
        class.name(),
        class.object.get("value").cloned().unwrap_or_else(|| 0.into()),
        class.flag("/globalDefault").into(),
        class.age(),
        class.text("/preemptionPolicy").into(),
    ]
}

pub(super) fn storage_class(class: View<'_>) -> Vec<Value> {
    let is_default = ["", "beta."].into_iter().any(|stage| {
        class.text(&format!("/metadata/annotations/storageclass.{stage}kubernetes.io~1is-default-class"))
            == "true"
    });
    let name = class.text("/metadata/name");
    vec![
        if is_default { format!("{name} (default)").into() } else { name.into() },
        class.text("/provisioner").into(),
        class.text("/reclaimPolicy").into(),
        class.text("/volumeBindingMode").into(),
        class.flag("/allowVolumeExpansion").into(),
        class.age(),
    ]
}
