//! Starts every subsystem of the agent, each with what it needs of those before it.

mod cluster_tasks;
mod own_node;

use std::path::Path;
use std::sync::Arc;

use api_agent::ApiClients;
use api_agent::admission_node::AdmissionNode;
use api_agent::csi::CsiApi;
use api_agent::events::write_last_node_event;
use api_agent::node_allocatable::NodeAllocatable;
use api_agent::objects::ClusterObjects;
use api_agent::reflector::{Store, StoreReader};
use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::damaged::remove_unfinished;
use base_agent::error_chain::chain;
use base_agent::events::{Queued, Recorder};
use base_agent::metrics::Metrics;
use base_agent::pods_view::PodsView;
use base_agent::rng::Rng;
use base_agent::settings::{Paths, Settings};
use base_agent::tasks::TaskSet;
use base_core::node_facts::NodeFacts;
use config::CGROUP_V1_WARNING;
use images_agent::Images;
use kubelet_core::node::kernel::{MEMORY_ON_DISK, compute_swap_warning};
use model::k8s::{Node, NodeAddress};
use model::{CgroupDriver, PodSource};
use ports::{
    Certificates, Cgroups, Clock, Files, Host, HostError, Net, NodeApi, NodeInventory, Plugins, Runtime,
    Shutdown,
};
use resources_agent::Resources;
use resources_agent::claims::reconcile::KnownPods;
use sources_agent::{ManifestProblems, SourceSet};
use sources_core::ApiPod;
use stats_agent::Samplers;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use volumes_agent::{CSI_PLUGIN, Csi, Volumes};

use crate::heartbeat::Heartbeat;
use crate::metrics::{KubeletMetrics, RuntimeMetrics};
use crate::node;
use crate::node_handle::NodeHandle;
use crate::node_view::NodeView;
use crate::plugins;
use crate::pods::cgroups::PodCgroups;
use crate::pods::handles::PodHandles;
use crate::pods::pass::prepare::check_node_dns;
use crate::pods::pleg::{Pleg, PlegHandle};
use crate::pods::sync_loop::{SourcesReadiness, SyncLoop};
use crate::pods::termination_requests::TerminationRequests;
use crate::pods::user_namespaces::PodIds;
use crate::probe_metrics::ProbeMetrics;
use crate::serving::container_logs::MAX_WATCHES;
use crate::serving::log_rotation::LogRotation;
use crate::serving::node_api::AgentApi;
use crate::serving::pod_lookup::PodLookup;
use crate::serving::system_logs::MAX_JOURNAL_QUERIES;
use cluster_tasks::ClusterTasks;

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
    /// Generates the keys of pods.
    pub certificates: Arc<dyn Certificates>,
    /// `None` for a standalone kubelet.
    pub cluster: Option<ApiClients>,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    handles: Arc<PodHandles>,
    pods_in_api: StoreReader<ApiPod>,
    problems: ManifestProblems,
    heartbeat: Heartbeat,
    sources_ready: watch::Receiver<bool>,
    samplers: Samplers,
    csi: Option<CsiApi>,
}

/// What the reflectors of this node keep of the API; each store is filled by one of them.
#[derive(Debug, Default)]
struct Stores {
    /// This node.
    own_node: watch::Sender<Store<Node>>,
    /// The pods bound to this node.
    pods: watch::Sender<Store<ApiPod>>,
}

impl Agent {
    /// Creates the directories and starts every task. `seed` is for the random number generator.
    ///
    /// # Errors
    /// A directory of the kubelet cannot be created, or what an earlier kubelet saved cannot be used. The event
    /// `KubeletSetupFailed` says it on the Node.
    pub async fn start(
        ports: Ports,
        settings: Settings,
        node_facts: NodeFacts,
        seed: u64,
    ) -> Result<Self, HostError> {
        let (cluster, clock, node_name) = (ports.cluster.clone(), ports.clock, settings.node_name.clone());
        let started = Box::pin(Self::start_modules(ports, settings, node_facts, seed)).await;
        if let Err(error) = &started {
            let cluster = cluster.as_ref().map(|clients| &*clients.events);
            write_last_node_event(cluster, &node_name, clock, "KubeletSetupFailed", chain(error)).await;
        }
        started
    }

