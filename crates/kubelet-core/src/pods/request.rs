//! Requests to the container runtime: from a pod and the facts around it to a complete sandbox or container request.
//!
//! Owns every number, label, annotation, path and profile in those requests (docs/behaviour/container-runtime.md). Never
//! touches the machine: paths on the host, resolved environments and id mappings come in as arguments.

pub mod container;
pub mod labels;
pub mod mounts;
pub mod resources;
pub mod sandbox;
pub mod security;

#[cfg(test)]
pub(crate) mod tests;

pub use container::{ContainerInputs, compute_container_request};
pub use mounts::{SubPath, VolumeMountPoint, compute_sub_paths};
pub use sandbox::{SandboxInputs, compute_sandbox_request};

use model::request::IdMapping;

/// Facts about one pod beyond its spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// The handler of the pod's RuntimeClass; empty for the runtime's default.
    pub runtime_handler: String,
    /// The handler supports recursive read-only mounts.
    pub recursive_read_only: bool,
    /// The pod's user namespace mapping, required with `hostUsers: false`.
    pub user_namespace: Option<IdMappings>,
    /// Supplemental groups of volumes.
    pub extra_supplemental_groups: Vec<i64>,
    /// The pod's own `/etc/hosts` on the host; absent if it must not be mounted (no address yet).
    pub hosts_file: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMappings {
    pub uids: Vec<IdMapping>,
    pub gids: Vec<IdMapping>,
}

/// Why no request can be made from the spec: the message of `CreateContainerConfigError` (or, for sandboxes, of the event
/// `FailedCreatePodSandBox`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Expansion(#[from] crate::pods::env::ExpansionError),
    #[error(transparent)]
    Hostname(#[from] crate::pods::hostname::HostnameError),
    #[error("pod {pod:?} has hostUsers: false, but was given no user namespace")]
    NoUserNamespace { pod: String },
    #[error("container's runAsUser breaks non-root policy (pod: {pod:?}, container: {container})")]
    RunAsRoot { pod: String, container: String },
    #[error("container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container})")]
    ImageRunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \
         {pod:?}, container: {container})"
    )]
    ImageUserByName { user: String, pod: String, container: String },
    #[error("localhostProfile must be set if {kind} type is Localhost.")]
    NoLocalhostProfile { kind: &'static str },
    #[error("unknown {kind} type {value:?}")]
    UnknownProfile { kind: &'static str, value: String },
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoVolume { volume: String, container: String },
    #[error("subPath of volume {volume:?}: {problem}")]
    SubPath { volume: String, problem: String },
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    NoSubPath { volume: String, container: String },
    #[error(
        "failed to resolve recursive read-only mode: volume {volume:?} requested recursive read-only mode, but {problem}"
    )]
    RecursiveReadOnly { volume: String, problem: &'static str },
    #[error("invalid mount propagation {value:?} of volume {volume:?}")]
    Propagation { volume: String, value: String },
}

/// A pod as messages show it: `name_namespace(uid)`.
#[must_use]
pub fn describe(pod: &model::k8s::Pod) -> String {
    let who = model::PodRef::of(pod);
    format!("{}({})", who.full_name(), who.uid)
}
