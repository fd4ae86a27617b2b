//! Starts every task of the agent, with the handles that it needs.

mod cluster_tasks;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use api_agent::ApiClients;
use api_agent::admission_node::AdmissionNode;
use api_agent::csi::CsiApi;
use api_agent::node_allocatable::NodeAllocatable;
use api_agent::objects::ClusterObjects;
use api_agent::reflector::{Store, StoreReader};
use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::damaged::remove_unfinished;
use base_agent::error_chain::chain;
use base_agent::events::{Queued, Recorder};
use base_agent::metrics::Metrics;
use base_agent::plugin_handler::PluginHandlers;
use base_agent::pods_view::PodsView;
use base_agent::rng::Rng;
use base_agent::settings::{Paths, Settings};
use base_agent::tasks::TaskSet;
use base_core::node_facts::NodeFacts;
use config::CGROUP_V1_WARNING;
use kubelet_core::node::firewall::Family;
use kubelet_core::node::kernel::{MEMORY_ON_DISK, compute_swap_warning};
use kubelet_core::node::{
    NodeSettings, compute_allocatable, compute_capacity, compute_node_for_admission, reserved_amounts,
};
use model::k8s::{Node, NodeAddress, Quantity};
use model::{CgroupDriver, ContainerId, PodSource};
use ports::{Cgroups, Clock, Files, Host, HostError, Net, NodeApi, Plugins, Runtime, Shutdown};
use resources_core::admission::pressure::NodePressure;
use resources_core::cgroup::CgroupNames;
use resources_core::cpus::CpuPolicy;
use resources_core::quantities::{Amounts, Quantities};
use resources_core::topology::PolicyKind;
use sources_agent::file::FileSource;
use sources_agent::http::HttpSource;
use sources_agent::{ManifestProblems, NodePods, SourceSet};
use sources_core::ApiPod;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use volumes_agent::{CSI_PLUGIN, Csi, Requests, VolumeEngine, Volumes};

use crate::cgroup_problems::CgroupProblems;
use crate::heartbeat::Heartbeat;
use crate::images::Images;
use crate::images::garbage_collection::ImageGarbageCollector;
use crate::metrics::{KubeletMetrics, PinMetrics};
use crate::node::cgroup_driver::DriverDetection;
use crate::node::cgroups::NodeCgroups;
use crate::node::container_garbage_collection::ContainerGarbageCollector;
use crate::node::eviction::{Evictor, EvictorInputs, Removers};
use crate::node::facts::{NodeSources, hostname};
use crate::node::firewall::Firewall;
use crate::node::machine::machine_facts;
use crate::node::readiness::NodeWatch;
use crate::node::shutdown::{ShutdownTask, configured_periods};
use crate::node::system_processes::SystemProcesses;
use crate::node::{oom_watcher, pod_cidr};
use crate::node_view::NodeView;
use crate::plugins::device_plugins::{self, DevicePluginHandler};
use crate::plugins::{self, PluginRegistry, dra_drivers};
use crate::pods::cgroups::PodCgroups;
use crate::pods::handles::PodHandles;
use crate::pods::pass::prepare::check_node_dns;
use crate::pods::pleg::{Pleg, PlegHandle};
use crate::pods::sync_loop::{SourcesReadiness, SyncLoop};
use crate::pods::termination_requests::TerminationRequests;
use crate::pods::user_namespaces::PodIds;
use crate::probe_metrics::ProbeMetrics;
use crate::resources::amounts::{self, AmountFiles};
use crate::resources::claims::Claims;
use crate::resources::claims::reconcile::KnownPods;
use crate::resources::cpusets::Cpusets;
use crate::resources::devices::Devices;
use crate::resources::pins::PinFiles;
use crate::serving::container_logs::MAX_WATCHES;
use crate::serving::log_rotation::LogRotation;
use crate::serving::node_api::AgentApi;
use crate::serving::pod_lookup::PodLookup;
use crate::serving::stats::{Measured, Samplers};
use crate::serving::system_logs::MAX_JOURNAL_QUERIES;
use cluster_tasks::ClusterTaskInputs;

/// The SELinux label of the directories of plugins.
const PLUGINS_LABEL: &str = "system_u:object_r:container_file_t:s0";

/// Sources wait for the sync loop when the queue is full; there are at most three of them.
const SET_QUEUE: usize = 8;

