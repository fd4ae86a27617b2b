//! A node in memory: what survives the agent, the agent itself, and queries of both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::{Agent, Ports};
use base_agent::settings::{Paths, ProcessSettings, Settings};
use base_core::node_facts::{MemoryRules, NodeFacts, Swap};
use config::{CredentialProviders, FeatureGates, Features, GoDuration, KubeletConfiguration, NodeFlags};
use fakes::{
    FakeCertificates, FakeCgroups, FakeCluster, FakeHost, FakeNet, FakePlugins, FakeRuntime, FakeShutdown,
    Method,
};
use futures_util::StreamExt;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use model::k8s::{ContainerStatus, PodStatus};
use ports::node_api::Measurements;
use ports::{Clock, Host, HostError};

use crate::cluster::ports_to;
use crate::pods::Manifest;
use crate::recording_runtime::RecordingRuntime;

pub(crate) const MANIFESTS: &str = "/etc/kubernetes/manifests";
pub(crate) const PODS: &str = "/var/lib/kubelet/pods";
pub(crate) const PROGRAMS: &str = "/opt/providers";
pub(crate) const POD_LOGS: &str = "/var/log/pods";
pub(crate) const LINKS: &str = "/var/log/containers";
/// 2026-01-01T00:00:00Z.
const EPOCH_SECONDS: i64 = 1_767_225_600;
/// How long a scenario waits for an expected condition.
const TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) struct World {
    pub(crate) fake: FakeRuntime,
    pub(crate) runtime: RecordingRuntime,
    pub(crate) host: FakeHost,
    pub(crate) cgroups: FakeCgroups,
    pub(crate) net: FakeNet,
    pub(crate) shutdown: FakeShutdown,
    pub(crate) plugins: FakePlugins,
    pub(crate) certificates: Arc<FakeCertificates>,
    /// The cluster that the node joins; `None` for a standalone node.
    pub(crate) cluster: Option<FakeCluster>,
    pub(crate) config: KubeletConfiguration,
    pub(crate) settings: Settings,
    pub(crate) features: Features,
    pub(crate) cgroup_v2: bool,
    /// Of files of containers: the machine has SELinux.
    pub(crate) selinux_file_label: Option<String>,
    /// The firewall of the machine: never reset.
    pub(crate) clock: Clock,
    pub(crate) agent: Option<Agent>,
    pub(crate) seed: u64,
}

impl World {
    /// A node without an agent.
    pub(crate) fn new() -> Self {
        let clock = Clock::starting_at(Timestamp::from_second(EPOCH_SECONDS).unwrap());
        let fake = FakeRuntime::with_clock(clock);
        fake.set_request_timeout(Duration::from_secs(10));
        // On paused time, a relist that takes no time may begin at the very instant an act ends, and show the state before it: no
        // real one is that fast.
        for method in [Method::ListPodSandbox, Method::ListContainers] {
            fake.latency(method, Duration::from_millis(1));
        }
        let host = FakeHost::new();
        host.put(format!("{MANIFESTS}/.keep"), "");
        let runtime = RecordingRuntime::new(fake.clone());
        Self {
            fake,
            runtime,
            host,
            cgroups: FakeCgroups::new(),
            net: FakeNet::new(),
            shutdown: FakeShutdown::default(),
            plugins: FakePlugins::default(),
            certificates: Arc::default(),
            cluster: None,
            config: config(),
            settings: settings(),
            features: Features::default(),
            cgroup_v2: true,
            selinux_file_label: None,
            clock,
            agent: None,
            seed: 1,
        }
    }

    pub(crate) async fn started() -> Self {
        let mut world = Self::new();
        world.start().await;
        world
    }

    /// Starts an agent, as a new process would: with a clock of its own.
    pub(crate) async fn start(&mut self) {
        self.seed += 1;
        self.agent = Some(self.try_start().await.unwrap());
    }

