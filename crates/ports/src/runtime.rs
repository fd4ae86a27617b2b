//! The container runtime, in CRI semantics and our own types.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use model::request::{
    ContainerRequest, ExecResult, ImageObservation, ImageRequest, LinuxResources, RegistryAuth,
    SandboxRequest,
};
use model::stats::{ContainerStats, FilesystemUsage, MetricDescriptor, SandboxMetrics, SandboxStats};
use model::{
    CgroupDriver, ContainerId, ContainerObservation, ContainerState, PodRef, PodUid, SandboxId,
    SandboxObservation, SandboxState,
};

/// Why a call to the runtime failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The runtime has no such object. For a stop or remove this means success.
    #[error("{call}: not found: {message}")]
    NotFound { call: &'static str, message: String },
    /// The runtime holds the name already: an earlier create may have succeeded although no answer was received.
    #[error("{call}: already exists: {message}")]
    AlreadyExists { call: &'static str, message: String },
    /// No answer within the call's deadline. The effect of the call may have happened.
    #[error("{call}: no answer within {deadline:?}")]
    TimedOut { call: &'static str, deadline: Duration },
    /// No process listens on the socket, or the connection broke. The effect of the call may have happened.
    #[error("{call}: the container runtime cannot be reached: {message}")]
    Unavailable { call: &'static str, message: String },
    /// This runtime does not offer the call.
    #[error("{call}: not offered by this runtime: {message}")]
    Unimplemented { call: &'static str, message: String },
    /// The runtime answered with an error.
    #[error("{call}: {message}")]
    Failed { call: &'static str, message: String },
}

impl RuntimeError {
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// The name of the call that failed, as in the CRI.
    #[must_use]
    pub const fn call(&self) -> &'static str {
        match self {
            Self::NotFound { call, .. }
            | Self::AlreadyExists { call, .. }
            | Self::TimedOut { call, .. }
            | Self::Unavailable { call, .. }
            | Self::Unimplemented { call, .. }
            | Self::Failed { call, .. } => call,
        }
    }

    /// Whether the effect of the call may have happened in spite of the error; only the runtime's status shows it.
    #[must_use]
    pub const fn is_uncertain(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Unavailable { .. } | Self::AlreadyExists { .. })
    }

    /// The runtime's message without the name of the call: the text that container states and events show.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::NotFound { message, .. }
            | Self::AlreadyExists { message, .. }
            | Self::Unavailable { message, .. }
            | Self::Unimplemented { message, .. }
            | Self::Failed { message, .. } => message.clone(),
            Self::TimedOut { .. } => "context deadline exceeded".to_owned(),
        }
    }

    /// The same with the gRPC status, as the Go kubelet shows errors that it does not unpack.
    #[must_use]
    pub fn rpc_message(&self) -> String {
        let code = match self {
            Self::NotFound { .. } => "NotFound",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::TimedOut { .. } => "DeadlineExceeded",
            Self::Unavailable { .. } => "Unavailable",
            Self::Unimplemented { .. } => "Unimplemented",
            Self::Failed { .. } => "Unknown",
        };
        format!("rpc error: code = {code} desc = {}", self.message())
    }
}

pub type RuntimeResult<T> = Result<T, RuntimeError>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// The version of the kubelet's side of the protocol, `0.1.0`.
    pub api: String,
    /// `containerd`, `cri-o`: the prefix of container ids in the API.
    pub name: String,
    pub version: String,
    pub runtime_api: String,
}

/// A condition as the runtime reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCondition {
    pub status: bool,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    pub runtime_ready: RuntimeCondition,
    pub network_ready: RuntimeCondition,
    pub handlers: Vec<RuntimeHandler>,
    pub supplemental_groups_policy: bool,
    /// Pods in the network of the node may have user namespaces.
    pub user_namespaces_host_network: bool,
}

/// What one runtime handler (RuntimeClass) can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeHandler {
    pub name: String,
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

/// An entry of the container listing: enough to see what changed, without a call for each container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSummary {
    pub id: ContainerId,
    pub sandbox_id: SandboxId,
    /// Of its labels; empty if it has none of the kubelet.
    pub pod: PodRef,
    pub name: Arc<str>,
    pub attempt: u32,
    pub state: ContainerState,
    /// The id of its image, or a reference by digest; shared by the containers of one image.
    pub image_id: Arc<str>,
}

/// An entry of the sandbox listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSummary {
    pub id: SandboxId,
    pub pod: PodRef,
    pub attempt: u32,
    pub state: SandboxState,
}

/// A hint that something happened to a pod. Never a source of truth: it only triggers a relist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeHint {
    pub pod: PodUid,
}

/// Where the runtime keeps images, and where the writable layers of containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFilesystems {
    pub images: Vec<FilesystemUsage>,
    /// The same as `images` on most nodes; empty if the runtime does not distinguish them.
    pub containers: Vec<FilesystemUsage>,
}

/// Which streams of a process a caller wants to be connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four switches of the protocol, each on its own")]
pub struct Streams {
    /// A terminal; it has one output, so `stderr` must be off.
    pub tty: bool,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

/// Which pods are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Node,
    Pod(PodUid),
}

