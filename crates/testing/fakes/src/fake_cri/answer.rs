//! Responses onto the wire, and errors as the codes that runtimes use.

use std::collections::BTreeMap;

use cri_api::v1 as wire;
use jiff::Timestamp;
use model::annotations as keys;
use model::observation::{ImageMount, NamespaceMode, ObservedResources, ObservedUser};
use model::request::ImageObservation;
use model::{
    ContainerObservation, ContainerRecord, ContainerState, PodRef, SandboxObservation, SandboxState,
};
use ports::runtime::{
    ContainerSummary, RuntimeCondition, RuntimeError, RuntimeHandler, RuntimeStatus, RuntimeVersion,
    SandboxSummary,
};
use tonic::{Code, Status};

pub(super) fn error(from: &RuntimeError) -> Status {
    let code = match from {
        RuntimeError::NotFound { .. } => Code::NotFound,
        RuntimeError::AlreadyExists { .. } => Code::AlreadyExists,
        RuntimeError::TimedOut { .. } => Code::DeadlineExceeded,
        RuntimeError::Unavailable { .. } => Code::Unavailable,
        RuntimeError::Unimplemented { .. } => Code::Unimplemented,
        // What containerd uses for nearly everything.
        RuntimeError::Failed { .. } => Code::Unknown,
    };
    Status::new(code, from.message())
}

pub(super) fn version(from: RuntimeVersion) -> wire::VersionResponse {
    wire::VersionResponse {
        version: from.api,
        runtime_name: from.name,
        runtime_version: from.version,
        runtime_api_version: from.runtime_api,
    }
}

pub(super) fn status(from: RuntimeStatus) -> wire::StatusResponse {
    let condition = |name: &str, condition: RuntimeCondition| wire::RuntimeCondition {
        r#type: name.to_owned(),
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
    };
    let handler = |handler: RuntimeHandler| wire::RuntimeHandler {
        name: handler.name,
        features: Some(wire::RuntimeHandlerFeatures {
            recursive_read_only_mounts: handler.recursive_read_only_mounts,
            user_namespaces: handler.user_namespaces,
        }),
    };
    wire::StatusResponse {
        status: Some(wire::RuntimeStatus {
            conditions: vec![
                condition("RuntimeReady", from.runtime_ready),
                condition("NetworkReady", from.network_ready),
            ],
        }),
        info: BTreeMap::new(),
        runtime_handlers: from.handlers.into_iter().map(handler).collect(),
        features: Some(wire::RuntimeFeatures {
            supplemental_groups_policy: from.supplemental_groups_policy,
            user_namespaces_host_network: from.user_namespaces_host_network,
        }),
    }
}

pub(super) fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

pub(super) fn sandbox_metadata(pod: &PodRef, attempt: u32) -> wire::PodSandboxMetadata {
    wire::PodSandboxMetadata {
        name: pod.name.to_string(),
        uid: pod.uid.as_str().to_owned(),
        namespace: pod.namespace.to_string(),
        attempt,
    }
}

fn sandbox_state(from: SandboxState) -> i32 {
    match from {
        SandboxState::Ready => wire::PodSandboxState::SandboxReady,
        SandboxState::NotReady => wire::PodSandboxState::SandboxNotready,
    }
    .into()
}

pub(super) fn sandbox_summary(from: SandboxSummary) -> wire::PodSandbox {
    wire::PodSandbox {
        id: from.id.as_str().to_owned(),
        metadata: Some(sandbox_metadata(&from.pod, from.attempt)),
        state: sandbox_state(from.state),
        labels: pod_labels(&from.pod),
        // The port does not carry the rest.
        ..Default::default()
    }
}

pub(super) fn sandbox_status(from: SandboxObservation) -> wire::PodSandboxStatus {
    let mut ips = from.ips.iter().map(ToString::to_string);
    let network = wire::PodSandboxNetworkStatus {
        ip: ips.next().unwrap_or_default(),
        additional_ips: ips.map(|ip| wire::PodIp { ip }).collect(),
    };
    let options = wire::NamespaceOption { network: namespace_mode(&from.network), ..Default::default() };
    wire::PodSandboxStatus {
        id: from.id.as_str().to_owned(),
        metadata: Some(sandbox_metadata(&from.pod, from.attempt)),
        state: sandbox_state(from.state),
        created_at: nanoseconds(from.created_at),
        network: Some(network),
        linux: Some(wire::LinuxPodSandboxStatus {
            namespaces: Some(wire::Namespace { options: Some(options) }),
        }),
        runtime_handler: from.runtime_handler,
        ..Default::default()
    }
}

fn namespace_mode(from: &NamespaceMode) -> i32 {
    match from {
        NamespaceMode::Pod => wire::NamespaceMode::Pod,
        NamespaceMode::Container => wire::NamespaceMode::Container,
        NamespaceMode::Node => wire::NamespaceMode::Node,
        NamespaceMode::Target(_) => wire::NamespaceMode::Target,
    }
    .into()
}

fn container_state(from: ContainerState) -> i32 {
    match from {
        ContainerState::Created => wire::ContainerState::ContainerCreated,
        ContainerState::Running => wire::ContainerState::ContainerRunning,
        ContainerState::Exited => wire::ContainerState::ContainerExited,
        ContainerState::Unknown => wire::ContainerState::ContainerUnknown,
    }
    .into()
}

