//! Samples cgroups and procfs on request. Owns the latest sample, the cgroup paths of containers, and the readings that the
//! next CPU rates are computed from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::pods_view::PodsView;
use model::observation::NamespaceMode;
use model::stats::SandboxStats;
use model::{ContainerId, ContainerObservation, MonoTime, Now, PodObservation, PodUid, QosClass, SandboxId};
use ports::runtime::Scope;
use resources_core::cgroup::{CgroupNames, name};
use stats_core::age::{
    BASELINE_INTERVAL, LastSample, Reading, SHARED_FOR, compute_rate, compute_rate_since_start,
    is_fresh_enough, next_baseline,
};
use stats_core::cgroup::{CgroupSample, Detail, Hierarchy};
use stats_core::near::{NearLimits, compute_near_limits};
use stats_core::runtime_stats::pod_sample;
use stats_core::sample::{
    ContainerSample, MachineSample, NodeSample, Placed, PodSample, SystemSample, add_up,
};
use stats_core::{cgroup, cgroup_path, procfs};
use tokio::sync::{mpsc, watch};

use crate::metrics::StatsMetrics;
use crate::{Request, machine};

/// A container that has run for this long must have a cgroup.
const PLACED_AFTER: Duration = Duration::from_secs(10);

/// How long a sample waits for what the runtime has measured, before it reads cgroups.
const STATS_WITHIN: Duration = Duration::from_secs(2);
/// How long a sample waits for the runtime to report the images of sandboxes.
const IMAGES_WITHIN: Duration = Duration::from_secs(2);

pub(super) struct CgroupSampler {
    ctx: Arc<Context>,
    cache: PodCache,
    pods: PodsView,
    cgroup_names: watch::Receiver<Option<Arc<CgroupNames>>>,
    hierarchy: Hierarchy,
    last: Option<Arc<NodeSample>>,
    paths: CgroupPaths,
    /// By the path of the cgroup.
    baselines: BTreeMap<Box<str>, Reading>,
    /// Of sandboxes that run, by their id.
    images: BTreeMap<Box<str>, Box<str>>,
    /// The runtime had no statistics when it was last asked, which was logged.
    has_runtime_failed: bool,
    /// What the latest sample shows near its limit.
    near_limits: watch::Sender<NearLimits>,
}

/// The known paths of cgroups.
#[derive(Default)]
struct CgroupPaths {
    /// By the id of the container or sandbox.
    containers: BTreeMap<Box<str>, Box<str>>,
    /// By the UID of the pod.
    pods: BTreeMap<Box<str>, Box<str>>,
    all_pods: Option<Box<str>>,
    qos: Vec<Box<str>>,
}

/// The state of one sampling round.
struct Round {
    now: Now,
    detail: Detail,
    rates: BTreeMap<Box<str>, Reading>,
    is_incomplete: bool,
}

impl CgroupSampler {
    pub(super) fn new(
        ctx: Arc<Context>,
        cache: PodCache,
        pods: PodsView,
        cgroup_names: watch::Receiver<Option<Arc<CgroupNames>>>,
        near_limits: watch::Sender<NearLimits>,
    ) -> Self {
        let hierarchy = if ctx.node_facts.cgroup_v2 { Hierarchy::V2 } else { Hierarchy::V1 };
        Self {
            ctx,
            cache,
            pods,
            cgroup_names,
            hierarchy,
            last: None,
            paths: CgroupPaths::default(),
            baselines: BTreeMap::new(),
            images: BTreeMap::new(),
            has_runtime_failed: false,
            near_limits,
        }
    }

