//! Putting the tasks together.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::request::NodeFacts;
use model::PodSource;
use model::k8s::Quantity;
use ports::{Clock, Host, HostError, Net, NodeApi, Runtime};
use tokio::sync::{mpsc, watch};

use crate::api::AgentApi;
use crate::cache::PodCache;
use crate::chance::Chance;
use crate::collect::Collector;
use crate::engine::Engine;
use crate::events::Recorder;
use crate::images::{Images, read_keyring};
use crate::log_rotation::LogRotation;
use crate::metrics::Metrics;
use crate::node::{NodeView, NodeWatch};
use crate::pleg::Pleg;
use crate::pods_view::PodsView;
use crate::settings::Settings;
use crate::sources::file::FileSource;
use crate::sources::http::HttpSource;
use crate::sources::{ManifestProblems, SourceSet};
use crate::sync_loop::{Heartbeat, SourcesReadiness, SyncLoop};
use crate::tasks::TaskSet;
use crate::user_namespaces::PodIds;

/// Sources that have something to say wait here while the loop is busy; there are at most three of them.
const SET_QUEUE: usize = 8;

/// The outside world.
#[derive(Clone, Debug)]
pub struct Doors {
    pub runtime: Arc<dyn Runtime>,
    pub host: Arc<dyn Host>,
    pub net: Arc<dyn Net>,
    pub clock: Clock,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    engine: Arc<Engine>,
    problems: ManifestProblems,
    heartbeat: Heartbeat,
    sources_ready: watch::Receiver<bool>,
}

impl Agent {
    /// Makes the directories and starts every task. `seed` feeds what is random.
    ///
    /// # Errors
    /// A directory of the kubelet cannot be made.
    pub async fn start(
        doors: Doors,
        settings: Settings,
        node_facts: NodeFacts,
        seed: u64,
    ) -> Result<Self, HostError> {
        make_directories(&*doors.host, &settings).await?;
        let (tasks, recorder, metrics) = (TaskSet::new(), Recorder::default(), Arc::new(Metrics::default()));
        let cache = PodCache::default();
        let (pleg, pleg_handle) =
            Pleg::new(doors.runtime.clone(), doors.clock, cache.clone(), metrics.clone());
        let (node_sender, node) = watch::channel(NodeView::default());
        let keyring = read_keyring(&*doors.host, &settings.images).await;
        let images =
            Images::new(doors.runtime.clone(), doors.clock, recorder.clone(), &settings.images, keyring);
        let pod_ids = PodIds::load(&*doors.host, &settings).await?;
        let engine = Arc::new(Engine {
            allocatable: capacity(&*doors.host),
            images,
            pod_ids,
            cache,
            pleg: pleg_handle,
            node,
            pods: PodsView::default(),
            metrics,
            recorder,
            tasks: tasks.clone(),
            chance: Chance::from_seed(seed),
            runtime: doors.runtime.clone(),
            host: doors.host.clone(),
            net: doors.net.clone(),
            clock: doors.clock,
            settings,
            node_facts,
        });
        engine.recorder.node_normal("Starting", "Starting kubelet.");
        let node_watch = NodeWatch {
            runtime: doors.runtime,
            clock: doors.clock,
            pleg: engine.pleg.clone(),
            recorder: engine.recorder.clone(),
            view: node_sender,
        };
        tasks.spawn("node watch", node_watch.run());
        tasks.spawn("PLEG", pleg.run());
        tasks.spawn("log rotation", LogRotation::new(engine.clone()).run());
        let (problems, heartbeat) = (ManifestProblems::default(), Heartbeat::default());
        let readiness = SourcesReadiness::default();
        start_loop(&engine, &problems, &heartbeat, readiness.clone());
        let sources_ready = readiness.reported.subscribe();
        tasks.spawn("collector", Collector::new(engine.clone(), readiness.complete.subscribe()).run());
        Ok(Self { engine, problems, heartbeat, sources_ready })
    }

    /// The agent as the HTTP server sees it.
    #[must_use]
    pub fn api(&self) -> Arc<dyn NodeApi> {
        Arc::new(AgentApi {
            engine: self.engine.clone(),
            problems: self.problems.clone(),
            heartbeat: self.heartbeat.clone(),
        })
    }

    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.engine.recorder
    }

    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    #[must_use]
    pub fn manifest_problems(&self) -> &ManifestProblems {
        &self.problems
    }

    /// True once every source has reported.
    #[must_use]
    pub fn sources_ready(&self) -> watch::Receiver<bool> {
        self.sources_ready.clone()
    }

    /// How many pods all sources together ask for.
    #[must_use]
    pub fn desired_pods(&self) -> usize {
        self.engine.metrics.desired()
    }

    /// Ends every task. Containers and volumes stay as they are: the next kubelet takes them over.
    pub async fn stop(&self) {
        self.engine.tasks.stop().await;
    }
}

async fn make_directories(host: &dyn Host, settings: &Settings) -> Result<(), HostError> {
    let root = &settings.paths.root;
    for dir in [root.clone(), settings.paths.pods(), root.join("plugins"), root.join("plugins_registry")] {
        host.ensure_dir(&dir, 0o750).await?;
    }
    host.ensure_dir(&settings.paths.pod_logs, 0o750).await?;
    host.ensure_dir(&settings.paths.container_links, 0o755).await
}

/// Starts the sources and the loop that merges them.
fn start_loop(
    engine: &Arc<Engine>,
    problems: &ManifestProblems,
    heartbeat: &Heartbeat,
    readiness: SourcesReadiness,
) {
    let (sets, received) = mpsc::channel::<SourceSet>(SET_QUEUE);
    let settings = &engine.settings.sources;
    let mut expected = Vec::new();
    if let Some(path) = &settings.manifest_path {
        expected.push(PodSource::File);
        let source = FileSource {
            host: engine.host.clone(),
            clock: engine.clock,
            path: path.clone(),
            period: settings.file_check_frequency,
            node_name: engine.settings.node_name.clone(),
            problems: problems.clone(),
            sets: sets.clone(),
        };
        engine.tasks.spawn("file source", source.run());
    }
    if let Some(url) = &settings.manifest_url {
        expected.push(PodSource::Http);
        let source = HttpSource {
            net: engine.net.clone(),
            clock: engine.clock,
            url: url.clone(),
            headers: settings.manifest_headers.clone(),
            period: settings.http_check_frequency,
            node_name: engine.settings.node_name.clone(),
            problems: problems.clone(),
            sets,
        };
        engine.tasks.spawn("http source", source.run());
    }
    let sync_loop = SyncLoop::new(engine.clone(), heartbeat.clone(), received, expected, readiness);
    engine.tasks.spawn("sync loop", sync_loop.run());
}

/// What a container without limits may use: the whole machine, as long as nothing is reserved.
fn capacity(host: &dyn Host) -> BTreeMap<String, Quantity> {
    let machine = host.machine();
    BTreeMap::from([
        ("cpu".to_owned(), Quantity(machine.cpus.to_string())),
        ("memory".to_owned(), Quantity(machine.memory_bytes.to_string())),
    ])
}
