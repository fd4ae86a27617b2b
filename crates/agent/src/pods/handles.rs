//! The handles of a pod worker. Only pod workers, their probes and the sync loop, which starts the workers, have all of
//! them; every other task takes the few that it needs as arguments.

use std::sync::Arc;

use api_agent::admission_node::AdmissionNode;
use api_agent::node_allocatable::NodeAllocatable;
use api_agent::objects::ClusterObjects;
use api_agent::reflector::StoreReader;
use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::pods_view::PodsView;
use images_agent::Images;
use resources_agent::Resources;
use sources_core::ApiPod;
use tokio::sync::{Notify, watch};
use volumes_agent::Volumes;

use crate::node_handle::NodeHandle;
use crate::pods::cgroups::PodCgroups;
use crate::pods::pleg::PlegHandle;
use crate::pods::termination_requests::TerminationRequests;
use crate::pods::user_namespaces::PodIds;
use crate::probe_metrics::ProbeMetrics;

#[derive(Debug)]
pub struct PodHandles {
    pub ctx: Arc<Context>,
    pub images: Arc<Images>,
    pub pod_ids: PodIds,
    pub volumes: Volumes,
    /// `None` for a standalone kubelet.
    pub objects: Option<Arc<ClusterObjects>>,
    /// The pods of this node in the API; `None` for a standalone kubelet.
    pub pods_in_api: Option<StoreReader<ApiPod>>,
    pub cache: PodCache,
    pub pleg: PlegHandle,
    pub node: NodeHandle,
    pub(crate) cgroups: PodCgroups,
    /// Notified when a pod leaves something behind that the sync loop should clean up soon.
    pub leftovers: Arc<Notify>,
    pub pods: PodsView,
    pub resources: Resources,
    /// Eviction, node shutdown and preemption request pods to terminate here.
    pub termination_requests: TerminationRequests,
    /// Every source of pods has reported, written by the sync loop.
    pub sources_ready: watch::Receiver<bool>,
    pub node_for_admission: AdmissionNode,
    pub allocatable: NodeAllocatable,
    pub probe_metrics: ProbeMetrics,
}
