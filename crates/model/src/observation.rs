//! The observed state of pods in the container runtime, as plain data. Decisions about a pod depend only on its
//! [`PodObservation`] and its spec.

mod instances;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

pub use instances::Instances;

use crate::annotations as keys;
use crate::ids::{ContainerId, PodRef, SandboxId};
use crate::time::MonoTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SandboxState {
    Ready,
    NotReady,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    /// The runtime does not know the state; it counts neither as running nor as exited.
    Unknown,
}

/// A namespace mode, requested or reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum NamespaceMode {
    #[default]
    Pod,
    Container,
    Node,
    /// Joins the PID namespace of that container.
    Target(ContainerId),
}

/// One pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxObservation {
    pub id: SandboxId,
    pub pod: PodRef,
    pub attempt: u32,
    pub state: SandboxState,
    pub created_at: Timestamp,
    /// First the primary address, then the further ones. Empty for host-network pods and before the network is set up.
    pub ips: Vec<IpAddr>,
    pub network: NamespaceMode,
    pub runtime_handler: String,
}

/// One container, running or dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerObservation {
    pub id: ContainerId,
    pub sandbox_id: SandboxId,
    pub name: Arc<str>,
    pub state: ContainerState,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub exit_code: i32,
    pub reason: String,
    /// The runtime's message, or the termination message from its file (already truncated).
    pub message: String,
    /// The image as written in the spec.
    pub image: String,
    /// `imageID` of the API: the runtime's `image_ref`, an ID or a reference by digest.
    pub image_id: String,
    pub log_path: String,
    /// The file on the node in which the container leaves its termination message; empty if the runtime does not report it. Each kubelet
    /// names these files in its own way.
    pub message_file: String,
    pub record: ContainerRecord,
    /// User and groups of the first process, if the runtime reports them.
    pub user: Option<ObservedUser>,
    /// The limits that the runtime reports; older ones report none.
    pub resources: Option<ObservedResources>,
    /// The stop signal in force, like `SIGTERM`; older runtimes report none.
    pub stop_signal: Option<String>,
    /// Mounts that the runtime reports as recursively read-only, by container path.
    pub recursive_read_only_mounts: Vec<String>,
    /// Images that the runtime reports as mounted.
    pub image_mounts: Vec<ImageMount>,
}

/// An image that is mounted into a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageMount {
    pub container_path: String,
    /// As the runtime reports it.
    pub image: String,
    /// The id of that image, with the gate `ImageVolumeWithDigest` and once it was looked up.
    pub image_ref: Option<String>,
}

/// In the units of the kernel; `None` where the runtime reports nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedResources {
    pub cpu_shares: Option<i64>,
    /// Thousandths of a core.
    pub cpu_limit_milli: Option<i64>,
    pub memory_limit: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedUser {
    pub uid: i64,
    pub gid: i64,
    pub supplemental_groups: Vec<i64>,
}

/// What the kubelet itself wrote onto the container when it created it (annotations, see docs/behaviour/container-runtime.md).
/// It survives a restart of the kubelet, which is why restart counts and hashes do too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRecord {
    pub hash: Option<u32>,
    pub restart_count: u32,
    pub termination_message_path: String,
    pub termination_message_policy: String,
    pub pod_termination_grace_seconds: Option<i64>,
    /// The preStop handler as JSON, to stop a container whose spec is not known.
    pub pre_stop_handler: Option<String>,
}

impl ContainerRecord {
    /// Parses the annotations of a container. Malformed values count as absent, because any container must be stoppable.
    #[must_use]
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Self {
        let text = |key: &str| annotations.get(key).cloned();
        Self {
            hash: text(keys::CONTAINER_HASH).and_then(|hex| u32::from_str_radix(&hex, 16).ok()),
            restart_count: text(keys::CONTAINER_RESTART_COUNT).and_then(|n| n.parse().ok()).unwrap_or(0),
            termination_message_path: text(keys::CONTAINER_TERMINATION_MESSAGE_PATH).unwrap_or_default(),
            termination_message_policy: text(keys::CONTAINER_TERMINATION_MESSAGE_POLICY).unwrap_or_default(),
            pod_termination_grace_seconds: text(keys::POD_TERMINATION_GRACE_PERIOD)
                .and_then(|n| n.parse().ok()),
            pre_stop_handler: text(keys::CONTAINER_PRE_STOP_HANDLER),
        }
    }
}

/// The state of one pod in the runtime at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodObservation {
    pub pod: PodRef,
    /// Newest first.
    pub sandboxes: Vec<SandboxObservation>,
    /// Newest first.
    pub containers: Instances,
    /// When the listing of this observation began. A decision after an act requires a later observation.
    pub taken_at: MonoTime,
}

impl PodObservation {
    #[must_use]
    pub const fn empty(pod: PodRef, taken_at: MonoTime) -> Self {
        Self { pod, sandboxes: Vec::new(), containers: Instances::new(Vec::new()), taken_at }
    }

    /// The newest instance of the container of that name, if any.
    #[must_use]
    pub fn newest(&self, name: &str) -> Option<&ContainerObservation> {
        self.containers.of_name(name).next()
    }

    /// All instances of the container of that name, newest first.
    pub fn instances<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ContainerObservation> {
        self.containers.of_name(name)
    }

    #[must_use]
    pub fn container(&self, id: &ContainerId) -> Option<&ContainerObservation> {
        self.containers.of_id(id)
    }

    pub fn running(&self) -> impl Iterator<Item = &ContainerObservation> {
        self.containers.iter().filter(|c| c.state == ContainerState::Running)
    }

    pub fn ready_sandboxes(&self) -> impl Iterator<Item = &SandboxObservation> {
        self.sandboxes.iter().filter(|s| s.state == SandboxState::Ready)
    }

    /// Whether the pod is stopped: no container that runs or may run, no ready sandbox.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let may_run = |c: &ContainerObservation| match c.state {
            ContainerState::Running | ContainerState::Unknown => true,
            ContainerState::Created | ContainerState::Exited => false,
        };
        !self.containers.iter().any(may_run) && self.ready_sandboxes().next().is_none()
    }

    /// Whether the runtime has nothing of the pod.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}