fn image_spec(image: String) -> wire::ImageSpec {
    wire::ImageSpec { user_specified_image: image.clone(), image, ..Default::default() }
}

pub(super) fn container_summary(from: ContainerSummary) -> wire::Container {
    let name = from.name.to_string();
    let mut labels = pod_labels(&from.pod);
    labels.insert(keys::CONTAINER_NAME_LABEL.to_owned(), name.clone());
    wire::Container {
        id: from.id.as_str().to_owned(),
        pod_sandbox_id: from.sandbox_id.as_str().to_owned(),
        metadata: Some(wire::ContainerMetadata { name, attempt: from.attempt }),
        state: container_state(from.state),
        labels,
        image_ref: from.image_id.to_string(),
        // The port does not carry the rest.
        ..Default::default()
    }
}

fn pod_labels(pod: &PodRef) -> BTreeMap<String, String> {
    BTreeMap::from([
        (keys::POD_NAMESPACE_LABEL.to_owned(), pod.namespace.to_string()),
        (keys::POD_NAME_LABEL.to_owned(), pod.name.to_string()),
        (keys::POD_UID_LABEL.to_owned(), pod.uid.to_string()),
    ])
}

pub(super) fn container_status(from: ContainerObservation) -> wire::ContainerStatus {
    let rro = |container_path: String| wire::Mount {
        container_path,
        readonly: true,
        recursive_read_only: true,
        ..Default::default()
    };
    let image = |mount: ImageMount| wire::Mount {
        container_path: mount.container_path,
        readonly: true,
        image: Some(wire::ImageSpec { image: mount.image, ..Default::default() }),
        ..Default::default()
    };
    let images = from.image_mounts.into_iter().map(image);
    let message = (!from.message_file.is_empty()).then(|| wire::Mount {
        container_path: from.record.termination_message_path.clone(),
        host_path: from.message_file,
        ..Default::default()
    });
    wire::ContainerStatus {
        id: from.id.as_str().to_owned(),
        metadata: Some(wire::ContainerMetadata {
            name: from.name.to_string(),
            attempt: from.record.restart_count,
        }),
        state: container_state(from.state),
        created_at: nanoseconds(from.created_at),
        started_at: from.started_at.map_or(0, nanoseconds),
        finished_at: from.finished_at.map_or(0, nanoseconds),
        exit_code: from.exit_code,
        image: Some(image_spec(from.image)),
        image_ref: from.image_id.clone(),
        image_id: from.image_id,
        reason: from.reason,
        message: from.message,
        mounts: message
            .into_iter()
            .chain(from.recursive_read_only_mounts.into_iter().map(rro))
            .chain(images)
            .collect(),
        annotations: annotations(from.record),
        log_path: from.log_path,
        user: from.user.map(user),
        resources: from.resources.map(resources),
        stop_signal: from.stop_signal.as_deref().map_or(wire::Signal::RuntimeDefault, signal).into(),
        ..Default::default()
    }
}

/// From the API's spelling.
fn signal(name: &str) -> wire::Signal {
    let cri_name = name.replace('+', "PLUS").replace('-', "MINUS");
    wire::Signal::from_str_name(&cri_name).unwrap_or(wire::Signal::RuntimeDefault)
}

fn resources(from: ObservedResources) -> wire::ContainerResources {
    const PERIOD: i64 = 100_000;
    let linux = wire::LinuxContainerResources {
        cpu_shares: from.cpu_shares.unwrap_or_default(),
        cpu_quota: from.cpu_limit_milli.map(|milli| milli * PERIOD / 1000).unwrap_or_default(),
        cpu_period: PERIOD,
        memory_limit_in_bytes: from.memory_limit.unwrap_or_default(),
        ..Default::default()
    };
    wire::ContainerResources { linux: Some(linux) }
}

fn user(from: ObservedUser) -> wire::ContainerUser {
    wire::ContainerUser {
        linux: Some(wire::LinuxContainerUser {
            uid: from.uid,
            gid: from.gid,
            supplemental_groups: from.supplemental_groups,
        }),
    }
}

/// The kubelet's own annotations, from the fields of the port.
fn annotations(from: ContainerRecord) -> BTreeMap<String, String> {
    let text = |value: String| (!value.is_empty()).then_some(value);
    [
        (keys::CONTAINER_HASH, from.hash.map(|hash| format!("{hash:x}"))),
        (keys::CONTAINER_RESTART_COUNT, Some(from.restart_count.to_string())),
        (keys::CONTAINER_TERMINATION_MESSAGE_PATH, text(from.termination_message_path)),
        (keys::CONTAINER_TERMINATION_MESSAGE_POLICY, text(from.termination_message_policy)),
        (keys::POD_TERMINATION_GRACE_PERIOD, from.pod_termination_grace_seconds.map(|s| s.to_string())),
        (keys::CONTAINER_PRE_STOP_HANDLER, from.pre_stop_handler),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
    .collect()
}

pub(super) fn image(from: ImageObservation) -> wire::Image {
    wire::Image {
        id: from.id,
        repo_tags: from.repo_tags,
        repo_digests: from.repo_digests,
        size: from.size_bytes,
        uid: from.uid.map(|value| wire::Int64Value { value }),
        username: from.username,
        spec: Some(wire::ImageSpec { runtime_handler: from.runtime_handler, ..Default::default() }),
        pinned: from.pinned,
    }
}
