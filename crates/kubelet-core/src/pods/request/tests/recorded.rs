//! The requests of the Go kubelet 1.36.2 for pods of a real API server (containerd 2.1, cgroup v1, cgroupfs, no SELinux),
//! as containerd kept them, next to ours for the same pods.

use base_core::node_facts::NodeFacts;
use std::net::IpAddr;

use base_core::downward::DownwardFacts;
use model::env_value::EnvValue;
use model::k8s::{Quantity, Volume};
use model::request::{ContainerSecurity, Mount, Namespaces, Propagation, SandboxSecurity, UserNamespace};
use model::{CgroupDriver, QosClass, ServiceObject};
use resources_core::cgroup::CgroupNames;

use super::*;
use crate::pods::dns::{NodeDns, compute_pod_dns};
use crate::pods::env::compute_env;
use crate::pods::hash::container_hash;
use api_core::env_objects::EnvObjects;
use api_core::env_services::{NamedService, service_variables};

/// By scenario: `pod` as the API server had it, and the requests (`asked`): `sandbox`, and each container by its name.
const RECORDED: &str = include_str!("../golden/recorded.json");

fn recording_node() -> NodeFacts {
    NodeFacts {
        memory_capacity_bytes: 24 * GI,
        thermal_throttle_paths: Vec::new(),
        selinux_enabled: false,
        selinux_file_label: None,
        cgroup_v2: false,
        hugepage_sizes: vec!["2MB".to_owned(), "1GB".to_owned()],
        ..node()
    }
}

/// Protobuf leaves out what is not set.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_set = |value: &Value| {
                !value.is_null()
                    && value != &json!(false)
                    && value != &json!(0)
                    && value != &json!("")
                    && value != &json!([])
            };
            fields
                .into_iter()
                .map(|(key, value)| (key, without_empty(value)))
                .filter(|(_, v)| is_set(v))
                .collect()
        }
        Value::Array(values) => values.into_iter().map(without_empty).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

/// Lists without an order are sorted, and the random names of termination logs are normalized.
fn normalised(mut requested: Value) -> Value {
    for mount in requested["mounts"].as_array_mut().into_iter().flatten() {
        if mount["container_path"] == "/dev/termination-log" {
            let path = mount["host_path"].as_str().expect("a path");
            mount["host_path"] = json!(path.rsplit_once('/').expect("a path").0);
        }
    }
    for (list, key) in [("/envs", "key"), ("/linux/resources/hugepage_limits", "page_size")] {
        if let Some(entries) = requested.pointer_mut(list).and_then(Value::as_array_mut) {
            entries.sort_by_key(|entry| entry[key].to_string());
        }
    }
    requested
}

fn mode(mode: &NamespaceMode) -> u8 {
    match mode {
        NamespaceMode::Pod => 0,
        NamespaceMode::Container => 1,
        NamespaceMode::Node => 2,
        NamespaceMode::Target(_) => 3,
    }
}

fn namespaces(from: &Namespaces) -> Value {
    assert_eq!(from.user, UserNamespace::Node);
    json!({
        "network": mode(&from.network), "pid": mode(&from.pid), "ipc": mode(&from.ipc),
        "userns_options": {"mode": 2},
    })
}

fn seccomp(from: Option<&SecurityProfile>) -> Value {
    match from {
        None => Value::Null,
        Some(SecurityProfile::RuntimeDefault) => json!({}),
        Some(SecurityProfile::Unconfined) => json!({"profile_type": 1}),
        Some(SecurityProfile::Localhost(path)) => json!({"profile_type": 2, "localhost_ref": path}),
    }
}

fn resources(from: &LinuxResources) -> Value {
    let limits = from.hugepage_limits.iter().map(|(size, limit)| json!({"page_size": size, "limit": limit}));
    json!({
        "cpu_period": from.cpu_period, "cpu_quota": from.cpu_quota, "cpu_shares": from.cpu_shares,
        "memory_limit_in_bytes": from.memory_limit_bytes,
        "memory_swap_limit_in_bytes": from.memory_swap_limit_bytes,
        "oom_score_adj": from.oom_score_adj, "hugepage_limits": limits.collect::<Vec<_>>(),
    })
}

