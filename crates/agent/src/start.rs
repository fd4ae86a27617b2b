//! Putting the tasks together.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::CGROUP_V1_WARNING;
use kubelet_core::cgroup::CgroupNames;
use kubelet_core::firewall::Family;
use kubelet_core::kernel::{MEMORY_ON_DISK, compute_swap_warning};
use kubelet_core::node::{NodePressure, compute_allocatable, compute_capacity, reserved_amounts};
use kubelet_core::request::NodeFacts;
use model::k8s::{Node, Pod, Quantity};
use model::{CgroupDriver, PodSource};
use ports::{Cgroups, Clock, Host, HostError, Net, NodeApi, Plugins, Runtime, Shutdown};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::api::AgentApi;
use crate::cache::PodCache;
use crate::cgroup_driver::DriverQuestion;
use crate::cluster::objects::ClusterObjects;
use crate::cluster::reflector::Store;
use crate::cluster::{self, ApiClients, LoopSide};
use crate::container_garbage_collection::ContainerGarbageCollector;
use crate::container_logs::MAX_WATCHES;
use crate::devices::Devices;
use crate::engine::Engine;
use crate::events::Recorder;
use crate::eviction::{Evictor, Removers};
use crate::firewall::Firewall;
use crate::images::Images;
use crate::images::garbage_collection::ImageGarbageCollector;
use crate::log_rotation::LogRotation;
use crate::metrics::Metrics;
use crate::node::{NodeView, NodeWatch};
use crate::node_cgroups::NodeCgroups;
use crate::oom_watcher;
use crate::pass::prepare::check_node_dns;
use crate::pleg::Pleg;
use crate::pod_cidr;
use crate::pods_view::PodsView;
use crate::probe_metrics::ProbeMetrics;
use crate::rng::Rng;
use crate::settings::{NodeSettings, Settings};
use crate::shutdown::ShutdownTask;
use crate::sources::file::FileSource;
use crate::sources::http::HttpSource;
use crate::sources::{ManifestProblems, SourceSet};
use crate::stats::Samplers;
use crate::sync_loop::{Heartbeat, SourcesReadiness, SyncLoop};
use crate::system_logs::MAX_JOURNAL_QUERIES;
use crate::system_processes::SystemProcesses;
use crate::tasks::TaskSet;
use crate::user_namespaces::PodIds;
use crate::volumes::{Requests, VolumeEngine, Volumes};

/// Sources that have something to say wait here while the loop is busy; there are at most three of them.
const SET_QUEUE: usize = 8;

/// The outside world.
#[derive(Clone, Debug)]
pub struct Ports {
    pub runtime: Arc<dyn Runtime>,
    pub host: Arc<dyn Host>,
    pub cgroups: Arc<dyn Cgroups>,
    pub net: Arc<dyn Net>,
    pub shutdown: Arc<dyn Shutdown>,
    pub plugins: Arc<dyn Plugins>,
    pub clock: Clock,
    /// `None` for a kubelet that stands alone.
    pub cluster: Option<ApiClients>,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    engine: Arc<Engine>,
    problems: ManifestProblems,
    heartbeat: Heartbeat,
    sources_ready: watch::Receiver<bool>,
    samplers: Samplers,
    given_up: CancellationToken,
}