/// The ports to the outside.
#[derive(Clone, Debug)]
pub struct Ports {
    pub runtime: Arc<dyn Runtime>,
    pub host: Host,
    pub cgroups: Arc<dyn Cgroups>,
    pub net: Arc<dyn Net>,
    pub shutdown: Arc<dyn Shutdown>,
    pub plugins: Arc<dyn Plugins>,
    pub clock: Clock,
    /// `None` for a standalone kubelet.
    pub cluster: Option<ApiClients>,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    handles: Arc<PodHandles>,
    pods_in_api: StoreReader<ApiPod>,
    cgroup_driver: watch::Receiver<Option<CgroupDriver>>,
    /// The node's addresses, as it last reported them.
    node_addresses: watch::Sender<Vec<NodeAddress>>,
    problems: ManifestProblems,
    heartbeat: Heartbeat,
    sources_ready: watch::Receiver<bool>,
    samplers: Samplers,
    csi: Option<CsiApi>,
    must_exit: CancellationToken,
}

/// Replaced containers that may wait for their removal.
const MAX_SUPERSEDED: usize = 64;

impl Agent {
    /// Creates the directories and starts every task. `seed` is for the random number generator.
    ///
    /// # Errors
    /// A directory of the kubelet cannot be created.
    pub async fn start(
        ports: Ports,
        settings: Settings,
        node_facts: NodeFacts,
        seed: u64,
    ) -> Result<Self, HostError> {
        make_directories(&*ports.host.files, &settings.paths, &node_facts.config.pod_logs_dir).await?;
        if node_facts.selinux_enabled {
            label_plugin_directories(&*ports.host.files, &settings.paths).await;
        }
        let (ctx, events) = context(&ports, settings, node_facts, seed);
        report_start(&ctx);
        let readiness = SourcesReadiness::default();
        let (superseded, dead_containers) = mpsc::channel(MAX_SUPERSEDED);
        let (handles, publishers) = handles(&ctx, &ports, &readiness, superseded).await?;
        let (own_node, pods, pressure) =
            (publishers.own_node.clone(), publishers.pods.clone(), publishers.pressure.clone());
        let cgroup_driver = publishers.cgroup_driver.subscribe();
        let (csi, csi_node) =
            ports.cluster.as_ref().map(|clients| CsiApi::new(&ctx, clients, own_node.subscribe())).unzip();
        let csi_volumes = csi_volumes(&ctx, &ports, csi.as_ref());
        let must_exit = publishers.spawn(&handles, &ports, csi_volumes.clone());
        let (problems, heartbeat) = (ManifestProblems::default(), Heartbeat::default());
        handles.devices.start(readiness.complete.subscribe())?;
        start_claims(&handles, &ports);
        start_plugins(&handles, &ports, csi_volumes.clone());
        let api_sets = start_loop(&handles, &problems, &heartbeat, readiness.clone());
        let node_addresses = watch::Sender::new(Vec::new());
        let pods_in_api = pods.subscribe();
        let of_cluster = ports.cluster.as_ref().zip(csi.as_ref().zip(csi_node));
        if let (Some((cluster, (csi, csi_node))), Some(sets), Some(events)) = (of_cluster, api_sets, events) {
            let inputs = ClusterTaskInputs {
                own_node,
                pods,
                sets,
                wanted: readiness.static_pods.subscribe(),
                sources: readiness.complete.subscribe(),
                events,
                views: handles.pods.clone(),
                objects: handles.objects.clone(),
                node_sources: node_sources(&handles, csi),
                volumes: handles.volumes.clone(),
                csi_node,
                must_exit: must_exit.clone(),
                addresses: node_addresses.clone(),
            };
            cluster_tasks::start(&ctx, cluster, inputs).await;
        }
        let sources_ready = readiness.reported.subscribe();
        let samplers = Samplers::start(&measured(&handles), csi_volumes);
        start_collecting(&handles, &samplers, &readiness, dead_containers, pressure);
        Ok(Self {
            handles,
            pods_in_api,
            cgroup_driver,
            node_addresses,
            problems,
            heartbeat,
            sources_ready,
            samplers,
            csi,
            must_exit,
        })
    }

