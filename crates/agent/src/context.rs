//! What every task of the agent uses: the ports to the outside world, the settings, and what events, metrics and tasks are
//! recorded with. Immutable after start. A leaf: it knows no task, so each task names in its own arguments which others it talks
//! to.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use base_core::node_facts::NodeFacts;
use config::KubeletConfiguration;
use model::cgroup::{CgroupPath, CgroupSettings, CgroupVersion};
use ports::host::HostResult;
use ports::{Cgroups, Clock, Files, Machine, Mounts, Net, Processes, Runtime};
use resources_core::cgroup::qos::MemoryReserve;
use resources_core::cgroup::{CgroupNumbers, PodRules, QosCgroupRules, compute_settings};

use crate::events::Recorder;
use crate::metrics::KubeletMetrics;
use crate::metrics::{CgroupWork, Metrics};
use crate::rng::Rng;
use crate::settings::Settings;
use crate::tasks::TaskSet;

#[derive(Debug)]
pub struct Context {
    pub runtime: Arc<dyn Runtime>,
    pub files: Arc<dyn Files>,
    pub mounts: Arc<dyn Mounts>,
    pub processes: Arc<dyn Processes>,
    pub machine: Arc<dyn Machine>,
    pub cgroups: Arc<dyn Cgroups>,
    pub net: Arc<dyn Net>,
    pub clock: Clock,
    pub settings: Settings,
    /// The configuration, and the facts about this node that requests to the runtime are computed from.
    pub node_facts: NodeFacts,
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub tasks: TaskSet,
    pub rng: Rng,
}

impl Context {
    #[must_use]
    pub fn host_ips(&self) -> &[IpAddr] {
        &self.settings.host_ips
    }

    /// The configuration of the kubelet.
    #[must_use]
    pub fn config(&self) -> &KubeletConfiguration {
        &self.node_facts.config
    }

    /// The directory of the logs of all pods, `/var/log/pods`.
    pub(crate) fn pod_logs(&self) -> &Path {
        Path::new(&self.config().pod_logs_dir)
    }

    pub(crate) fn pod_rules(&self) -> PodRules<'_> {
        let limit = self.config().pod_pids_limit;
        PodRules {
            cpu_quota_period: self.node_facts.cpu_quota_period(),
            pids_limit: Some(limit).filter(|limit| *limit > 0),
            hugepage_sizes: &self.node_facts.hugepage_sizes,
            memory_qos: self.node_facts.memory.qos,
        }
    }

    pub(crate) fn qos_cgroup_rules(&self) -> QosCgroupRules<'_> {
        let NodeFacts { features, memory, hugepage_sizes, .. } = &self.node_facts;
        QosCgroupRules {
            hugepage_sizes,
            memory_qos: memory.qos,
            memory_reserve: MemoryReserve::of(self.config(), *features, memory.allocatable_bytes),
        }
    }

    pub(crate) const fn cgroup_version(&self) -> CgroupVersion {
        if self.node_facts.cgroup_v2 { CgroupVersion::V2 } else { CgroupVersion::V1 }
    }

    pub(crate) fn cgroup_settings(&self, numbers: &CgroupNumbers) -> CgroupSettings {
        compute_settings(numbers, self.cgroup_version())
    }

    /// Creates the cgroup if it does not exist and writes its values; the duration is a metric.
    pub(crate) async fn apply_cgroup(
        &self,
        cgroup: &CgroupPath,
        numbers: &CgroupNumbers,
        work: CgroupWork,
    ) -> HostResult<()> {
        let settings = self.cgroup_settings(numbers);
        let began = self.clock.mono();
        let applied = self.cgroups.ensure(cgroup, &settings).await;
        self.metrics.get::<KubeletMetrics>().cgroup_work(work, self.clock.mono().saturating_since(began));
        applied
    }
}