impl Agent {
    /// Makes the directories and starts every task. `seed` feeds what is random.
    ///
    /// # Errors
    /// A directory of the kubelet cannot be made.
    pub async fn start(
        ports: Ports,
        settings: Settings,
        node_facts: NodeFacts,
        seed: u64,
    ) -> Result<Self, HostError> {
        make_directories(&*ports.host, &settings).await?;
        let (engine, ends) = engine(&ports, settings, node_facts, seed).await?;
        engine.recorder.node_normal("Starting", "Starting kubelet.");
        if !engine.node_facts.cgroup_v2 {
            engine.recorder.node_warning("CgroupV1", CGROUP_V1_WARNING);
        }
        let swap_bytes = engine.host.machine().swap_bytes;
        if let Some(warning) = compute_swap_warning(swap_bytes, engine.host.keeps_tmpfs_in_memory()) {
            engine.recorder.node_warning(MEMORY_ON_DISK, warning);
        }
        let (own_node, pods, pressure) = (ends.own_node.clone(), ends.pods.clone(), ends.pressure.clone());
        let given_up = ends.spawn(&engine, &ports);
        let (problems, heartbeat) = (ManifestProblems::default(), Heartbeat::default());
        let readiness = SourcesReadiness::default();
        engine.devices.start(readiness.complete.subscribe())?;
        let api_sets = start_loop(&engine, &problems, &heartbeat, readiness.clone());
        if let (Some(cluster), Some(sets)) = (&ports.cluster, api_sets) {
            let (wanted, sources) = (readiness.static_pods.subscribe(), readiness.complete.subscribe());
            let side = LoopSide { sets, own_node, pods, wanted, sources };
            cluster::start(&engine, cluster, side).await;
        }
        let sources_ready = readiness.reported.subscribe();
        let samplers = Samplers::start(&engine);
        start_collecting(&engine, &samplers, &readiness, pressure);
        Ok(Self { engine, problems, heartbeat, sources_ready, samplers, given_up })
    }

    /// The agent as the HTTP server sees it.
    #[must_use]
    pub fn api(&self) -> Arc<dyn NodeApi> {
        Arc::new(AgentApi {
            engine: self.engine.clone(),
            problems: self.problems.clone(),
            heartbeat: self.heartbeat.clone(),
            log_watches: Arc::new(Semaphore::new(MAX_WATCHES)),
            journal_queries: Arc::new(Semaphore::new(MAX_JOURNAL_QUERIES)),
            samplers: self.samplers.clone(),
        })
    }