    /// The agent as the HTTP server sees it.
    #[must_use]
    pub fn api(&self) -> Arc<dyn NodeApi> {
        let PodHandles { ctx, cache, pods, devices, claims, .. } = &*self.handles;
        Arc::new(AgentApi {
            lookup: PodLookup {
                ctx: ctx.clone(),
                cache: cache.clone(),
                pods: pods.clone(),
                in_api: self.pods_in_api.clone(),
            },
            devices: devices.clone(),
            claims: claims.clone(),
            measured: measured(&self.handles),
            problems: self.problems.clone(),
            heartbeat: self.heartbeat.clone(),
            log_watches: Arc::new(Semaphore::new(MAX_WATCHES)),
            journal_queries: Arc::new(Semaphore::new(MAX_JOURNAL_QUERIES)),
            samplers: self.samplers.clone(),
        })
    }

    /// What CSI needs of the API server; `None` for a standalone kubelet.
    #[must_use]
    pub const fn csi(&self) -> Option<&CsiApi> {
        self.csi.as_ref()
    }

    /// Cancelled, after the reason was logged, when the kubelet cannot work and must exit.
    #[must_use]
    pub const fn must_exit(&self) -> &CancellationToken {
        &self.must_exit
    }

    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.handles.ctx
    }

    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.handles.ctx.recorder
    }

    /// The pods of this node with their status.
    #[must_use]
    pub fn pods(&self) -> &PodsView {
        &self.handles.pods
    }

    /// The last observed status of the runtime.
    #[must_use]
    pub fn node(&self) -> watch::Receiver<NodeView> {
        self.handles.node.clone()
    }

    #[must_use]
    pub fn pleg(&self) -> &PlegHandle {
        &self.handles.pleg
    }

    /// `None` until the runtime has reported it.
    #[must_use]
    pub fn cgroup_driver(&self) -> Option<CgroupDriver> {
        *self.cgroup_driver.borrow()
    }

    /// The node's addresses, as it last reported them.
    #[must_use]
    pub fn node_addresses(&self) -> watch::Receiver<Vec<NodeAddress>> {
        self.node_addresses.subscribe()
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

    /// The number of pods of all sources.
    #[must_use]
    pub fn desired_pods(&self) -> usize {
        self.context().metrics.get::<KubeletMetrics>().desired()
    }

    /// Ends every task. Containers and volumes stay: the next kubelet continues with them.
    pub async fn stop(&self) {
        self.context().tasks.stop().await;
    }
}

/// What the tasks publish for the handles; each sender is used by one task.
struct Publishers {
    pleg: Pleg,
    node: watch::Sender<NodeView>,
    own_node: watch::Sender<Store<Node>>,
    pods: watch::Sender<Store<ApiPod>>,
    cgroup_driver: watch::Sender<Option<CgroupDriver>>,
    cgroup_names: watch::Sender<Option<Arc<CgroupNames>>>,
    pressure: watch::Sender<NodePressure>,
    shutting_down: watch::Sender<bool>,
    volume_requests: Requests,
}

/// The context, and what the event writer reads; `None` for a standalone kubelet.
fn context(
    ports: &Ports,
    settings: Settings,
    node_facts: NodeFacts,
    seed: u64,
) -> (Arc<Context>, Option<mpsc::Receiver<Queued>>) {
    let recorder = Recorder::new(ports.clock, settings.kept_events);
    let (recorder, events) = match &ports.cluster {
        Some(_) => {
            let (recorder, events) = recorder.with_queue();
            (recorder, Some(events))
        }
        None => (recorder, None),
    };
    let ctx = Context {
        runtime: ports.runtime.clone(),
        files: ports.host.files.clone(),
        mounts: ports.host.mounts.clone(),
        processes: ports.host.processes.clone(),
        machine: ports.host.machine.clone(),
        cgroups: ports.cgroups.clone(),
        net: ports.net.clone(),
        clock: ports.clock,
        settings,
        node_facts,
        recorder,
        metrics: Metrics::default(),
        tasks: TaskSet::new(),
        rng: Rng::from_seed(seed),
    };
    (Arc::new(ctx), events)
}

/// Records the start of the kubelet, and warnings about the machine.
fn report_start(ctx: &Context) {
    ctx.recorder.node_normal("Starting", "Starting kubelet.");
    if !ctx.node_facts.cgroup_v2 {
        ctx.recorder.node_warning("CgroupV1", CGROUP_V1_WARNING);
    }
    let swap_bytes = ctx.machine.info().swap_bytes;
    if let Some(warning) = compute_swap_warning(swap_bytes, ctx.mounts.keeps_tmpfs_in_memory()) {
        ctx.recorder.node_warning(MEMORY_ON_DISK, warning);
    }
}

