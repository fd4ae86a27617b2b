//! What the HTTP server may request from the agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use model::NodeLogOptions;
use model::dra::UsedClaim;
use model::explain::{Explanation, PodExplanation};
use model::inventory::PodSelection;
use model::k8s::Pod;

use crate::host::{DirEntry, OpenFile};
use crate::request_metrics::ServingObserver;
use crate::runtime::Streams;

/// One problem with a manifest, as `/debug/manifests` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestProblem {
    /// `file:/etc/kubernetes/manifests/web.yaml`, `url:http://…`.
    pub origin: String,
    /// Complete, with line and column where known.
    pub message: String,
}

/// A named health check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFailure {
    pub name: &'static str,
    pub message: String,
}

/// The pod of a streaming request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTarget {
    pub namespace: String,
    pub pod: String,
    /// Only the pod with this UID is meant.
    pub uid: Option<String>,
}

/// Which of a container's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogStream {
    Stdout,
    Stderr,
}

/// The container whose log is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSource {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    /// The log of the previous instance.
    pub previous: bool,
}

/// Which part of a log, and how it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogView {
    /// Go on until the container ends.
    pub follow: bool,
    /// Each line with the time at which it was written.
    pub timestamps: bool,
    pub since: Option<Timestamp>,
    /// So many lines from the end.
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
    /// Both where `None`.
    pub stream: Option<LogStream>,
}

/// Pieces of a log, each some kilobytes at most. An error is the last of them.
pub type LogPieces = BoxStream<'static, Result<Vec<u8>, String>>;

/// Pieces of a text, each some kilobytes for each pod at most.
pub type TextPieces = BoxStream<'static, String>;

/// Which measurements, in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurements {
    /// Of the node and its pods as JSON, `stats/v1alpha1`. A client that wants only CPU and memory gets the latest.
    Summary { only_cpu_and_memory: bool },
    /// CPU, memory and swap as Prometheus text.
    Resource,
    /// Everything about cgroups and the machine as Prometheus text.
    Cadvisor,
    /// Of probes, as Prometheus text.
    Probes,
    /// The results of the checks of `/healthz`, as Prometheus text.
    Checks,
    /// What the kubelet itself does, as Prometheus text.
    Kubelet,
}

/// Why a request about a pod failed. The texts are complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodRefusal {
    /// This node is not to run such a pod or container.
    #[error("{0}")]
    NotFound(String),
    /// The request cannot be served for this container now.
    #[error("{0}")]
    Invalid(String),
    /// The runtime or the disk failed.
    #[error("{0}")]
    Failed(String),
}

/// What is at a path below the directory of the node's own logs.
#[derive(Debug)]
pub enum SystemLog {
    Directory { modified: Timestamp, entries: Vec<DirEntry> },
    File { modified: Timestamp, size_bytes: u64, file: Box<dyn OpenFile> },
}

/// Why a log of the node cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SystemLogError {
    #[error("not found")]
    NotFound,
    #[error("permission denied")]
    Denied,
    #[error("{0}")]
    Failed(String),
}

/// A change of what this node reports of a pod, which has its current status.
#[derive(Clone, Debug, PartialEq)]
pub enum PodEvent {
    /// The first status of a pod.
    Added(Box<Pod>),
    Modified(Box<Pod>),
    /// Nothing of it is left on the node. It has its name, namespace and UID only.
    Deleted(Box<Pod>),
}

/// A reader of events was too slow: some are lost, and no more follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventsLost;

/// Changes of pods as they happen. The reader has a limited buffer.
pub type PodEvents = BoxStream<'static, Result<PodEvent, EventsLost>>;

/// One thread of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadFacts {
    pub id: u32,
    pub name: String,
    /// In the kernel's letters: `R` runs, `S` sleeps.
    pub state: char,
    pub cpu_time: Duration,
}

/// This process, as its debugging endpoints show and change it.
pub trait OwnProcess: Send + Sync + std::fmt::Debug {
    /// Every flag with the value in effect, sorted by name.
    fn flags(&self) -> Vec<(String, String)>;
    fn started(&self) -> Timestamp;
    /// The program and its arguments.
    fn command_line(&self) -> Vec<String>;
    /// Sets the verbosity of the log.
    fn set_verbosity(&self, level: u32);
    /// Empty if the kernel does not report threads.
    fn threads(&self) -> Vec<ThreadFacts>;
    /// Tasks that the process has started and that have not ended.
    fn tasks(&self) -> usize;
    /// Bytes of memory in use, by kind, as the kernel names them: `RssAnon`.
    fn memory(&self) -> Vec<(String, u64)>;
}