    /// Cancelled, with the reason in the log, when the kubelet cannot do its work and must end.
    #[must_use]
    pub const fn given_up(&self) -> &CancellationToken {
        &self.given_up
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

/// What the engine's watches show is written by these ends, each by one task.
struct Ends {
    pleg: Pleg,
    node: watch::Sender<NodeView>,
    own_node: watch::Sender<Store<Node>>,
    pods: watch::Sender<Store<Pod>>,
    cgroup_driver: watch::Sender<Option<CgroupDriver>>,
    cgroup_names: watch::Sender<Option<Arc<CgroupNames>>>,
    pressure: watch::Sender<NodePressure>,
    shutting_down: watch::Sender<bool>,
    volume_requests: Requests,
}

async fn engine(
    ports: &Ports,
    settings: Settings,
    node_facts: NodeFacts,
    seed: u64,
) -> Result<(Arc<Engine>, Ends), HostError> {
    let (tasks, metrics) = (TaskSet::new(), Arc::new(Metrics::default()));
    let recorder = Recorder::new(ports.clock);
    ports.runtime.observe(metrics.clone());
    let cache = PodCache::default();
    let (runtime, features) = (ports.runtime.clone(), node_facts.features);
    let (pleg, pleg_handle) = Pleg::new(runtime, ports.clock, cache.clone(), metrics.clone(), features);
    let (node_sender, node) = watch::channel(NodeView::default());
    let (own_node_sender, own_node) = watch::channel(Store::default());
    let (pods_sender, pods_in_api) = watch::channel(Store::default());
    let (driver_sender, cgroup_driver) = watch::channel(None);
    let (names_sender, cgroup_names) = watch::channel(None);
    let (pressure_sender, pressure) = watch::channel(NodePressure::default());
    let (shutting_down_sender, shutting_down) = watch::channel(false);
    let (volumes, volume_requests) = Volumes::new();
    let root = settings.paths.root.clone();
    let devices = Devices::load(ports, root, tasks.clone(), metrics.clone()).await?;
    let engine = Arc::new(Engine {
        own_allocatable: own_allocatable(&*ports.host, &settings),
        objects: cluster_objects(ports, &settings),
        images: Images::start(ports, &settings, recorder.clone(), metrics.clone(), &tasks).await?,
        pod_ids: PodIds::load(&*ports.host, &settings).await?,
        volumes,
        cache,
        pleg: pleg_handle,
        node,
        cgroup_driver,
        cgroup_names,
        leftovers: Arc::new(Notify::new()),
        node_addresses: watch::channel(Vec::new()).0,
        pods: PodsView::default(),
        admissions: devices.admissions(),
        devices,
        pressure,
        shutting_down,
        own_node,
        pods_in_api,
        metrics,
        probe_metrics: ProbeMetrics::default(),
        recorder,
        tasks,
        rng: Rng::from_seed(seed),
        runtime: ports.runtime.clone(),
        host: ports.host.clone(),
        cgroups: ports.cgroups.clone(),
        net: ports.net.clone(),
        clock: ports.clock,
        settings,
        node_facts,
    });
    let ends = Ends {
        pleg,
        node: node_sender,
        own_node: own_node_sender,
        pods: pods_sender,
        cgroup_driver: driver_sender,
        cgroup_names: names_sender,
        pressure: pressure_sender,
        shutting_down: shutting_down_sender,
        volume_requests,
    };
    Ok((engine, ends))
}

impl Ends {
    /// Starts the tasks that every kubelet has, with or without an API; what comes back is cancelled if the kubelet cannot
    /// do its work.
    fn spawn(self, engine: &Arc<Engine>, ports: &Ports) -> CancellationToken {
        let node_watch = NodeWatch {
            runtime: engine.runtime.clone(),
            clock: engine.clock,
            pleg: engine.pleg.clone(),
            recorder: engine.recorder.clone(),
            view: self.node,
            shutting_down: engine.shutting_down.clone(),
            stands_alone: ports.cluster.is_none(),
        };
        let given_up = start_cgroups(engine, self.cgroup_driver, self.cgroup_names);
        engine.tasks.spawn("node watch", node_watch.run());
        engine.tasks.spawn("PLEG", self.pleg.run());
        engine.tasks.spawn("volumes", VolumeEngine::new(engine.clone(), self.volume_requests).run());
        engine.tasks.spawn("system processes", SystemProcesses::new(engine.clone()).run());
        engine.tasks.spawn("log rotation", LogRotation::new(engine.clone()).run());
        engine.tasks.spawn("resolv.conf check", check_node_dns(engine.clone()));
        start_network(engine);
        if !engine.settings.shutdown.periods.is_empty() {
            let shutdown = ShutdownTask::new(engine.clone(), ports.shutdown.clone(), self.shutting_down);
            engine.tasks.spawn("shutdown", shutdown.run());
        }
        given_up
    }
}

/// Starts what the node itself needs of the network.
fn start_network(engine: &Arc<Engine>) {
    let settings = &engine.settings.network;
    if let Some(cidr) = &settings.pod_cidr {
        engine.tasks.spawn("pod CIDR", pod_cidr::run(engine.clone(), cidr.clone()));
    }
    if settings.firewall_chains {
        for family in Family::ALL {
            engine.tasks.spawn(family.program(), Firewall::new(engine.clone(), family).run());
        }
    }
}

/// Starts what removes what nobody needs any more, and what ends pods where that is not enough.
fn start_collecting(
    engine: &Arc<Engine>,
    samplers: &Samplers,
    readiness: &SourcesReadiness,
    shown: watch::Sender<NodePressure>,
) {
    let (collector, dead_containers) =
        ContainerGarbageCollector::new(engine.clone(), readiness.complete.subscribe());
    engine.tasks.spawn("container garbage collector", collector.run());
    let (collector, images) = ImageGarbageCollector::new(engine.clone(), samplers.clone());
    engine.tasks.spawn("image garbage collector", collector.run());
    let evictor = Evictor::new(engine.clone(), samplers.clone(), Removers { dead_containers, images }, shown);
    engine.tasks.spawn("eviction", evictor.run());
    engine.tasks.spawn("OOM watcher", oom_watcher::run(engine.clone()));
}

async fn make_directories(host: &dyn Host, settings: &Settings) -> Result<(), HostError> {
    let root = &settings.paths.root;
    for dir in [root.clone(), settings.paths.pods(), root.join("plugins"), root.join("plugins_registry")] {
        host.ensure_dir(&dir, 0o750).await?;
    }
    host.ensure_dir(&settings.paths.pod_logs, 0o750).await?;
    host.ensure_dir(&settings.paths.container_links, 0o755).await
}

/// Asks for the driver, and makes the cgroups that are named by it; what comes back is cancelled if they cannot be made.
fn start_cgroups(
    engine: &Arc<Engine>,
    driver: watch::Sender<Option<CgroupDriver>>,
    names: watch::Sender<Option<Arc<CgroupNames>>>,
) -> CancellationToken {
    let question = DriverQuestion {
        runtime: engine.runtime.clone(),
        clock: engine.clock,
        configured: engine.settings.cgroup_driver,
        metrics: engine.metrics.clone(),
        answer: driver,
    };
    engine.tasks.spawn("cgroup driver", question.run());
    let given_up = CancellationToken::new();
    if engine.settings.cgroups.per_qos {
        let cgroups = NodeCgroups { engine: engine.clone(), names, given_up: given_up.clone() };
        engine.tasks.spawn("node cgroups", cgroups.run());
    }
    given_up
}

/// Starts the sources and the loop that merges them; returns where the API's pods go, if there is an API.
fn start_loop(
    engine: &Arc<Engine>,
    problems: &ManifestProblems,
    heartbeat: &Heartbeat,
    readiness: SourcesReadiness,
) -> Option<mpsc::Sender<SourceSet>> {
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
            paths: engine.settings.paths.clone(),
            features: engine.node_facts.features,
            problems: problems.clone(),
            sets: sets.clone(),
        };
        engine.tasks.spawn("file source", source.run());
    }
    if let Some(url) = &settings.manifest_url {
        expected.push(PodSource::Http);
        let source = HttpSource {
            net: engine.net.clone(),
            host: engine.host.clone(),
            clock: engine.clock,
            url: url.clone(),
            headers: settings.manifest_headers.clone(),
            period: settings.http_check_frequency,
            node_name: engine.settings.node_name.clone(),
            paths: engine.settings.paths.clone(),
            features: engine.node_facts.features,
            problems: problems.clone(),
            sets: sets.clone(),
        };
        engine.tasks.spawn("http source", source.run());
    }
    let has_api = engine.settings.node.is_some();
    if has_api {
        expected.push(PodSource::Api);
    }
    let sync_loop = SyncLoop::new(engine.clone(), heartbeat.clone(), received, expected, readiness);
    engine.tasks.spawn("sync loop", sync_loop.run());
    has_api.then_some(sets)
}

/// What pods need of the API besides themselves, where there is one.
fn cluster_objects(ports: &Ports, settings: &Settings) -> Option<ClusterObjects> {
    let (cluster, node) = (ports.cluster.as_ref()?, settings.node.as_ref()?);
    let strategy = &node.config.config_map_and_secret_change_detection_strategy;
    Some(ClusterObjects::new(cluster.general.clone(), ports.clock, strategy))
}

/// What a container without limits may use. A node that stands alone gives it the whole machine.
fn own_allocatable(host: &dyn Host, settings: &Settings) -> BTreeMap<String, Quantity> {
    let (machine, none) = (host.machine(), BTreeMap::new());
    if let Some(NodeSettings { config, flags }) = &settings.node {
        let capacity = compute_capacity(config, &cluster::machine(machine, None), &none, &BTreeMap::new());
        let reserved = reserved_amounts(config, &capacity, flags.experimental_allocatable_ignore_eviction);
        return compute_allocatable(&capacity, &reserved, &none);
    }
    BTreeMap::from([
        ("cpu".to_owned(), Quantity(machine.cpus.to_string())),
        ("memory".to_owned(), Quantity(machine.memory_bytes.to_string())),
    ])
}