async fn handles(
    ctx: &Arc<Context>,
    ports: &Ports,
    readiness: &SourcesReadiness,
    superseded: mpsc::Sender<ContainerId>,
) -> Result<(Arc<PodHandles>, Publishers), HostError> {
    let metrics = &ctx.metrics;
    ctx.runtime.observe(metrics.get::<KubeletMetrics>());
    let cache = PodCache::default();
    let (runtime, features) = (ctx.runtime.clone(), ctx.node_facts.features);
    let (pleg, pleg_handle) = Pleg::new(runtime, ctx.clock, cache.clone(), metrics.clone(), features);
    let (volumes, volume_requests) = Volumes::new();
    let publishers = Publishers {
        pleg,
        node: watch::Sender::default(),
        own_node: watch::Sender::default(),
        pods: watch::Sender::default(),
        cgroup_driver: watch::Sender::default(),
        cgroup_names: watch::Sender::default(),
        pressure: watch::Sender::default(),
        shutting_down: watch::Sender::default(),
        volume_requests,
    };
    let own_node = publishers.own_node.subscribe();
    let devices = Devices::load(ctx, ports.plugins.clone()).await?;
    let admissions = devices.admissions();
    let handles = Arc::new(PodHandles {
        images: Arc::new(Images::start(ctx).await?),
        pod_ids: PodIds::load(ctx).await?,
        volumes,
        objects: cluster_objects(ctx, ports, own_node.clone()),
        pods_in_api: ports.cluster.as_ref().map(|_| publishers.pods.subscribe()),
        cache,
        pleg: pleg_handle,
        node: publishers.node.subscribe(),
        cgroups: PodCgroups {
            ctx: ctx.clone(),
            names: publishers.cgroup_names.subscribe(),
            admissions: admissions.clone(),
            problems: CgroupProblems::default(),
        },
        leftovers: Arc::new(Notify::new()),
        pods: PodsView::default(),
        pin_files: PinFiles::load(ctx, admissions.clone(), &own_reserved(ctx).1).await?,
        amount_files: AmountFiles::new(ctx.clone(), admissions.clone()),
        cpusets: Cpusets::default(),
        admissions,
        termination_requests: TerminationRequests::default(),
        devices,
        pressure: publishers.pressure.subscribe(),
        shutting_down: publishers.shutting_down.subscribe(),
        allocatable: NodeAllocatable::new(own_node.clone(), own_allocatable(ctx)),
        node_for_admission: AdmissionNode::new(
            own_node,
            node_for_admission(ctx).await,
            ctx.settings.flags.standalone(),
        ),
        claims: Claims::load(ctx, ports.plugins.clone()).await?,
        sources_ready: readiness.complete.subscribe(),
        probe_metrics: ProbeMetrics::default(),
        superseded,
        ctx: ctx.clone(),
    });
    handles.admissions.remember_amounts(amounts::load(ctx).await?, ctx.node_facts.features);
    Ok((handles, publishers))
}

fn node_sources(handles: &PodHandles, csi: &CsiApi) -> NodeSources {
    NodeSources {
        node: handles.node.clone(),
        pleg: handles.pleg.clone(),
        cgroups: handles.cgroups.problems.clone(),
        pressure: handles.pressure.clone(),
        shutting_down: handles.shutting_down.clone(),
        devices: handles.devices.clone(),
        volumes_in_use: csi.in_use.clone(),
        csi_node: csi.nodes.problem(),
    }
}

fn measured(handles: &PodHandles) -> Measured {
    Measured {
        ctx: handles.ctx.clone(),
        cache: handles.cache.clone(),
        pods: handles.pods.clone(),
        cgroup_names: handles.cgroups.names.clone(),
        admissions: handles.admissions.clone(),
        probe_metrics: handles.probe_metrics.clone(),
    }
}