    pub(crate) async fn try_start(&self) -> Result<Agent, HostError> {
        let clock = Clock::starting_at(self.clock.now().wall);
        let ports = Ports {
            runtime: Arc::new(self.runtime.clone()),
            host: Host::new(self.host.clone()),
            cgroups: Arc::new(self.cgroups.clone()),
            net: Arc::new(self.net.clone()),
            shutdown: Arc::new(self.shutdown.clone()),
            plugins: Arc::new(self.plugins.clone()),
            clock,
            certificates: self.certificates.clone(),
            cluster: self.cluster.as_ref().map(ports_to),
        };
        let mut node_facts = node_facts(&self.config, self.features, self.cgroup_v2);
        node_facts.selinux_enabled = self.selinux_file_label.is_some();
        node_facts.selinux_file_label = self.selinux_file_label.clone();
        Agent::start(ports, self.settings.clone(), node_facts, self.seed).await
    }

    /// Kills the process: every task of it stops immediately.
    pub(crate) async fn crash(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.stop().await;
        }
    }

    pub(crate) async fn restart(&mut self) {
        self.crash().await;
        self.start().await;
    }

    pub(crate) fn apply(&self, manifest: &Manifest) {
        self.host.put(manifest_path(&manifest.name), manifest.text());
    }

    pub(crate) fn remove(&self, name: &str) {
        self.host.delete(manifest_path(name));
    }

    /// The text of `/metrics`.
    pub(crate) async fn metrics(&self) -> String {
        self.measured(Measurements::Kubelet).await
    }

    pub(crate) async fn measured(&self, what: Measurements) -> String {
        let api = self.agent.as_ref().unwrap().api();
        api.measurements(what).await.unwrap().collect::<Vec<String>>().await.concat()
    }

    /// Lets time pass.
    pub(crate) async fn advance(&self, time: Duration) {
        self.clock.sleep_until(self.clock.mono() + time).await;
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.mono().since_start()
    }

    /// Waits until the condition holds; returns when that was.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) -> Duration {
        let deadline = self.now() + TIMEOUT;
        while !condition(self) {
            assert!(self.now() < deadline, "timed out waiting until {what}\n{}", self.describe());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.now()
    }

    /// The status of the newest pod of that (manifest) name.
    pub(crate) fn status(&self, name: &str) -> Option<PodStatus> {
        let full = format!("{name}-node");
        let pods = self.agent.as_ref()?.pods().all();
        let entry = pods.into_iter().find(|e| *e.identity.name == *full)?;
        Some((*entry.status).clone())
    }

    pub(crate) fn phase(&self, name: &str) -> Option<String> {
        self.status(name)?.phase
    }

    pub(crate) fn container(&self, pod: &str, name: &str) -> Option<ContainerStatus> {
        let status = self.status(pod)?;
        let all = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
        all.into_iter().find(|c| c.name == name)
    }

    pub(crate) fn restarts(&self, pod: &str, name: &str) -> i32 {
        self.container(pod, name).map_or(0, |c| c.restart_count)
    }

    pub(crate) fn is_ready(&self, pod: &str) -> bool {
        let conditions = self.status(pod).and_then(|s| s.conditions).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
    }

    /// Whether `pod/container` runs, in any instance.
    pub(crate) fn runs(&self, title: &str) -> bool {
        let numbered = format!("{title}#");
        self.fake.running().iter().any(|t| t == title || t.starts_with(&numbered))
    }

    /// Everything that a pod can leave behind: in the runtime, in files, in mounts.
    pub(crate) fn traces(&self) -> Vec<String> {
        let mut traces: Vec<String> =
            self.fake.sandboxes().iter().map(|s| format!("sandbox {}", s.id)).collect();
        traces.extend(self.fake.containers().iter().map(|(_, c)| format!("container {}", c.id)));
        for directory in [PODS, POD_LOGS, LINKS] {
            traces.extend(self.host.files_below(directory));
        }
        traces.extend(self.host.mounts());
        traces.extend(self.cgroups.paths().into_iter().filter(|path| path.contains("/pod")));
        traces
    }

    /// When each call of that line began.
    pub(crate) fn times_of(&self, line: &str) -> Vec<Duration> {
        let is_match =
            |call: &&fakes::fake::CallRecord| format!("{} {}", call.method.name(), call.subject) == line;
        self.fake.calls().iter().filter(is_match).map(|call| call.at).collect()
    }

    /// A description of the node, for failures.
    pub(crate) fn describe(&self) -> String {
        let calls: Vec<String> = self.fake.calls().iter().map(ToString::to_string).collect();
        let from = calls.len().saturating_sub(60);
        let events: Vec<String> =
            self.agent.iter().flat_map(|a| a.recorder().latest()).map(describe_event).collect();
        let events_from = events.len().saturating_sub(40);
        let phases: Vec<String> = self
            .agent
            .iter()
            .flat_map(|a| a.pods().all())
            .map(|e| format!("{} {:?}", e.identity, e.status.phase))
            .collect();
        let api = self.describe_cluster();
        format!(
            "{api}at {:?}\nrunning: {:?}\npods: {phases:?}\ntraces: {:#?}\nlast calls: {:#?}\nlast events: {:#?}",
            self.now(),
            self.fake.running(),
            self.traces(),
            &calls[from..],
            &events[events_from..],
        )
    }
}

