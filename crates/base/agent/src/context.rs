//! What every task of the agent uses: the ports to the outside world, the settings, and what events, metrics and tasks are
//! recorded with. Immutable after start. A leaf: it knows no task, so each task names in its own arguments which others it talks
//! to.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use base_core::node_facts::NodeFacts;
use config::KubeletConfiguration;
use ports::{Cgroups, Clock, Files, Machine, Mounts, Net, Processes, Runtime};

use crate::events::Recorder;
use crate::metrics::Metrics;
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
    #[must_use]
    pub fn pod_logs(&self) -> &Path {
        Path::new(&self.config().pod_logs_dir)
    }
}
