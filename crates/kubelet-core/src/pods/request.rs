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

use std::sync::Arc;

use config::{Features, KubeletConfiguration};
use model::request::IdMapping;

use resources_core::cgroup::MemoryQos;

/// Facts about the node, independent of the pod.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    pub config: Arc<KubeletConfiguration>,
    pub memory_capacity_bytes: u64,
    /// Directories with the thermal throttling state of processors, if the machine has them: hidden from containers.
    pub thermal_throttle_paths: Vec<String>,
    /// SELinux is enabled.
    pub selinux_enabled: bool,
    /// The SELinux label of files of containers, without the categories of a container; `None` without SELinux.
    pub selinux_file_label: Option<String>,
    /// The directory of `Localhost` seccomp profiles: `<root>/seccomp`.
    pub seccomp_dir: String,
    pub cgroup_v2: bool,
    pub swap: Swap,
    pub memory: MemoryRules,
    /// Page sizes that the kernel supports, in its notation: `2MB`, `1GB`.
    pub hugepage_sizes: Vec<String>,
    pub features: Features,
}

impl NodeFacts {
    /// `cpuCFSQuotaPeriod` in microseconds; `None` where CPU limits are not enforced (`cpuCFSQuota: false`).
    #[must_use]
    pub fn cpu_quota_period(&self) -> Option<i64> {
        let period = self.config.cpu_cfs_quota.then(|| self.config.cpu_cfs_quota_period.as_std())?;
        Some(i64::try_from(period.as_micros()).unwrap_or(i64::MAX))
    }

    /// `singleProcessOOMKill`: a container that runs out of memory loses one process, and not all of them.
    #[must_use]
    pub fn single_process_oom_kill(&self) -> bool {
        self.config.single_process_oom_kill.unwrap_or(!self.cgroup_v2)
    }
}

/// How much swap containers may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Swap {
    /// The kernel cannot limit swap, so no limit is requested.
    #[default]
    Uncontrolled,
    NoSwap,
    /// `LimitedSwap`: Burstable containers share the node's swap in proportion to their memory requests.
    Limited {
        node_swap_bytes: u64,
    },
}

/// The use of containers' memory requests beyond scheduling (feature gate `MemoryQoS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRules {
    pub qos: MemoryQos,
    /// Node allocatable memory: the limit of a container without one.
    pub allocatable_bytes: u64,
    /// The page size, to which the kernel rounds.
    pub page_bytes: u64,
}

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
    TooLarge(#[from] crate::pods::env::TooLarge),
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
