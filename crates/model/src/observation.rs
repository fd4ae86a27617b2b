//! What the container runtime reported, as plain data. A [`PodObservation`] is the only picture of the outside world
//! that decisions about a pod are made from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

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
    /// The runtime does not know; treated as neither running nor gone.
    Unknown,
}

/// Which namespace something runs in, as asked for and as reported.
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
    /// What the runtime said, or the termination message read from its file (already cut to its limit).
    pub message: String,
    /// The image as the user wrote it.
    pub image: String,
    /// `imageID` of the API: the runtime's `image_ref`, an id or a reference by digest.
    pub image_id: String,
    pub log_path: String,
    pub record: ContainerRecord,
    /// Numeric identity the first process got, where the runtime reports it.
    pub user: Option<ObservedUser>,
    /// Mounts that the runtime reports as recursively read-only, by container path.
    pub recursive_read_only_mounts: Vec<String>,
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
    /// The preStop handler as JSON, for stopping a container whose spec is gone.
    pub pre_stop_handler: Option<String>,
}

impl ContainerRecord {
    /// Reads the annotations of a container. Absent or malformed values read as absent: a foreign or damaged container
    /// must still be stoppable.
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

/// Everything the runtime knows about one pod, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodObservation {
    pub pod: PodRef,
    /// Newest first.
    pub sandboxes: Vec<SandboxObservation>,
    /// Newest first.
    pub containers: Vec<ContainerObservation>,
    /// When the listing that this was made from began. A decision that follows an act needs a later one.
    pub taken_at: MonoTime,
}

impl PodObservation {
    #[must_use]
    pub const fn empty(pod: PodRef, taken_at: MonoTime) -> Self {
        Self { pod, sandboxes: Vec::new(), containers: Vec::new(), taken_at }
    }

    /// The newest instance of the container of that name, if any.
    #[must_use]
    pub fn newest(&self, name: &str) -> Option<&ContainerObservation> {
        self.containers.iter().find(|c| &*c.name == name)
    }

    /// All instances of the container of that name, newest first.
    pub fn instances<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ContainerObservation> {
        self.containers.iter().filter(move |c| &*c.name == name)
    }

    #[must_use]
    pub fn container(&self, id: &ContainerId) -> Option<&ContainerObservation> {
        self.containers.iter().find(|c| c.id == *id)
    }

    pub fn running(&self) -> impl Iterator<Item = &ContainerObservation> {
        self.containers.iter().filter(|c| c.state == ContainerState::Running)
    }

    pub fn ready_sandboxes(&self) -> impl Iterator<Item = &SandboxObservation> {
        self.sandboxes.iter().filter(|s| s.state == SandboxState::Ready)
    }

    /// Nothing of the pod can still execute: no container that runs or may run, no ready sandbox.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let may_run = |c: &ContainerObservation| match c.state {
            ContainerState::Running | ContainerState::Unknown => true,
            ContainerState::Created | ContainerState::Exited => false,
        };
        !self.containers.iter().any(may_run) && self.ready_sandboxes().next().is_none()
    }

    /// The runtime has no trace of the pod.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}
