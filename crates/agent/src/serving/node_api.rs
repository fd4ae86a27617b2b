//! Implements `NodeApi` for the server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api_agent::csi::CsiApi;
use api_agent::meta::key_of_pod;
use async_trait::async_trait;
use base_agent::pods_view::{PodChange, PodEntry};
use futures_util::{StreamExt, stream};
use model::containers::find_container;
use model::cpu_set::CpuSet;
use model::dra::UsedClaim;
use model::explain::{Explanation, PodExplanation};
use model::inventory::PodSelection;
use model::k8s::Pod;
use model::{NodeLogOptions, PodRef, PodUid};
use ports::NodeApi;
use ports::node_api::{
    EventsLost, LogPieces, LogSource, LogView, ManifestProblem, Measurements, NodeDevice, NodeMemory,
    PodEvent, PodEvents, PodRefusal, PodTarget, SystemLog, SystemLogError, TextPieces,
};
use ports::request_metrics::ServingObserver;
use ports::runtime::Streams;
use resources_core::memory::Block;
use sources_agent::ManifestProblems;
use stats_agent::Samplers;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast};

use crate::heartbeat::{Heartbeat, STUCK_AFTER};
use crate::metrics::{RequestMetrics, WaitMetrics};
use crate::node_view::OtherProblems;
use crate::pods::handles::PodHandles;
use crate::serving::pod_lookup::PodLookup;
use crate::serving::{
    checkpoints, container_logs, explain, measurements, running_pods, streams, system_logs,
};

/// Answers requests from the shared views, the runtime and files.
#[derive(Clone, Debug)]
pub struct AgentApi {
    pub(crate) lookup: PodLookup,
    pub(crate) handles: Arc<PodHandles>,
    pub(crate) problems: ManifestProblems,
    pub(crate) heartbeat: Heartbeat,
    /// Permits for log followers that use an inotify watch.
    pub(crate) log_watches: Arc<Semaphore>,
    pub(crate) journal_queries: Arc<Semaphore>,
    pub(crate) samplers: Samplers,
    /// `None` for a standalone kubelet.
    pub(crate) csi: Option<CsiApi>,
}

impl AgentApi {
    fn facts(&self) -> explain::Facts<'_> {
        explain::Facts { handles: &self.handles, lookup: &self.lookup, samplers: &self.samplers }
    }
}

fn node_memory(block: &Block) -> NodeMemory {
    NodeMemory {
        resource: block.resource.clone(),
        bytes: block.bytes,
        numa_nodes: block.numa.ids().map(i64::from).collect(),
    }
}

/// The pod with its current status.
pub(super) fn with_status(entry: PodEntry) -> Pod {
    let mut pod = Arc::unwrap_or_clone(entry.pod);
    pod.status = Some(Arc::unwrap_or_clone(entry.status));
    pod
}

/// Ends after the first lost event: its reader has to list the pods again.
fn pod_events(changes: broadcast::Receiver<PodChange>) -> PodEvents {
    let next = |changes: Option<broadcast::Receiver<PodChange>>| async move {
        let mut changes = changes?;
        match changes.recv().await {
            Ok(change) => Some((Ok(pod_event(change)), Some(changes))),
            Err(RecvError::Lagged(_)) => Some((Err(EventsLost), None)),
            Err(RecvError::Closed) => None,
        }
    };
    stream::unfold(Some(changes), next).boxed()
}

fn pod_event(change: PodChange) -> PodEvent {
    match change {
        PodChange::Added(entry) => PodEvent::Added(Box::new(with_status(entry))),
        PodChange::Modified(entry) => PodEvent::Modified(Box::new(with_status(entry))),
        PodChange::Deleted(pod) => {
            let mut named = Pod::default();
            named.metadata.name = Some(pod.name.to_string());
            named.metadata.namespace = Some(pod.namespace.to_string());
            named.metadata.uid = Some(pod.uid.to_string());
            PodEvent::Deleted(Box::new(named))
        }
    }
}

#[async_trait]
impl NodeApi for AgentApi {
    fn pods(&self) -> Vec<Pod> {
        self.lookup.pods.all().into_iter().map(with_status).collect()
    }

    fn watch_pods(&self) -> PodEvents {
        pod_events(self.lookup.pods.watch())
    }

    async fn running_pods(&self) -> Result<Vec<Pod>, String> {
        running_pods::list(&self.lookup).await.map_err(|error| error.to_string())
    }

    async fn container_log(&self, source: &LogSource, view: &LogView) -> Result<LogPieces, PodRefusal> {
        container_logs::open(&self.lookup, &self.log_watches, source, view).await
    }

    async fn exec(
        &self,
        pod: &PodTarget,
        container: &str,
        command: &[String],
        streams: Streams,
    ) -> Result<String, PodRefusal> {
        streams::exec(&self.lookup, pod, container, command, streams).await
    }