fn sandbox_security(from: &SandboxSecurity) -> Value {
    assert!(from.selinux.is_none());
    json!({
        "namespace_options": namespaces(&from.namespaces),
        "run_as_user": from.run_as_user.map(|uid| json!({"value": uid})),
        "run_as_group": from.run_as_group.map(|gid| json!({"value": gid})),
        "supplemental_groups": from.supplemental_groups,
        "privileged": from.privileged,
        "seccomp": seccomp(from.seccomp.as_ref()),
    })
}

fn sandbox(from: &SandboxRequest) -> Value {
    assert!(from.port_mappings.is_empty());
    json!({
        "metadata": {
            "name": *from.pod.name, "namespace": *from.pod.namespace, "uid": from.pod.uid.as_str(),
            "attempt": from.attempt,
        },
        "hostname": from.hostname, "log_directory": from.log_directory,
        "dns_config": {
            "servers": from.dns.servers, "searches": from.dns.searches, "options": from.dns.options,
        },
        "labels": from.labels, "annotations": from.annotations,
        "linux": {
            "cgroup_parent": from.cgroup_parent,
            "sysctls": (!from.sysctls.is_empty()).then_some(&from.sysctls),
            "overhead": from.overhead.as_ref().map(resources),
            "resources": from.resources.as_ref().map(resources),
            "security_context": sandbox_security(&from.security),
        },
    })
}

fn container_security(from: &ContainerSecurity) -> Value {
    assert!(from.selinux.is_none() && from.apparmor.is_none());
    assert!(from.add_capabilities.is_empty() && from.drop_capabilities.is_empty());
    json!({
        "namespace_options": namespaces(&from.namespaces),
        "privileged": from.privileged,
        "run_as_user": from.run_as.uid.map(|uid| json!({"value": uid})),
        "run_as_group": from.run_as.gid.map(|gid| json!({"value": gid})),
        "run_as_username": from.run_as.username,
        "supplemental_groups": from.supplemental_groups,
        "readonly_rootfs": from.read_only_rootfs, "no_new_privs": from.no_new_privs,
        "masked_paths": from.masked_paths, "readonly_paths": from.readonly_paths,
        "seccomp": seccomp(from.seccomp.as_ref()),
    })
}

fn mount(from: &Mount) -> Value {
    assert_eq!((from.propagation, &from.image), (Propagation::Private, &None));
    json!({
        "container_path": from.container_path, "host_path": from.host_path, "readonly": from.read_only,
        "recursive_read_only": from.recursive_read_only, "selinux_relabel": from.selinux_relabel,
    })
}

fn container(from: &ContainerRequest) -> Value {
    assert!(from.devices.is_empty() && from.cdi_devices.is_empty() && from.stop_signal.is_none());
    let envs = from.env.iter().map(|(key, value)| json!({"key": key, "value": value.as_text()}));
    json!({
        "metadata": {"name": from.name, "attempt": from.attempt},
        "image": {"image": from.image, "user_specified_image": from.user_specified_image},
        "command": from.command, "args": from.args, "working_dir": from.working_dir,
        "envs": envs.collect::<Vec<_>>(),
        "mounts": from.mounts.iter().map(mount).collect::<Vec<_>>(),
        "labels": from.labels, "annotations": from.annotations, "log_path": from.log_path,
        "stdin": from.stdin, "stdin_once": from.stdin_once, "tty": from.tty,
        "linux": {
            "resources": resources(&from.resources), "security_context": container_security(&from.security),
        },
    })
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().expect("a UID")
}

fn our_sandbox(pod: &Pod) -> SandboxRequest {
    let dns = NodeDns {
        cluster_dns: vec!["10.96.0.10".parse().expect("an address")],
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: Some("nameserver 10.255.255.53\n".to_owned()),
        node_ips: Vec::new(),
    };
    let cgroup =
        CgroupNames::new(CgroupDriver::Cgroupfs, "").pod(QosClass::of(pod), &model::PodUid::new(uid(pod)));
    compute_sandbox_request(&SandboxInputs {
        pod,
        node: &recording_node(),
        facts: &PodFacts::default(),
        attempt: 0,
        dns: &compute_pod_dns(pod, &dns).expect("DNS").dns,
        cgroup_parent: &cgroup.to_string(),
    })
    .expect("a sandbox request")
}