    async fn start_modules(
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
        ctx.runtime.observe(ctx.metrics.get::<RuntimeMetrics>());
        let (readiness, stores) = (SourcesReadiness::default(), Stores::default());
        let (node, publishers) = NodeHandle::new();
        let (csi_api, csi_node) = ports
            .cluster
            .as_ref()
            .map(|clients| CsiApi::new(&ctx, clients, stores.own_node.subscribe()))
            .unzip();
        let general = ports.cluster.as_ref().map(|clients| clients.general.clone());
        let csi = Csi::start(&ctx, ports.plugins.clone(), csi_api.clone().zip(general));
        let handles = pod_handles(&ctx, &ports, &stores, &readiness, node, csi.clone()).await?;
        let PodHandles { cache, pods, node, resources, .. } = &*handles;
        let mut plugin_handlers = resources.plugin_handlers();
        plugin_handlers.insert(CSI_PLUGIN, Arc::new(csi.clone()));
        plugins::start(&ctx, ports.plugins.clone(), plugin_handlers);
        let samplers = Samplers::start(&ctx, cache, pods, node.cgroup_names.clone(), csi);
        node::start(&handles, publishers, ports.shutdown.clone(), &samplers);
        ctx.tasks.spawn("log rotation", LogRotation::new(ctx.clone(), cache.clone()).run());
        ctx.tasks.spawn("resolv.conf check", check_node_dns(ctx.clone()));
        let (problems, heartbeat) = (ManifestProblems::default(), Heartbeat::default());
        let sources_ready = readiness.reported.subscribe();
        let sets = start_loop(&handles, &problems, &heartbeat, readiness.clone());
        let pods_in_api = stores.pods.subscribe();
        if let (Some(clients), Some(csi), Some(events)) = (&ports.cluster, &csi_api, events) {
            let tasks = ClusterTasks { handles: &handles, clients, csi, readiness: &readiness, stores };
            tasks.start(sets, events).await;
        }
        if let Some(csi_node) = csi_node {
            csi_node.start(handles.node.must_exit.clone());
        }
        Ok(Self { handles, pods_in_api, problems, heartbeat, sources_ready, samplers, csi: csi_api })
    }

    /// The agent as the HTTP server sees it.
    #[must_use]
    pub fn api(&self) -> Arc<dyn NodeApi> {
        Arc::new(self.node_api())
    }

    /// What is on this node, as the local socket shows it.
    #[must_use]
    pub fn inventory(&self) -> Arc<dyn NodeInventory> {
        Arc::new(self.node_api())
    }

    fn node_api(&self) -> AgentApi {
        let PodHandles { ctx, cache, pods, .. } = &*self.handles;
        AgentApi {
            lookup: PodLookup {
                ctx: ctx.clone(),
                cache: cache.clone(),
                pods: pods.clone(),
                in_api: self.pods_in_api.clone(),
            },
            handles: self.handles.clone(),
            problems: self.problems.clone(),
            heartbeat: self.heartbeat.clone(),
            log_watches: Arc::new(Semaphore::new(MAX_WATCHES)),
            journal_queries: Arc::new(Semaphore::new(MAX_JOURNAL_QUERIES)),
            samplers: self.samplers.clone(),
            csi: self.csi.clone(),
        }
    }

    /// What CSI needs of the API server; `None` for a standalone kubelet.
    #[must_use]
    pub const fn csi(&self) -> Option<&CsiApi> {
        self.csi.as_ref()
    }

    /// Cancelled, after the reason was logged, when the kubelet cannot work and must exit.
    #[must_use]
    pub fn must_exit(&self) -> &CancellationToken {
        &self.handles.node.must_exit
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
        self.handles.node.view.clone()
    }