impl Publishers {
    /// Starts the tasks that every kubelet has, with or without an API server. The returned token is cancelled if the kubelet
    /// cannot work.
    fn spawn(self, handles: &Arc<PodHandles>, ports: &Ports, csi: Csi) -> CancellationToken {
        let ctx = &handles.ctx;
        let node_watch = NodeWatch {
            runtime: ctx.runtime.clone(),
            clock: ctx.clock,
            pleg: handles.pleg.clone(),
            recorder: ctx.recorder.clone(),
            cgroups: handles.cgroups.problems.clone(),
            view: self.node,
            shutting_down: handles.shutting_down.clone(),
            is_standalone: ports.cluster.is_none(),
        };
        let must_exit = start_cgroups(handles, self.cgroup_driver, self.cgroup_names);
        ctx.tasks.spawn("node watch", node_watch.run());
        ctx.tasks.spawn("PLEG", self.pleg.run());
        let cluster = handles.objects.as_ref().map(|objects| objects.cluster().clone());
        let (own_node, allocatable) = (self.own_node.subscribe(), handles.allocatable.clone());
        let volumes =
            VolumeEngine::new(ctx.clone(), cluster, own_node, allocatable, csi, self.volume_requests);
        ctx.tasks.spawn("volumes", volumes.run());
        ctx.tasks.spawn("resources of pods", handles.amount_files.clone().keep());
        start_pinning(handles);
        ctx.tasks.spawn("system processes", SystemProcesses::new(ctx.clone(), handles.node.clone()).run());
        ctx.tasks.spawn("log rotation", LogRotation::new(ctx.clone(), handles.cache.clone()).run());
        ctx.tasks.spawn("resolv.conf check", check_node_dns(ctx.clone()));
        start_network(handles);
        if !configured_periods(ctx).is_empty() {
            let shutdown =
                ShutdownTask::new(ctx.clone(), handles, ports.shutdown.clone(), self.shutting_down);
            ctx.tasks.spawn("shutdown", shutdown.run());
        }
        must_exit
    }
}

/// Starts what a kubelet needs that gives pods CPUs and memory for themselves.
fn start_pinning(handles: &PodHandles) {
    let (ctx, admissions) = (&handles.ctx, &handles.admissions);
    let policies = admissions.read(|table| table.pinned().0.clone());
    if !policies.are_none() {
        ctx.tasks.spawn("CPU and memory state", handles.pin_files.clone().keep());
    }
    if policies.topology().kind() != PolicyKind::None {
        ctx.metrics.get::<PinMetrics>().alignment_exists();
    }
    if let CpuPolicy::Static(_) = policies.cpus() {
        ctx.metrics.get::<PinMetrics>().exclusive_cpus_exist();
        let cpusets = handles.cpusets.clone();
        ctx.tasks.spawn("cpusets", cpusets.keep(ctx.clone(), admissions.clone(), handles.cache.clone()));
    }
}

/// The volumes of CSI drivers, and what keeps their drivers' numbers up to date in the API.
fn csi_volumes(ctx: &Arc<Context>, ports: &Ports, api: Option<&CsiApi>) -> Csi {
    let cluster = ports.cluster.as_ref().map(|clients| clients.general.clone());
    let volumes = Csi::new(ctx, ports.plugins.clone(), api.cloned().zip(cluster));
    if let Some(api) = api {
        api.start_updates(ctx, Arc::new(volumes.clone()));
    }
    volumes
}

/// Starts what looks after ResourceClaims when no pod does.
fn start_claims(handles: &PodHandles, ports: &Ports) {
    let known = KnownPods {
        cache: handles.cache.clone(),
        pods: handles.pods.clone(),
        sources_ready: handles.sources_ready.clone(),
    };
    let cluster = ports.cluster.as_ref().map(|clients| clients.general.clone());
    handles.claims.start(known, cluster);
}

/// Starts the registration of plugins, with the handler of each type.
fn start_plugins(handles: &PodHandles, ports: &Ports, csi: Csi) {
    let ctx = &handles.ctx;
    let device_plugins = DevicePluginHandler { devices: handles.devices.clone() };
    let handlers = PluginHandlers::from([
        (device_plugins::KIND, Arc::new(device_plugins) as _),
        (CSI_PLUGIN, Arc::new(csi) as _),
        (dra_drivers::KIND, Arc::new(handles.claims.clone()) as _),
    ]);
    let registry = PluginRegistry::new(ctx.clone(), ports.plugins.clone(), handlers);
    ctx.tasks.spawn("plugin registration", registry.run());
}