/// A device of a plugin, as monitoring agents identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDevice {
    pub resource: String,
    pub id: String,
    /// The NUMA nodes that it is near to; empty if the plugin does not report them.
    pub numa_nodes: Vec<i64>,
}

/// Memory of some NUMA nodes together, as monitoring agents see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// `memory` or `hugepages-<size>`.
    pub resource: String,
    pub bytes: u64,
    pub numa_nodes: Vec<i64>,
}

#[async_trait]
pub trait NodeApi: Send + Sync + std::fmt::Debug {
    /// The pods that this node is to run, each with its current status.
    fn pods(&self) -> Vec<Pod>;
    /// The changes of these pods from now on.
    fn watch_pods(&self) -> PodEvents {
        futures_util::stream::pending().boxed()
    }
    /// The pods that the runtime runs, as it reports them.
    async fn running_pods(&self) -> Result<Vec<Pod>, String>;
    /// The log of a container. It is read only as the stream is polled.
    async fn container_log(&self, source: &LogSource, view: &LogView) -> Result<LogPieces, PodRefusal>;
    /// Prepares a command in a running container. Returns the URL, good for one use, at which the runtime runs it.
    async fn exec(
        &self,
        pod: &PodTarget,
        container: &str,
        command: &[String],
        streams: Streams,
    ) -> Result<String, PodRefusal>;
    /// As [`Self::exec`], for the container's own process.
    async fn attach(&self, pod: &PodTarget, container: &str, streams: Streams) -> Result<String, PodRefusal>;
    /// As [`Self::exec`], for connections to ports of the pod.
    async fn port_forward(&self, pod: &PodTarget, ports: &[u16]) -> Result<String, PodRefusal>;
    /// Runs a command to its end and returns its output.
    async fn run(&self, pod: &PodTarget, container: &str, command: &[String]) -> Result<Vec<u8>, PodRefusal>;
    /// A file or directory below the directory of the node's own logs.
    async fn system_log(&self, inside: &Path) -> Result<SystemLog, SystemLogError>;
    /// The logs of services of the node. Errors are part of the text.
    async fn service_logs(&self, services: &[String], options: &NodeLogOptions) -> LogPieces;
    /// Writes the state of a running container to a file of the node and returns its path. `None`: the runtime has as
    /// long as for any other call.
    async fn checkpoint(
        &self,
        pod: &PodTarget,
        container: &str,
        timeout: Option<Duration>,
    ) -> Result<PathBuf, PodRefusal>;
    /// The devices that a container of the pod has.
    fn devices_of(&self, _pod: &Pod, _container: &str) -> Vec<NodeDevice> {
        Vec::new()
    }
    /// The ResourceClaims that a container of the pod uses.
    fn claims_of(&self, _pod: &Pod, _container: &str) -> Vec<UsedClaim> {
        Vec::new()
    }
    /// The devices that containers can have, allocated or not.
    fn allocatable_devices(&self) -> Vec<NodeDevice> {
        Vec::new()
    }
    /// The CPUs that a container of the pod has for itself.
    fn cpus_of(&self, _pod: &Pod, _container: &str) -> Vec<i64> {
        Vec::new()
    }
    /// The CPUs that containers can have for themselves, allocated or not.
    fn allocatable_cpus(&self) -> Vec<i64> {
        Vec::new()
    }
    /// The memory of NUMA nodes that a container of the pod has for itself.
    fn memory_of(&self, _pod: &Pod, _container: &str) -> Vec<NodeMemory> {
        Vec::new()
    }
    /// The memory that containers can have for themselves, allocated or not.
    fn allocatable_memory(&self) -> Vec<NodeMemory> {
        Vec::new()
    }
    /// Device plugins can register.
    fn takes_device_plugins(&self) -> bool {
        true
    }
    /// The observer of the server's requests.
    fn observer(&self) -> Option<Arc<dyn ServingObserver>> {
        None
    }
    /// What is wrong with manifests right now.
    fn manifest_problems(&self) -> Vec<ManifestProblem>;
    /// Why pods are as they are. Pods that are gone are among them as long as the node remembers them; they have no labels.
    fn explain_pods(&self, _of: &PodSelection) -> Vec<PodExplanation> {
        Vec::new()
    }
    /// Why the node is as it is.
    fn explain_node(&self) -> Explanation {
        Explanation::default()
    }
    /// How long ago the last iteration of the sync loop was, and how long is too long.
    fn sync_loop_age(&self) -> (Duration, Duration);
    /// The measurements, in pieces that are computed as the stream is polled.
    ///
    /// # Errors
    /// Nothing can be measured; the text contains the reason.
    async fn measurements(&self, what: Measurements) -> Result<TextPieces, String>;
}
