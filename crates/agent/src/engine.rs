//! What every pod worker shares: the ports, the settings and the handles of the other tasks. Immutable after start;
//! whatever changes sits behind a handle with an owner of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kubelet_core::cgroup::CgroupNames;
use kubelet_core::node::NodePressure;
use kubelet_core::request::NodeFacts;
use model::k8s::{Node, NodeAddress, Pod, Quantity};
use model::{CgroupDriver, MonoTime};
use ports::{Cgroups, Clock, Host, Net, Runtime};
use tokio::sync::{Notify, watch};

use crate::admissions::Admissions;
use crate::cache::PodCache;
use crate::cluster::objects::ClusterObjects;
use crate::cluster::own_node;
use crate::cluster::reflector::StoreReader;
use crate::devices::Devices;
use crate::events::Recorder;
use crate::images::Images;
use crate::metrics::Metrics;
use crate::node::NodeView;
use crate::pleg::PlegHandle;
use crate::pods_view::PodsView;
use crate::probe_metrics::ProbeMetrics;
use crate::rng::Rng;
use crate::settings::Settings;
use crate::tasks::TaskSet;
use crate::user_namespaces::PodIds;
use crate::volumes::Volumes;

#[derive(Debug)]
pub struct Engine {
    pub runtime: Arc<dyn Runtime>,
    pub host: Arc<dyn Host>,
    pub cgroups: Arc<dyn Cgroups>,
    pub net: Arc<dyn Net>,
    pub clock: Clock,
    pub settings: Settings,
    /// What requests to the runtime need to know of this machine.
    pub node_facts: NodeFacts,
    /// What pods may use together, by resource name, as far as this machine can tell; see [`Engine::allocatable`].
    pub own_allocatable: BTreeMap<String, Quantity>,
    pub recorder: Recorder,
    pub images: Images,
    pub pod_ids: PodIds,
    pub volumes: Volumes,
    /// `None` for a kubelet that stands alone.
    pub objects: Option<ClusterObjects>,
    pub cache: PodCache,
    pub pleg: PlegHandle,
    pub node: watch::Receiver<NodeView>,
    /// `None` until the runtime was asked; cgroups are named by it.
    pub cgroup_driver: watch::Receiver<Option<CgroupDriver>>,
    /// `None` until pods can have cgroups, and where they have none.
    pub cgroup_names: watch::Receiver<Option<Arc<CgroupNames>>>,
    /// Told when something of a pod is left behind that is worth another look soon.
    pub leftovers: Arc<Notify>,
    /// The node's addresses, as it last reported them.
    pub node_addresses: watch::Sender<Vec<NodeAddress>>,
    pub pods: PodsView,
    pub admissions: Admissions,
    pub devices: Devices,
    /// What the node runs short of, written by `eviction`.
    pub pressure: watch::Receiver<NodePressure>,
    /// The machine is about to end, written by `shutdown`.
    pub shutting_down: watch::Receiver<bool>,
    /// This node in the API; nothing for one that stands alone.
    pub own_node: StoreReader<Node>,
    /// The pods bound to this node in the API, mirrors among them; nothing for a node that stands alone.
    pub pods_in_api: StoreReader<Pod>,
    pub metrics: Arc<Metrics>,
    pub probe_metrics: ProbeMetrics,
    pub tasks: TaskSet,
    pub rng: Rng,
}

impl Engine {
    /// The prefix of container ids in the API: `containerd`.
    #[must_use]
    pub fn runtime_name(&self) -> String {
        let name = self.node.borrow().version.name.clone();
        if name.is_empty() { "containerd".to_owned() } else { name }
    }

    /// What pods may use together: what the Node says, or else what it is going to say.
    #[must_use]
    pub fn allocatable(&self) -> BTreeMap<String, Quantity> {
        let node = own_node(&self.own_node.borrow());
        let said = node.and_then(|node| node.status.as_ref()?.allocatable.clone());
        said.unwrap_or_else(|| self.own_allocatable.clone())
    }

    /// Everything that keeps the node from being ready, in the words of its condition; empty when it is.
    #[must_use]
    pub fn node_problems(&self, now: MonoTime) -> Vec<String> {
        self.node.borrow().problems(&self.pleg, *self.shutting_down.borrow(), now)
    }

    #[must_use]
    pub fn host_ips(&self) -> &[IpAddr] {
        &self.settings.network.host_ips
    }
}