/// Counts calls to the runtime. Called after each, so it must return quickly.
pub trait CallObserver: Send + Sync + std::fmt::Debug {
    /// `call` as the protocol names it: `RunPodSandbox`.
    fn called(&self, call: &'static str, took: Duration, is_ok: bool);

    /// An entry in the answer to that call is malformed, and was left out.
    fn entry_malformed(&self, call: &'static str);
}

/// The container runtime. Every call has a deadline of its own; none is retried here.
#[async_trait]
pub trait Runtime: Send + Sync + std::fmt::Debug {
    /// Reports every later call to `observer`. Only the first observer is kept; a runtime without a connection reports nothing.
    fn observe(&self, _observer: Arc<dyn CallObserver>) {}

    async fn version(&self) -> RuntimeResult<RuntimeVersion>;
    async fn status(&self) -> RuntimeResult<RuntimeStatus>;
    /// The cgroup driver that the runtime uses; `Unimplemented` if it does not report it.
    async fn cgroup_driver(&self) -> RuntimeResult<CgroupDriver>;

    async fn list_sandboxes(&self, scope: &Scope) -> RuntimeResult<Vec<SandboxSummary>>;
    async fn list_containers(&self, scope: &Scope) -> RuntimeResult<Vec<ContainerSummary>>;
    async fn sandbox_status(&self, id: &SandboxId) -> RuntimeResult<SandboxObservation>;
    /// The runtime's verbose status of a sandbox (JSON); empty if it reports none.
    async fn sandbox_info(&self, id: &SandboxId) -> RuntimeResult<String>;
    async fn container_status(&self, id: &ContainerId) -> RuntimeResult<ContainerObservation>;

    /// Creates and starts a sandbox; allowed twice the usual deadline, because it sets up the network.
    async fn run_sandbox(&self, request: &SandboxRequest) -> RuntimeResult<SandboxId>;
    /// Stops a sandbox and whatever still runs in it. Idempotent.
    async fn stop_sandbox(&self, id: &SandboxId) -> RuntimeResult<()>;
    /// Removes a sandbox and its containers. Idempotent.
    async fn remove_sandbox(&self, id: &SandboxId) -> RuntimeResult<()>;

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        request: &ContainerRequest,
        sandbox_request: &SandboxRequest,
    ) -> RuntimeResult<ContainerId>;
    async fn start_container(&self, id: &ContainerId) -> RuntimeResult<()>;
    /// Signals the container and kills it after `grace`; waits for that. Idempotent.
    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> RuntimeResult<()>;
    /// Removes a container (kills it if it runs). Idempotent.
    async fn remove_container(&self, id: &ContainerId) -> RuntimeResult<()>;
    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> RuntimeResult<()>;
    /// Passes the resources of the pod to the runtime, of which `overhead` is the sandbox's own. Best effort: the
    /// cgroups are the kubelet's, and `Unimplemented` (containerd before 2.2) is no reason to stop.
    async fn update_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> RuntimeResult<()>;
    /// Writes the state of a running container to the file `location`. The deadline is `timeout`, or the usual one if
    /// that is longer.
    async fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &str,
        timeout: Duration,
    ) -> RuntimeResult<()>;
    /// Lets the runtime reopen the log file, because it was renamed.
    async fn reopen_log(&self, id: &ContainerId) -> RuntimeResult<()>;
    /// Runs a command in the container. `timeout` is enforced by the runtime, which kills the command; zero means none.
    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> RuntimeResult<ExecResult>;
    /// Prepares a command in the container. Returns the URL of the runtime's streaming server; the command starts when a
    /// client connects, and the URL works once.
    async fn exec(&self, id: &ContainerId, command: &[String], streams: Streams) -> RuntimeResult<String>;
    /// As [`Self::exec`], for the container's own process.
    async fn attach(&self, id: &ContainerId, streams: Streams) -> RuntimeResult<String>;
    /// As [`Self::exec`], for connections to ports in the sandbox's network.
    async fn port_forward(&self, id: &SandboxId, ports: &[u16]) -> RuntimeResult<String>;

    /// The stats of one container.
    async fn container_stats(&self, id: &ContainerId) -> RuntimeResult<ContainerStats>;
    async fn list_container_stats(&self, scope: &Scope) -> RuntimeResult<Vec<ContainerStats>>;
    /// The stats of one sandbox, its containers included.
    async fn sandbox_stats(&self, id: &SandboxId) -> RuntimeResult<SandboxStats>;
    async fn list_sandbox_stats(&self, scope: &Scope) -> RuntimeResult<Vec<SandboxStats>>;
    /// Which metrics [`Self::list_sandbox_metrics`] gives; `Unimplemented` on most runtimes.
    async fn list_metric_descriptors(&self) -> RuntimeResult<Vec<MetricDescriptor>>;
    /// Samples for `/metrics/cadvisor`, of every sandbox.
    async fn list_sandbox_metrics(&self) -> RuntimeResult<Vec<SandboxMetrics>>;

    /// Hints about pods, where the runtime offers them (`Unimplemented` otherwise). The stream ends with the connection.
    async fn hints(&self) -> RuntimeResult<BoxStream<'static, RuntimeHint>>;

    async fn list_images(&self) -> RuntimeResult<Vec<ImageObservation>>;
    /// The image, or `None` if the runtime does not have it.
    async fn image_status(&self, image: &ImageRequest) -> RuntimeResult<Option<ImageObservation>>;
    /// Fetches an image; returns what to pass to `create_container`. No deadline of its own.
    async fn pull_image(
        &self,
        image: &ImageRequest,
        auth: Option<&RegistryAuth>,
        sandbox: &SandboxRequest,
    ) -> RuntimeResult<String>;
    async fn remove_image(&self, image: &ImageRequest) -> RuntimeResult<()>;
    async fn image_filesystems(&self) -> RuntimeResult<ImageFilesystems>;
    /// Passes the node's pod CIDR to the runtime.
    async fn set_pod_cidr(&self, cidr: &str) -> RuntimeResult<()>;
}