    async fn attach(&self, pod: &PodTarget, container: &str, streams: Streams) -> Result<String, PodRefusal> {
        streams::attach(&self.lookup, pod, container, streams).await
    }

    async fn port_forward(&self, pod: &PodTarget, ports: &[u16]) -> Result<String, PodRefusal> {
        streams::port_forward(&self.lookup, pod, ports).await
    }

    async fn run(&self, pod: &PodTarget, container: &str, command: &[String]) -> Result<Vec<u8>, PodRefusal> {
        streams::run(&self.lookup, pod, container, command).await
    }

    async fn system_log(&self, inside: &Path) -> Result<SystemLog, SystemLogError> {
        system_logs::open(&self.lookup.ctx, inside).await
    }

    async fn service_logs(&self, services: &[String], options: &NodeLogOptions) -> LogPieces {
        system_logs::of_services(&self.lookup.ctx, &self.journal_queries, services, options).await
    }

    async fn checkpoint(
        &self,
        pod: &PodTarget,
        container: &str,
        timeout: Option<Duration>,
    ) -> Result<PathBuf, PodRefusal> {
        checkpoints::write(&self.lookup, pod, container, timeout).await
    }

    fn devices_of(&self, pod: &Pod, container: &str) -> Vec<NodeDevice> {
        let uid = PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default());
        self.handles.resources.devices.of_container(&uid, container)
    }

    fn claims_of(&self, pod: &Pod, container: &str) -> Vec<UsedClaim> {
        let Some(container) = find_container(pod, container) else { return Vec::new() };
        let key = key_of_pod(&PodRef::of(pod));
        let in_api = self.lookup.in_api.borrow();
        let status = in_api.objects.get(&key).and_then(|pod| pod.status.clone());
        self.handles.resources.claims.of_container(pod, status.as_deref(), &container)
    }

    fn allocatable_devices(&self) -> Vec<NodeDevice> {
        self.handles.resources.devices.allocatable()
    }

    fn cpus_of(&self, pod: &Pod, container: &str) -> Vec<i64> {
        self.handles.resources.admissions.read(|table| {
            let exclusive = table.pinned().1.cpus.exclusive(&PodRef::of(pod).uid, container);
            exclusive.into_iter().flat_map(CpuSet::iter).map(i64::from).collect()
        })
    }

    fn allocatable_cpus(&self) -> Vec<i64> {
        let cpus = self.handles.resources.admissions.read(|table| table.pinned().0.cpus().allocatable());
        cpus.iter().map(i64::from).collect()
    }

    fn memory_of(&self, pod: &Pod, container: &str) -> Vec<NodeMemory> {
        self.handles.resources.admissions.read(|table| {
            let blocks = table.pinned().1.memory.of_container(&PodRef::of(pod).uid, container);
            blocks.into_iter().flatten().map(node_memory).collect()
        })
    }

    fn allocatable_memory(&self) -> Vec<NodeMemory> {
        let blocks = self.handles.resources.admissions.read(|table| table.pinned().1.memory.allocatable());
        blocks.iter().map(node_memory).collect()
    }

    fn takes_device_plugins(&self) -> bool {
        self.handles.resources.devices.is_serving()
    }

    fn observer(&self) -> Option<Arc<dyn ServingObserver>> {
        Some(self.lookup.ctx.metrics.get::<RequestMetrics>())
    }

    fn manifest_problems(&self) -> Vec<ManifestProblem> {
        self.problems.all()
    }

    fn explain_node(&self) -> Explanation {
        let node = &self.handles.node;
        let others = OtherProblems {
            pleg: self.handles.pleg.problem(self.lookup.ctx.clock.mono()),
            storage: self.csi.as_ref().and_then(|csi| csi.nodes.problem().borrow().clone()),
            is_shutting_down: *node.shutting_down.borrow(),
            cgroups: node.cgroup_problems.texts(),
        };
        let problems = node.view.borrow().problems(others, self.lookup.ctx.clock.mono());
        explain::node(self.facts(), problems, self.problems.all().len())
    }

    fn explain_pods(&self, of: &PodSelection) -> Vec<PodExplanation> {
        explain::pods(self.facts(), of)
    }

    fn sync_loop_age(&self) -> (Duration, Duration) {
        let now = self.lookup.ctx.clock.mono().since_start();
        // After an essential task panicked, the loop counts as stuck.
        let age = match self.lookup.ctx.tasks.failed().is_cancelled() {
            true => now.saturating_add(STUCK_AFTER),
            false => now.saturating_sub(self.heartbeat.last()),
        };
        (age, STUCK_AFTER)
    }

    async fn measurements(&self, what: Measurements) -> Result<TextPieces, String> {
        if what == Measurements::Kubelet {
            self.lookup.ctx.metrics.get::<WaitMetrics>().set_waiting(explain::waiting(self.facts()));
        }
        measurements::measurements(&self.handles, &self.samplers, what).await
    }
}