    /// Runs until all senders are dropped. A sample is dropped once it is too old to be shared.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request<NodeSample>>) {
        let mut baseline_at = self.ctx.clock.mono() + BASELINE_INTERVAL;
        loop {
            let clock = self.ctx.clock;
            let old_at = self.last.as_ref().map_or(MonoTime::ZERO, |last| last.taken.mono + SHARED_FOR);
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.answer(request).await,
                    None => return,
                },
                () = clock.sleep_until(old_at), if self.last.is_some() => self.last = None,
                // Only to read the counters.
                () = clock.sleep_until(baseline_at) => {
                    drop(self.sample(Detail::Usage).await);
                    baseline_at = clock.mono() + BASELINE_INTERVAL;
                }
            }
        }
    }

    async fn answer(&mut self, request: Request<NodeSample>) {
        let at_hand = self.last.as_ref();
        let at_hand = at_hand.map(|last| LastSample { taken_at: last.taken.mono, detail: last.detail });
        let now = self.ctx.clock.mono();
        let sample = match &self.last {
            Some(last) if is_fresh_enough(at_hand, request.detail, request.most, now) => last.clone(),
            // Not kept, because requests for more detail cannot use it.
            Some(_) | None if request.detail == Detail::Node => Arc::new(self.sample_node().await),
            Some(_) | None => {
                // Dropped first, so that two samples are never in memory.
                self.last = None;
                let sample = Arc::new(self.sample(request.detail).await);
                self.ctx
                    .metrics
                    .get::<StatsMetrics>()
                    .cgroups_sampled(self.ctx.clock.mono().saturating_since(now));
                self.last.insert(sample).clone()
            }
        };
        // The sender may have stopped waiting.
        let _ = request.answer.send(sample);
    }

    async fn sample(&mut self, detail: Detail) -> NodeSample {
        let observed: Vec<Arc<PodObservation>> =
            self.cache.in_runtime().into_iter().filter(|pod| !pod.is_stopped()).collect();
        self.find_paths(&observed).await;
        if detail == Detail::Full {
            self.find_images(&observed).await;
        }
        let now = self.ctx.clock.now();
        let mut round = Round { now, detail, rates: BTreeMap::new(), is_incomplete: false };
        let (machine, root) = self.whole_node(&mut round).await;
        let of_runtime = self.of_runtime().await;
        let mut pods = Vec::with_capacity(observed.len());
        for pod in &observed {
            let measured = pod.ready_sandboxes().next().and_then(|sandbox| of_runtime.get(&sandbox.id));
            pods.push(match measured {
                Some(stats) => pod_sample(&pod.pod, self.started(&pod.pod.uid), stats, pod.running()),
                None => self.pod(pod, &machine, &mut round).await,
            });
        }
        let qos = self.qos(&mut round).await;
        let system = self.system(&pods, &machine.booted, &mut round).await;
        self.baselines = round.rates;
        let is_incomplete = round.is_incomplete;
        let sample = NodeSample { taken: now, detail, machine, root, system, qos, pods, is_incomplete };
        self.near_limits.send_replace(compute_near_limits(&sample, self.ctx.config().pod_pids_limit));
        sample
    }

    /// What the runtime has measured, by sandbox. Empty with the gate off, and if the runtime has nothing: then the kernel is asked.
    async fn of_runtime(&mut self) -> BTreeMap<SandboxId, SandboxStats> {
        if !self.ctx.node_facts.features.stats_from_runtime {
            return BTreeMap::new();
        }
        let deadline = self.ctx.clock.mono() + STATS_WITHIN;
        let answer = tokio::select! {
            answer = self.ctx.runtime.list_sandbox_stats(&Scope::Node) => answer.map_err(|error| error.to_string()),
            () = self.ctx.clock.sleep_until(deadline) => Err("no answer in time".to_owned()),
        };
        match answer {
            Ok(all) => {
                self.has_runtime_failed = false;
                all.into_iter().map(|stats| (stats.id.clone(), stats)).collect()
            }
            Err(why) => {
                if !std::mem::replace(&mut self.has_runtime_failed, true) {
                    tracing::warn!(err = why, "Runtime has no statistics of pods, reading their cgroups");
                }
                BTreeMap::new()
            }
        }
    }

    /// Samples only the node and the cgroup of all pods.
    async fn sample_node(&mut self) -> NodeSample {
        let (now, detail) = (self.ctx.clock.now(), Detail::Node);
        let mut round = Round { now, detail, rates: BTreeMap::new(), is_incomplete: false };
        let (machine, root) = self.whole_node(&mut round).await;
        let mut system = Vec::new();
        let names = self.cgroup_names.borrow().clone();
        if let Some(names) = names {
            let together = self.cgroup(&names.all_pods().path, None, &mut round).await;
            system.extend(together.map(|placed| SystemSample { name: "pods", started: None, placed }));
        }
        self.baselines.extend(round.rates);
        let is_incomplete = round.is_incomplete;
        let (qos, pods) = (Vec::new(), Vec::new());
        NodeSample { taken: now, detail, machine, root, system, qos, pods, is_incomplete }
    }

    async fn whole_node(&self, round: &mut Round) -> (MachineSample, Placed) {
        let (machine, texts) = machine::read(&*self.ctx.files, &*self.ctx.machine, round.detail).await;
        let mut root = self.cgroup("/", None, round).await.unwrap_or_default();
        machine::complete_root(&mut root.cgroup, &texts);
        if self.hierarchy == Hierarchy::V1 {
            // No cgroup v1 has any, so that the machine's would be the only one.
            root.cgroup.pressure = None;
        }
        root.rate = self.rate("/", &root.cgroup, None, round);
        round.is_incomplete |= root.cgroup.cpu_nanoseconds.is_none() || root.cgroup.memory.usage.is_none();
        (machine, root)
    }

    /// Finds the cgroups of running containers, unless all of them are known.
    async fn find_paths(&mut self, observed: &[Arc<PodObservation>]) {
        let wanted: BTreeSet<&str> = observed
            .iter()
            .flat_map(|pod| {
                let sandboxes = pod.ready_sandboxes().map(|sandbox| sandbox.id.as_str());
                sandboxes.chain(pod.running().map(|container| container.id.as_str()))
            })
            .collect();
        if wanted.iter().all(|id| self.paths.containers.contains_key(*id)) {
            self.paths.containers.retain(|id, _| wanted.contains(&**id));
            return;
        }
        let tree = match self.hierarchy {
            // Runtimes create the same paths for all controllers.
            Hierarchy::V1 => self.root().join("memory"),
            Hierarchy::V2 => self.root(),
        };
        self.paths = CgroupPaths::default();
        let names = self.cgroup_names.borrow().clone();
        let classes = [QosClass::Burstable, QosClass::BestEffort];
        let qos = names.as_ref().map(|names| classes.map(|class| names.qos_cgroup(class).path));
        let all_pods = names.map(|names| names.all_pods().path);
        let is_ours = |path: &str| all_pods.as_ref().is_some_and(|all| path.starts_with(&**all));
        for path in self.ctx.files.directories_below(&tree).await {
            if wanted.contains(cgroup_path::container_id(&path)) {
                self.paths.containers.insert(cgroup_path::container_id(&path).into(), path.into());
            } else if let Some(uid) = name::pod_of(cgroup_path::last(&path)).filter(|_| is_ours(&path)) {
                self.paths.pods.insert(uid.as_str().into(), path.into());
            }
        }
        self.paths.all_pods = all_pods;
        self.paths.qos = qos.into_iter().flatten().collect();
    }

    /// Requests the images of sandboxes that are not known yet. If the runtime does not answer in time, the next sample
    /// retries.
    async fn find_images(&mut self, observed: &[Arc<PodObservation>]) {
        let sandboxes = observed.iter().filter_map(|pod| pod.ready_sandboxes().next()).map(|s| &s.id);
        let sandboxes: BTreeSet<&str> = sandboxes.map(SandboxId::as_str).collect();
        self.images.retain(|id, _| sandboxes.contains(&**id));
        let deadline = self.ctx.clock.mono() + IMAGES_WITHIN;
        for id in sandboxes {
            if self.images.contains_key(id) {
                continue;
            }
            let id = SandboxId::from(id);
            let info = tokio::select! {
                info = self.ctx.runtime.sandbox_info(&id) => info,
                () = self.ctx.clock.sleep_until(deadline) => return,
            };
            // An answer without an image will not get one.
            if let Ok(info) = info {
                let image = cgroup_path::sandbox_image(&info).unwrap_or_default();
                self.images.insert(id.as_str().into(), image.into());
            }
        }
    }

    /// The QoS cgroups, for a full sample.
    async fn qos(&self, round: &mut Round) -> Vec<Placed> {
        let mut qos = Vec::new();
        if round.detail == Detail::Full {
            for path in &self.paths.qos {
                qos.extend(self.cgroup(path, None, round).await);
            }
        }
        qos
    }

    fn root(&self) -> PathBuf {
        self.ctx.settings.paths.cgroup_root.clone()
    }

    async fn pod(&self, observed: &PodObservation, machine: &MachineSample, round: &mut Round) -> PodSample {
        let ready = observed.ready_sandboxes().next();
        let mut sandbox = None;
        if let Some(ready) = ready {
            let image = self.images.get(ready.id.as_str()).map(|image| &**image).unwrap_or_default();
            let id = ContainerId::from(ready.id.as_str());
            sandbox = self.part(&id, "", image, ready.created_at, round).await;
        }
        let mut containers: Vec<ContainerSample> = Vec::new();
        let mut names = BTreeSet::new();
        for container in observed.running() {
            // Metrics lack the UID, so only the newest of two pods with one name is reported.
            if names.contains(&container.name) {
                continue;
            }
            if let Some(sample) = self.container(container, round).await {
                names.insert(&container.name);
                containers.push(sample);
            }
        }
        containers.sort_by(|a, b| a.name.cmp(&b.name));
        let interfaces = match ready.map(|ready| &ready.network) {
            Some(NamespaceMode::Node) => machine.interfaces.clone(),
            // The sandbox's process first. CRI-O usually runs none, and all containers share its network.
            Some(_) => self.interfaces(sandbox.iter().chain(&containers)).await,
            None => Vec::new(),
        };
        let uid = observed.pod.uid.as_str();
        let started = self.started(&observed.pod.uid);
        let own = match self.paths.pods.get(uid) {
            Some(path) => self.cgroup(path, started, round).await,
            None => None,
        };
        PodSample { pod: observed.pod.clone(), started, own, sandbox, containers, interfaces }
    }

    /// As the status of the pod has it.
    fn started(&self, pod: &PodUid) -> Option<jiff::Timestamp> {
        let status = self.pods.get(pod)?.status;
        status.start_time.as_ref().map(|time| time.0)
    }

    /// The network interfaces that the first process of these sees.
    async fn interfaces<'a>(&self, of: impl Iterator<Item = &'a ContainerSample>) -> Vec<procfs::Interface> {
        let mut pids = of.filter_map(|part| part.placed.cgroup.first_pid);
        let Some(pid) = pids.next() else { return Vec::new() };
        let text = self.read(&[format!("/proc/{pid}/net/dev")]).await.pop().flatten();
        procfs::interfaces(&text.unwrap_or_default())
    }

    async fn container(
        &self,
        container: &ContainerObservation,
        round: &mut Round,
    ) -> Option<ContainerSample> {
        let started = container.started_at.unwrap_or(container.created_at);
        let sample = self.part(&container.id, &container.name, &container.image, started, round).await;
        // A container that has just started or ended may have no cgroup; the next sample shows it.
        round.is_incomplete |= sample.is_none() && round.now.wall_since(started) > PLACED_AFTER;
        sample
    }

    async fn part(
        &self,
        id: &ContainerId,
        name: &str,
        image: &str,
        started: jiff::Timestamp,
        round: &mut Round,
    ) -> Option<ContainerSample> {
        let path = self.paths.containers.get(id.as_str())?;
        let placed = self.cgroup(path, Some(started), round).await?;
        Some(ContainerSample { id: id.clone(), name: name.into(), image: image.into(), started, placed })
    }

    /// `None`: the cgroup does not exist any more. `started`: when its counters began, if that is known.
    async fn cgroup(
        &self,
        path: &str,
        started: Option<jiff::Timestamp>,
        round: &mut Round,
    ) -> Option<Placed> {
        let root = self.root();
        let files = cgroup::files(self.hierarchy, round.detail).iter();
        let paths = files.map(|file| root.join(cgroup::file_path(self.hierarchy, path, file)));
        let texts = self.ctx.files.read_each(paths.collect()).await;
        let mut sample = cgroup::parse(self.hierarchy, round.detail, &texts);
        if path != "/" && sample.cpu_nanoseconds.is_none() && sample.memory.usage.is_none() {
            return None;
        }
        if path != "/" && round.detail == Detail::Full {
            self.add_open_files(path, &mut sample).await;
        }
        let rate = self.rate(path, &sample, started, round);
        Some(Placed { path: path.into(), cgroup: sample, rate, measured_at: None })
    }

    async fn add_open_files(&self, path: &str, sample: &mut CgroupSample) {
        let file = match self.hierarchy {
            Hierarchy::V1 => "pids/cgroup.procs",
            Hierarchy::V2 => "cgroup.procs",
        };
        let procs = self.root().join(cgroup::file_path(self.hierarchy, path, file));
        let limits = format!("/proc/{}/limits", sample.first_pid.unwrap_or_default());
        let texts = self.ctx.files.read_each(vec![procs, limits.into()]).await;
        let [procs, limits] = <[Option<String>; 2]>::try_from(texts).unwrap_or_default();
        let pids = cgroup::pids(&procs.unwrap_or_default());
        let open = self.ctx.processes.open_files(pids).await;
        if let Some(full) = &mut sample.full {
            full.open_files = Some(open.descriptors);
            full.sockets = Some(open.sockets);
            full.open_files_limit = limits.as_deref().and_then(procfs::open_files_limit);
        }
    }

    fn rate(
        &self,
        path: &str,
        sample: &CgroupSample,
        started: Option<jiff::Timestamp>,
        round: &mut Round,
    ) -> Option<u64> {
        let after = Reading { at: round.now.mono, used: sample.cpu_nanoseconds? };
        let before = self.baselines.get(path).copied();
        round.rates.insert(path.into(), next_baseline(before, after));
        let since_start = || compute_rate_since_start(after.used, round.now.wall_since(started?));
        before.and_then(|before| compute_rate(before, after)).or_else(since_start)
    }

    async fn read(&self, paths: &[String]) -> Vec<Option<String>> {
        self.ctx.files.read_each(paths.iter().map(PathBuf::from).collect()).await
    }

    /// The system containers: the kubelet, the runtime, the rest of the system, and all pods.
    async fn system(
        &self,
        pods: &[PodSample],
        booted: &jiff::Timestamp,
        round: &mut Round,
    ) -> Vec<SystemSample> {
        let settings = &self.ctx.settings.processes;
        let mut system = Vec::new();
        let kubelet = self.kubelet(booted, round).await;
        system.extend(kubelet);
        for (name, cgroup) in [("runtime", &settings.runtime), ("misc", &settings.system)] {
            let Some(cgroup) = cgroup else { continue };
            let placed = self.cgroup(&cgroup.path, None, round).await;
            system.extend(placed.map(|placed| SystemSample { name, started: None, placed }));
        }
        let together = match &self.paths.all_pods {
            Some(path) => self.cgroup(path, None, round).await,
            None => None,
        };
        let wholes: Vec<Placed> = pods.iter().map(PodSample::whole).collect();
        let placed = together.unwrap_or_else(|| add_up(wholes.iter()));
        system.push(SystemSample { name: "pods", started: None, placed });
        system
    }

    /// The kubelet's own cgroup; its process if that is the root cgroup or cannot be measured. `None` if cgroup v1 counts its
    /// CPU and memory in different cgroups.
    async fn kubelet(&self, booted: &jiff::Timestamp, round: &mut Round) -> Option<SystemSample> {
        let paths = ["/proc/self/cgroup", "/proc/self/stat", "/proc/self/status"].map(str::to_owned);
        let texts = <[Option<String>; 3]>::try_from(self.read(&paths).await).unwrap_or_default();
        let [own, stat, status] = texts.map(Option::unwrap_or_default);
        let process = procfs::process(&stat)?;
        let started = booted.checked_add(Duration::from_nanos(process.started_nanoseconds)).ok();
        let configured = self.ctx.settings.processes.kubelet.as_ref().map(|cgroup| &*cgroup.path);
        let is_v2 = self.hierarchy == Hierarchy::V2;
        let path = configured.or_else(|| cgroup_path::kubelet_cgroup(&own, is_v2))?;
        if path != "/"
            && let Some(placed) = self.cgroup(path, None, round).await
        {
            return Some(SystemSample { name: "kubelet", started, placed });
        }
        let cgroup = machine::process_as_cgroup(&process, &status);
        let rate = self.rate("kubelet", &cgroup, started, round);
        Some(SystemSample {
            name: "kubelet",
            started,
            placed: Placed { path: Box::default(), cgroup, rate, measured_at: None },
        })
    }
}