/// Starts the network tasks of the node.
fn start_network(handles: &Arc<PodHandles>) {
    let ctx = &handles.ctx;
    let config = ctx.config();
    // With an API server, the Node has the pod CIDR.
    if ctx.settings.flags.standalone() && !config.pod_cidr.is_empty() {
        let cidr = config.pod_cidr.clone();
        ctx.tasks.spawn("pod CIDR", pod_cidr::run(ctx.clone(), handles.node.clone(), cidr));
    }
    if config.make_iptables_util_chains {
        for family in Family::ALL {
            ctx.tasks.spawn(family.program(), Firewall::new(ctx.clone(), family).run());
        }
    }
}

/// Starts garbage collection and eviction.
fn start_collecting(
    handles: &Arc<PodHandles>,
    samplers: &Samplers,
    readiness: &SourcesReadiness,
    superseded: mpsc::Receiver<ContainerId>,
    shown: watch::Sender<NodePressure>,
) {
    let PodHandles { ctx, cache, pods, admissions, .. } = &**handles;
    let sources_ready = readiness.complete.subscribe();
    let (collector, dead_containers) =
        ContainerGarbageCollector::new(ctx.clone(), cache.clone(), pods.clone(), sources_ready, superseded);
    ctx.tasks.spawn("container garbage collector", collector.run());
    let images = handles.images.clone();
    let (collector, images) =
        ImageGarbageCollector::new(ctx.clone(), cache.clone(), pods.clone(), images, samplers.clone());
    ctx.tasks.spawn("image garbage collector", collector.run());
    let inputs = EvictorInputs {
        cache: cache.clone(),
        pods: pods.clone(),
        admissions: admissions.clone(),
        termination_requests: handles.termination_requests.clone(),
        pods_cgroup: handles.cgroups.names.clone(),
        samplers: samplers.clone(),
    };
    let evictor = Evictor::new(ctx.clone(), inputs, Removers { dead_containers, images }, shown);
    ctx.tasks.spawn("eviction", evictor.run());
    ctx.tasks.spawn("OOM watcher", oom_watcher::run(ctx.clone()));
}

/// So that plugins in unprivileged containers can reach their sockets.
async fn label_plugin_directories(files: &dyn Files, paths: &Paths) {
    for dir in [paths.root.join(plugins::DIR), paths.root.join("plugins")] {
        if let Err(error) = files.set_selinux_label(&dir, PLUGINS_LABEL).await {
            tracing::warn!(
                path = %dir.display(),
                err = chain(&error),
                "Failed to set the SELinux label of a directory, plugins in unprivileged containers may not work"
            );
        }
    }
}

async fn make_directories(files: &dyn Files, paths: &Paths, pod_logs: &str) -> Result<(), HostError> {
    let root = &paths.root;
    for dir in [root.clone(), paths.pods(), root.join("plugins"), root.join(plugins::DIR)] {
        files.make_dir(&dir, plugins::DIR_MODE).await?;
    }
    for dir in ["", "image_manager/pulling", "image_manager/pulled", "device-plugins"] {
        remove_unfinished(files, &root.join(dir)).await;
    }
    files.make_dir(Path::new(pod_logs), 0o750).await?;
    files.make_dir(&paths.container_links, 0o755).await
}

/// Detects the cgroup driver and creates the node's cgroups. The returned token is cancelled if they cannot be created.
fn start_cgroups(
    handles: &Arc<PodHandles>,
    driver: watch::Sender<Option<CgroupDriver>>,
    names: watch::Sender<Option<Arc<CgroupNames>>>,
) -> CancellationToken {
    let ctx = &handles.ctx;
    let driver_of_cgroups = driver.subscribe();
    let detection = DriverDetection {
        runtime: ctx.runtime.clone(),
        clock: ctx.clock,
        // Validation has refused any other value.
        configured: CgroupDriver::parse(&ctx.config().cgroup_driver).unwrap_or(CgroupDriver::Cgroupfs),
        metrics: ctx.metrics.clone(),
        // Without cgroups of pods nothing waits for the driver.
        problems: if ctx.config().cgroups_per_qos {
            handles.cgroups.problems.clone()
        } else {
            CgroupProblems::default()
        },
        answer: driver,
    };
    ctx.tasks.spawn("cgroup driver", detection.run());
    let must_exit = CancellationToken::new();
    if ctx.config().cgroups_per_qos {
        let cgroups = NodeCgroups {
            ctx: ctx.clone(),
            admissions: handles.admissions.clone(),
            driver: driver_of_cgroups,
            names,
            must_exit: must_exit.clone(),
        };
        ctx.tasks.spawn("node cgroups", cgroups.run());
    }
    must_exit
}