fn describe_event(event: base_agent::events::Event) -> String {
    let about = match event.about {
        base_agent::events::EventObject::Node => String::new(),
        base_agent::events::EventObject::Pod(pod) => pod.to_string(),
        base_agent::events::EventObject::Claim(claim) => format!("claim {}/{}", claim.namespace, claim.name),
        base_agent::events::EventObject::PersistentVolume(volume) => format!("volume {}", volume.name),
    };
    format!("{about} {} {}: {}", event.container.unwrap_or_default(), event.reason, event.message)
}

pub(crate) fn manifest_path(name: &str) -> PathBuf {
    PathBuf::from(format!("{MANIFESTS}/{name}.json"))
}

pub(crate) const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn settings() -> Settings {
    Settings {
        node_name: "node".to_owned(),
        build: model::BuildInfo { version: "0.0.0-test", commit: "0123456789abcdef", date: "" },
        flags: NodeFlags { image_credential_provider_bin_dir: PROGRAMS.to_owned(), ..NodeFlags::default() },
        gates: FeatureGates::default(),
        credential_providers: CredentialProviders::default(),
        paths: Paths { container_links: LINKS.into(), ..Paths::default() },
        host_ips: vec!["192.0.2.1".parse().unwrap()],
        credential_dirs: Vec::new(),
        time_zone: TimeZone::UTC,
        processes: ProcessSettings::default(),
        kept_events: 1000,
    }
}

fn config() -> KubeletConfiguration {
    KubeletConfiguration {
        static_pod_path: MANIFESTS.to_owned(),
        pod_logs_dir: POD_LOGS.to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        cluster_dns: vec!["10.96.0.10".to_owned()],
        make_iptables_util_chains: false,
        registry_pull_qps: 0,
        serialize_image_pulls: false,
        // The runtime in memory writes no log files, so only tests that write some check them.
        container_log_monitor_interval: GoDuration::from_secs(1_000_000),
        single_process_oom_kill: Some(false),
        ..KubeletConfiguration::default()
    }
}

fn node_facts(config: &KubeletConfiguration, features: Features, cgroup_v2: bool) -> NodeFacts {
    NodeFacts {
        config: Arc::new(config.clone()),
        memory_capacity_bytes: 8 << 30,
        thermal_throttle_paths: Vec::new(),
        selinux_enabled: false,
        selinux_file_label: None,
        seccomp_dir: "/var/lib/kubelet/seccomp".to_owned(),
        cgroup_v2,
        swap: Swap::Uncontrolled,
        memory: MemoryRules::default(),
        hugepage_sizes: Vec::new(),
        features,
    }
}