    #[must_use]
    pub fn pleg(&self) -> &PlegHandle {
        &self.handles.pleg
    }

    /// `None` until the runtime has reported it.
    #[must_use]
    pub fn cgroup_driver(&self) -> Option<CgroupDriver> {
        *self.handles.node.cgroup_driver.borrow()
    }

    /// The node's addresses, as it last reported them.
    #[must_use]
    pub fn node_addresses(&self) -> watch::Receiver<Vec<NodeAddress>> {
        self.handles.node.addresses.subscribe()
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

/// Starts what pods use, and returns the handles of it.
async fn pod_handles(
    ctx: &Arc<Context>,
    ports: &Ports,
    stores: &Stores,
    readiness: &SourcesReadiness,
    node: NodeHandle,
    csi: Csi,
) -> Result<Arc<PodHandles>, HostError> {
    let (cache, pods) = (PodCache::default(), PodsView::default());
    let sources_ready = readiness.complete.subscribe();
    let cluster = ports.cluster.as_ref().map(|clients| clients.general.clone());
    let own_node = || stores.own_node.subscribe();
    let known = KnownPods { cache: cache.clone(), pods: pods.clone(), sources_ready: sources_ready.clone() };
    let reserved = own_node::reserved(ctx).1;
    let resources = Resources::start(ctx, &ports.plugins, &reserved, known, cluster.clone()).await?;
    let allocatable = NodeAllocatable::new(own_node(), own_node::allocatable(ctx));
    let is_standalone = ctx.settings.flags.standalone();
    Ok(Arc::new(PodHandles {
        images: Arc::new(Images::start(ctx).await?),
        pod_ids: PodIds::load(ctx).await?,
        volumes: Volumes::start(ctx, cluster, own_node(), allocatable.clone(), csi),
        objects: cluster_objects(ctx, ports, own_node()),
        pods_in_api: ports.cluster.as_ref().map(|_| stores.pods.subscribe()),
        pleg: Pleg::start(ctx, cache.clone(), node.view.clone()),
        cgroups: PodCgroups {
            ctx: ctx.clone(),
            names: node.cgroup_names.clone(),
            admissions: resources.admissions.clone(),
            problems: node.cgroup_problems.clone(),
        },
        leftovers: Arc::new(Notify::new()),
        termination_requests: TerminationRequests::default(),
        node_for_admission: AdmissionNode::new(own_node(), own_node::for_admission(ctx).await, is_standalone),
        probe_metrics: ProbeMetrics::default(),
        cache,
        pods,
        node,
        resources,
        allocatable,
        sources_ready,
        ctx: ctx.clone(),
    }))
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

/// Starts the sources of static pods and the sync loop. Returns the sender for the pods of the API.
fn start_loop(
    handles: &Arc<PodHandles>,
    problems: &ManifestProblems,
    heartbeat: &Heartbeat,
    readiness: SourcesReadiness,
) -> mpsc::Sender<SourceSet> {
    let ctx = &handles.ctx;
    let (sets, received) = mpsc::channel::<SourceSet>(SET_QUEUE);
    let mut expected = sources_agent::start(ctx, &handles.cache, problems, &sets);
    if !ctx.settings.flags.standalone() {
        expected.push(PodSource::Api);
    }
    let sync_loop = SyncLoop::new(handles.clone(), heartbeat.clone(), received, expected, readiness);
    ctx.tasks.spawn("sync loop", sync_loop.run());
    sets
}

/// The API objects that pods refer to; `None` without an API server.
fn cluster_objects(ctx: &Context, ports: &Ports, own_node: StoreReader<Node>) -> Option<Arc<ClusterObjects>> {
    let cluster = ports.cluster.as_ref()?;
    let strategy = &ctx.config().config_map_and_secret_change_detection_strategy;
    let (cluster, certificates) = (cluster.general.clone(), ports.certificates.clone());
    Some(Arc::new(ClusterObjects::new(cluster, ports.clock, strategy, own_node, certificates)))
}
