//! The defaults that an API server sets when a pod is created, for pods that never passed an API server.
//!
//! Owns defaults only: it never corrects or rejects what was written.

use std::collections::BTreeMap;

use model::Amount;
use model::k8s::{
    Container, EnvVarSource, HTTPGetAction, IntOrString, Lifecycle, LifecycleHandler, Pod, PodSpec, Probe,
    Quantity, ResourceRequirements, Volume,
};

use images_core::name::default_pull_policy;

/// Sets every field that an API server would default. Idempotent.
pub fn apply_defaults(pod: &mut Pod) {
    apply_stored_defaults(pod);
    for source in env_sources(pod.spec.get_or_insert_default()) {
        if let Some(resource) = &mut source.resource_field_ref {
            resource.divisor.get_or_insert_with(|| Quantity("0".to_owned()));
        }
    }
}

/// The same without those that only the JSON of an API server contains: an empty divisor is written as "0".
pub(super) fn apply_stored_defaults(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    default_pod_spec(spec);
    let host_network = spec.host_network.unwrap_or(false);
    let init = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(init) {
        default_container(container, host_network);
    }
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        set(&mut container.image_pull_policy, default_pull_policy(container.image.as_deref()));
        set(&mut container.termination_message_path, "/dev/termination-log");
        set(&mut container.termination_message_policy, "File");
    }
    env_sources(spec).for_each(default_env_source);
    for volume in spec.volumes.iter_mut().flatten() {
        default_volume(volume);
    }
    default_pod_requests(spec);
    pod.status.get_or_insert_default().phase.get_or_insert_with(|| "Pending".to_owned());
}

/// A text that is absent or empty gets the default: the API does not distinguish them.
fn set(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}

/// Likewise a number that is absent or zero, if zero is invalid.
fn set_number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or_default() == 0 {
        *field = Some(default);
    }
}

fn default_pod_spec(spec: &mut PodSpec) {
    set(&mut spec.dns_policy, "ClusterFirst");
    set(&mut spec.restart_policy, "Always");
    set(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
}

fn default_container(container: &mut Container, host_network: bool) {
    set(&mut container.image_pull_policy, default_pull_policy(container.image.as_deref()));
    set(&mut container.termination_message_path, "/dev/termination-log");
    set(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        set(&mut port.protocol, "TCP");
        if host_network {
            set_number(&mut port.host_port, port.container_port);
        }
    }
    default_requests(container.resources.get_or_insert_default());
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(default_probe);
    container.lifecycle.iter_mut().for_each(default_lifecycle);
}

/// A limit without a request requests the limit.
fn default_requests(resources: &mut ResourceRequirements) {
    let Some(limits) = &resources.limits else {
        return;
    };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

/// A pod-level limit without a request requests the sum of the containers' requests, or else the limit.
fn default_pod_requests(spec: &mut PodSpec) {
    let sums: BTreeMap<&str, Amount> =
        ["cpu", "memory"].into_iter().filter_map(|name| Some((name, sum_of_requests(spec, name)?))).collect();
    let Some(ResourceRequirements { limits: Some(limits), requests, .. }) = &mut spec.resources else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let requests = requests.get_or_insert_default();
    for (name, sum) in sums {
        requests.entry(name.to_owned()).or_insert_with(|| Quantity(sum.to_string()));
    }
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

/// The maximum that the containers of a spec request at the same time, if any of them has a request.
fn sum_of_requests(spec: &PodSpec, name: &str) -> Option<Amount> {
    base_core::pod_sums::effective_sum(spec, |container| {
        Amount::of(container.resources.as_ref()?.requests.as_ref()?.get(name)?).ok()
    })
}

/// The sources of the environment variables of all containers.
fn env_sources(spec: &mut PodSpec) -> impl Iterator<Item = &mut EnvVarSource> {
    let init = spec.init_containers.iter_mut().flatten().filter_map(|container| container.env.as_mut());
    let ephemeral =
        spec.ephemeral_containers.iter_mut().flatten().filter_map(|container| container.env.as_mut());
    let regular = spec.containers.iter_mut().filter_map(|container| container.env.as_mut());
    let variables = regular.chain(init).chain(ephemeral).flatten();
    variables.filter_map(|variable| variable.value_from.as_mut())
}

fn default_env_source(source: &mut EnvVarSource) {
    if let Some(field) = &mut source.field_ref {
        set(&mut field.api_version, "v1");
    }
    if let Some(file) = &mut source.file_key_ref {
        file.optional.get_or_insert(false);
    }
}

fn default_probe(probe: &mut Probe) {
    set_number(&mut probe.timeout_seconds, 1);
    set_number(&mut probe.period_seconds, 10);
    set_number(&mut probe.success_threshold, 1);
    set_number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(default_http_get);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn default_lifecycle(lifecycle: &mut Lifecycle) {
    for handler in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
        let LifecycleHandler { http_get, .. } = handler;
        http_get.iter_mut().for_each(default_http_get);
    }
}

fn default_http_get(action: &mut HTTPGetAction) {
    set(&mut action.path, "/");
    set(&mut action.scheme, "HTTP");
    // An absent port is number 0, which validation rejects; text is kept as written.
    if action.port == IntOrString::String(String::new()) {
        action.port = IntOrString::Int(0);
    }
}

/// Permissions of files that the kubelet writes into a volume.
const FILE_MODE: i32 = 0o644;

fn default_volume(volume: &mut Volume) {
    if crate::static_pod::validation::volume_sources(volume).is_empty() {
        volume.empty_dir = Some(model::k8s::EmptyDirVolumeSource::default());
    }
    if let Some(host_path) = &mut volume.host_path {
        host_path.type_.get_or_insert_default();
    }
    if let Some(secret) = &mut volume.secret {
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(config_map) = &mut volume.config_map {
        config_map.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(image) = &mut volume.image {
        set(&mut image.pull_policy, default_pull_policy(image.reference.as_deref()));
    }
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(FILE_MODE);
        for field in downward.items.iter_mut().flatten().filter_map(|item| item.field_ref.as_mut()) {
            set(&mut field.api_version, "v1");
        }
    }
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(FILE_MODE);
        for source in projected.sources.iter_mut().flatten() {
            let items = source.downward_api.iter_mut().filter_map(|d| d.items.as_mut()).flatten();
            items.filter_map(|item| item.field_ref.as_mut()).for_each(|f| set(&mut f.api_version, "v1"));
            if let Some(token) = &mut source.service_account_token {
                token.expiration_seconds.get_or_insert(3600);
            }
        }
    }
    default_network_volume(volume);
}

fn default_network_volume(volume: &mut Volume) {
    if let Some(iscsi) = &mut volume.iscsi {
        set(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut volume.rbd {
        set(&mut rbd.pool, "rbd");
        set(&mut rbd.user, "admin");
        set(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = &mut volume.azure_disk {
        disk.caching_mode.get_or_insert_with(|| "ReadWrite".to_owned());
        disk.fs_type.get_or_insert_with(|| "ext4".to_owned());
        disk.read_only.get_or_insert(false);
        disk.kind.get_or_insert_with(|| "Shared".to_owned());
    }
    if let Some(scale_io) = &mut volume.scale_io {
        set(&mut scale_io.storage_mode, "ThinProvisioned");
        set(&mut scale_io.fs_type, "xfs");
    }
}