fn volume_point(pod: &Pod, volume: &Volume) -> (String, VolumeMountPoint) {
    let (plugin, read_only) = match volume {
        Volume { empty_dir: Some(_), .. } => ("empty-dir", false),
        Volume { config_map: Some(_), .. } => ("configmap", true),
        Volume { downward_api: Some(_), .. } => ("downward-api", true),
        Volume { projected: Some(_), .. } => ("projected", true),
        other => panic!("no volume of this kind was recorded: {other:?}"),
    };
    let host_path =
        format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~{plugin}/{}", uid(pod), volume.name);
    // The Go kubelet requests relabeling of such volumes whenever SELinux labels are supported.
    let point =
        VolumeMountPoint { host_path, read_only, selinux_relabel: true, ..VolumeMountPoint::default() };
    (volume.name.clone(), point)
}

fn our_env(pod: &Pod, name: &str) -> Vec<(String, EnvValue)> {
    let kubernetes: ServiceObject = serde_json::from_value(json!({
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
    }))
    .expect("a service");
    let ServiceObject { namespace, name: service, entry, .. } = &kubernetes;
    let kubernetes = NamedService { namespace, name: service, entry };
    let objects = EnvObjects { services: service_variables(pod, [kubernetes]), ..EnvObjects::default() };
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse::<IpAddr>().ok());
    let facts = DownwardFacts {
        container: name,
        pod_ips: &ip.into_iter().collect::<Vec<_>>(),
        host_ips: &[],
        allocatable: &BTreeMap::from([("cpu".to_owned(), Quantity("2".to_owned()))]),
    };
    compute_env(pod, &find_container(pod, name).expect(name), &facts, &objects).expect("an environment")
}

fn our_container(pod: &Pod, name: &str, attempt: u32) -> ContainerRequest {
    let root = format!("/var/lib/kubelet/pods/{}", uid(pod));
    let facts = PodFacts {
        hosts_file: Some(format!("{root}/etc-hosts")),
        recursive_read_only: true,
        ..PodFacts::default()
    };
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let container = find_container(pod, name).expect(name);
    compute_container_request(&ContainerInputs {
        pod,
        container,
        node: &recording_node(),
        facts: &facts,
        restart_count: attempt,
        hash: container_hash(&container),
        image_ref: "sha256:246d34a7e3088f6062215073f72cf9aeedcba690580cfc6c5bdbce618d8eddc2",
        image: &ImageObservation::default(),
        env: &our_env(pod, name),
        volumes: &volumes.map(|volume| volume_point(pod, volume)).collect(),
        sub_paths: &BTreeMap::new(),
        termination_log: Some(&format!("{root}/containers/{name}/0a1b2c3d")),
        target: None,
    })
    .expect("a container request")
}

/// Where two values differ, as paths with both sides.
fn differences(path: &str, recorded: &Value, ours: &Value, found: &mut Vec<String>) {
    match (recorded, ours) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let of =
                    |fields: &serde_json::Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
                differences(&format!("{path}.{key}"), &of(left), &of(right), found);
            }
        }
        _ if recorded != ours => found.push(format!("{path}: recorded {recorded}, ours {ours}")),
        _ => {}
    }
}

#[test]
fn requests_equal_those_recorded_of_the_go_kubelet() {
    let recorded: BTreeMap<String, Value> = serde_json::from_str(RECORDED).expect("a recording");
    assert_eq!(recorded.len(), 35);
    let mut found = Vec::new();
    for (scenario, recorded) in recorded {
        let pod: Pod = serde_json::from_value(recorded["pod"].clone()).expect("a pod");
        for (name, requested) in recorded["asked"].as_object().expect("requests") {
            let ours = if name == "sandbox" {
                sandbox(&our_sandbox(&pod))
            } else {
                let attempt = requested["metadata"]["attempt"].as_u64().unwrap_or(0);
                container(&our_container(&pod, name, u32::try_from(attempt).expect("a count")))
            };
            let ours = normalised(without_empty(ours));
            differences(&format!("{scenario} {name}"), &normalised(requested.clone()), &ours, &mut found);
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
