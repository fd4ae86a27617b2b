//! Stats of the fake: a running container uses one hundredth of a core and a fixed amount of memory; one that does not run keeps
//! its written bytes, and uses nothing else.

use model::stats::{
    ContainerStats, CpuUsage, FilesystemUsage, InterfaceUsage, MemoryUsage, Metric, MetricDescriptor,
    MetricKind, NetworkUsage, ProcessUsage, SandboxMetrics, SandboxStats,
};
use model::{ContainerId, ContainerState, SandboxId};
use ports::runtime::{RuntimeResult, Scope};

use super::{Container, Method, Moment, Sandbox, State, covers};

/// A hundredth of a core.
const NANOCORES: u64 = 10_000_000;
const MEMORY_BYTES: u64 = 4 << 20;
const WRITTEN_BYTES: u64 = 4096;
const LAST_SEEN: &str = "container_last_seen";

/// What the fake can report as metrics.
pub(in crate::fake) fn metric_descriptors() -> Vec<MetricDescriptor> {
    vec![MetricDescriptor {
        name: LAST_SEEN.to_owned(),
        help: "When the container was seen last, in seconds since 1970.".to_owned(),
        label_keys: ["id", "name"].map(str::to_owned).into(),
    }]
}

fn cpu(since: Moment, now: Moment) -> CpuUsage {
    let ran = u64::try_from(now.at.duration_since(since.at).as_nanos()).unwrap_or(u64::MAX);
    CpuUsage {
        time: Some(now.wall),
        usage_core_nanoseconds: Some(ran / 100),
        usage_nanocores: Some(NANOCORES),
        pressure: None,
    }
}

fn memory(times: u64, now: Moment) -> MemoryUsage {
    let bytes = Some(MEMORY_BYTES * times);
    MemoryUsage {
        time: Some(now.wall),
        working_set_bytes: bytes,
        usage_bytes: bytes,
        rss_bytes: bytes,
        page_faults: Some(1000 * times),
        major_page_faults: Some(0),
        ..MemoryUsage::default()
    }
}

impl Container {
    fn stats(&self, id: &ContainerId, now: Moment) -> ContainerStats {
        let started = self.started.filter(|_| self.state(now) == ContainerState::Running);
        ContainerStats {
            id: id.clone(),
            name: self.request.name.clone(),
            attempt: self.request.attempt,
            labels: self.request.labels.clone(),
            annotations: self.request.annotations.clone(),
            cpu: started.map(|started| cpu(started, now)),
            memory: started.map(|_| memory(1, now)),
            writable_layer: Some(FilesystemUsage {
                time: Some(now.wall),
                mountpoint: "/var/lib/fake/containers".to_owned(),
                used_bytes: Some(WRITTEN_BYTES),
                inodes_used: Some(1),
            }),
            swap: None,
            io: None,
        }
    }
}

impl State {
    fn runs(&self, sandbox: &SandboxId, now: Moment) -> impl Iterator<Item = (&ContainerId, &Container)> {
        let of = sandbox.clone();
        let runs = move |c: &Container| c.sandbox == of && c.state(now) == ContainerState::Running;
        self.containers.iter().filter(move |(_, container)| runs(container))
    }

    fn stats_of(&self, id: &SandboxId, sandbox: &Sandbox, now: Moment) -> SandboxStats {
        let containers: Vec<ContainerStats> = self.runs(id, now).map(|(id, c)| c.stats(id, now)).collect();
        // The pause process counts like another container.
        let processes = containers.len() as u64 + 1;
        let interface = sandbox.address.map(|_| InterfaceUsage {
            name: "eth0".to_owned(),
            rx_bytes: Some(1000 * processes),
            rx_errors: Some(0),
            tx_bytes: Some(500 * processes),
            tx_errors: Some(0),
        });
        SandboxStats {
            id: id.clone(),
            pod: sandbox.request.pod.clone(),
            attempt: sandbox.request.attempt,
            labels: sandbox.request.labels.clone(),
            annotations: sandbox.request.annotations.clone(),
            cpu: Some(cpu(sandbox.created, now)),
            memory: Some(memory(processes, now)),
            network: interface.map(|interface| NetworkUsage {
                time: Some(now.wall),
                default_interface: Some(interface),
                interfaces: Vec::new(),
            }),
            process: Some(ProcessUsage { time: Some(now.wall), count: Some(processes) }),
            io: None,
            containers,
        }
    }

    pub(in crate::fake) fn container_stats(
        &self,
        id: &ContainerId,
        now: Moment,
    ) -> RuntimeResult<ContainerStats> {
        Ok(self.find(Method::ContainerStats, id)?.stats(id, now))
    }

    pub(in crate::fake) fn list_container_stats(&self, scope: &Scope, now: Moment) -> Vec<ContainerStats> {
        let wanted = self.containers.iter().filter(|(_, c)| covers(scope, &c.uid));
        wanted.map(|(id, container)| container.stats(id, now)).collect()
    }

    pub(in crate::fake) fn sandbox_stats(&self, id: &SandboxId, now: Moment) -> RuntimeResult<SandboxStats> {
        let not_found = || Method::PodSandboxStats.not_found(format!("sandbox {id}: not found"));
        let sandbox = self.sandboxes.get(id).ok_or_else(not_found)?;
        Ok(self.stats_of(id, sandbox, now))
    }

    pub(in crate::fake) fn list_sandbox_stats(&self, scope: &Scope, now: Moment) -> Vec<SandboxStats> {
        let wanted = |sandbox: &Sandbox| sandbox.ready && covers(scope, &sandbox.request.pod.uid);
        let wanted = self.sandboxes.iter().filter(|(_, sandbox)| wanted(sandbox));
        wanted.map(|(id, sandbox)| self.stats_of(id, sandbox, now)).collect()
    }

    pub(in crate::fake) fn list_sandbox_metrics(&self, now: Moment) -> Vec<SandboxMetrics> {
        let seen = |(id, container): (&ContainerId, &Container)| {
            let metric = Metric {
                name: LAST_SEEN.to_owned(),
                time: Some(now.wall),
                kind: MetricKind::Gauge,
                label_values: vec![id.to_string(), container.request.name.clone()],
                value: u64::try_from(now.wall.as_second()).ok(),
            };
            (id.clone(), vec![metric])
        };
        let of = |id: &SandboxId| SandboxMetrics {
            sandbox: id.clone(),
            metrics: Vec::new(),
            containers: self.runs(id, now).map(seen).collect(),
        };
        self.sandboxes.keys().map(of).collect()
    }

    /// Of all containers together.
    pub(in crate::fake) fn written_bytes(&self) -> u64 {
        WRITTEN_BYTES * self.containers.len() as u64
    }
}