/// Starts the sources and the sync loop. Returns the sender for the pods of the API, if there is an API server.
fn start_loop(
    handles: &Arc<PodHandles>,
    problems: &ManifestProblems,
    heartbeat: &Heartbeat,
    readiness: SourcesReadiness,
) -> Option<mpsc::Sender<SourceSet>> {
    let ctx = &handles.ctx;
    let (sets, received) = mpsc::channel::<SourceSet>(SET_QUEUE);
    let config = ctx.config();
    let mut expected = Vec::new();
    let node = NodePods {
        files: ctx.files.clone(),
        paths: ctx.settings.paths.clone(),
        cache: handles.cache.clone(),
    };
    if !config.static_pod_path.is_empty() {
        expected.push(PodSource::File);
        let source = FileSource {
            node: node.clone(),
            clock: ctx.clock,
            path: config.static_pod_path.clone().into(),
            period: config.file_check_frequency.as_std(),
            node_name: ctx.settings.node_name.clone(),
            features: ctx.node_facts.features,
            problems: problems.clone(),
            sets: sets.clone(),
        };
        ctx.tasks.spawn("file source", source.run());
    }
    if !config.static_pod_url.is_empty() {
        let headers = config.static_pod_url_header.iter();
        expected.push(PodSource::Http);
        let source = HttpSource {
            net: ctx.net.clone(),
            node,
            clock: ctx.clock,
            url: config.static_pod_url.clone(),
            headers: headers
                .flat_map(|(name, values)| values.iter().map(|value| (name.clone(), value.clone())))
                .collect(),
            period: config.http_check_frequency.as_std(),
            node_name: ctx.settings.node_name.clone(),
            features: ctx.node_facts.features,
            problems: problems.clone(),
            sets: sets.clone(),
        };
        ctx.tasks.spawn("http source", source.run());
    }
    let has_api = !ctx.settings.flags.standalone();
    if has_api {
        expected.push(PodSource::Api);
    }
    let sync_loop = SyncLoop::new(handles.clone(), heartbeat.clone(), received, expected, readiness);
    ctx.tasks.spawn("sync loop", sync_loop.run());
    has_api.then_some(sets)
}

/// The API objects that pods refer to; `None` without an API server.
fn cluster_objects(ctx: &Context, ports: &Ports, own_node: StoreReader<Node>) -> Option<Arc<ClusterObjects>> {
    let cluster = ports.cluster.as_ref()?;
    let strategy = &ctx.config().config_map_and_secret_change_detection_strategy;
    Some(Arc::new(ClusterObjects::new(cluster.general.clone(), ports.clock, strategy, own_node)))
}

/// What this kubelet knows of its Node without the API.
async fn node_for_admission(ctx: &Context) -> Node {
    let info = ctx.machine.info();
    // The reporter of the Node logs an error.
    let storage = ctx.files.filesystem_bytes(&ctx.settings.paths.root).await.ok();
    compute_node_for_admission(&NodeSettings {
        name: &ctx.settings.node_name,
        hostname: &hostname(&ctx.settings.flags, &info),
        config: ctx.config(),
        flags: &ctx.settings.flags,
        machine: &machine_facts(info, storage),
    })
}

/// The allocatable resources before the Node is known; of a standalone node, the whole machine.
fn own_allocatable(ctx: &Context) -> BTreeMap<String, Quantity> {
    let machine = ctx.machine.info();
    if !ctx.settings.flags.standalone() {
        let (capacity, reserved) = own_reserved(ctx);
        return compute_allocatable(&capacity, &reserved, &BTreeMap::new());
    }
    BTreeMap::from([
        ("cpu".to_owned(), Quantity(machine.cpus.to_string())),
        ("memory".to_owned(), Quantity(machine.memory_bytes.to_string())),
    ])
}

/// The capacity of the machine, and what Node Allocatable reserves of it.
fn own_reserved(ctx: &Context) -> (Quantities, Amounts) {
    let machine = machine_facts(ctx.machine.info(), None);
    let capacity = compute_capacity(ctx.config(), &machine, &BTreeMap::new(), &BTreeMap::new());
    let ignores_eviction = ctx.settings.flags.experimental_allocatable_ignore_eviction;
    let reserved = reserved_amounts(ctx.config(), &capacity, ignores_eviction);
    (capacity, reserved)
}
