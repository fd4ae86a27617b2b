//! Starts the tasks that use the API server. A standalone kubelet starts none of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use api_agent::csi_node::CsiNodeTasks;
use api_agent::events::EventWriter;
use api_agent::mirrors::Mirrors;
use api_agent::objects::ClusterObjects;
use api_agent::reflector::{CollectionOf, Keep, Reflector, Store, UidOf, keep_pod};
use api_agent::status::StatusWriter;
use api_agent::volumes_in_use::VolumesInUse;
use api_agent::{ApiClients, pods};
use api_core::reflector::ObjectKey;
use base_agent::context::Context;
use base_agent::events::Queued;
use base_agent::pods_view::PodsView;
use model::k8s::{Node, NodeAddress, Pod};
use ports::cluster::Selection;
use sources_agent::SourceSet;
use sources_core::ApiPod;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use volumes_agent::Volumes;

use crate::node::facts::NodeSources;
use crate::node::lease;
use crate::node::status::NodeReporter;

/// What these tasks share with the rest of the agent.
pub(super) struct ClusterTaskInputs {
    /// The store of this node.
    pub(super) own_node: watch::Sender<Store<Node>>,
    /// The store of the pods bound to this node.
    pub(super) pods: watch::Sender<Store<ApiPod>>,
    /// To the sync loop.
    pub(super) sets: mpsc::Sender<SourceSet>,
    /// The static pods of all sources.
    pub(super) wanted: watch::Receiver<BTreeSet<ObjectKey>>,
    /// All sources have reported completely.
    pub(super) sources: watch::Receiver<bool>,
    /// From the recorder.
    pub(super) events: mpsc::Receiver<Queued>,
    /// The pods of this node with their status.
    pub(super) views: PodsView,
    pub(super) objects: Option<Arc<ClusterObjects>>,
    pub(super) node_sources: NodeSources,
    /// The node's addresses, as it last reported them.
    pub(super) addresses: watch::Sender<Vec<NodeAddress>>,
    pub(super) volumes: Volumes,
    pub(super) csi_node: CsiNodeTasks,
    /// Cancelled if the CSINode cannot be created.
    pub(super) must_exit: CancellationToken,
}

/// Starts every task that uses the API server.
pub(super) async fn start(ctx: &Arc<Context>, clients: &ApiClients, inputs: ClusterTaskInputs) {
    let tasks = &ctx.tasks;
    let name = &ctx.settings.node_name;
    let (node, pods) = (inputs.own_node.subscribe(), inputs.pods.subscribe());
    let only_this = Selection { fields: Some(format!("metadata.name={name}")), ..Selection::default() };
    let nodes: CollectionOf<Node> = |cluster| cluster.nodes();
    let follow_node = Reflector::new(ctx, &clients.general, nodes, "Node", only_this, inputs.own_node);
    let bound: CollectionOf<Pod> = |cluster| cluster.pods();
    let uid_of: UidOf<ApiPod> = |pod| pod.version().uid;
    let keep: Keep<Pod, ApiPod> = keep_pod;
    let on_node = pods::on_node(name);
    let follow_pods =
        Reflector::keeping(ctx, &clients.general, bound, "Pod", on_node, keep, uid_of, inputs.pods);
    let heartbeat = clients.heartbeat.clone();
    let in_use = inputs.node_sources.volumes_in_use.clone();
    let reporter = NodeReporter::new(
        ctx.clone(),
        inputs.node_sources,
        inputs.addresses,
        heartbeat.clone(),
        node.clone(),
    )
    .await;
    let statuses = StatusWriter::new(ctx.clone(), inputs.views.clone(), clients.status.clone(), pods.clone());
    let events = EventWriter::new(ctx.clone(), inputs.views.clone(), clients.events.clone(), node.clone());
    let mirrors = Mirrors {
        ctx: ctx.clone(),
        pods: inputs.views,
        cluster: clients.general.clone(),
        in_api: pods.clone(),
        node: node.clone(),
        wanted: inputs.wanted,
        sources: inputs.sources,
    };
    tasks.spawn("volumes of an earlier run", forget_volumes(in_use, inputs.volumes, mirrors.sources.clone()));
    inputs.csi_node.start(inputs.must_exit);
    if let Some(objects) = &inputs.objects {
        objects.start(ctx);
    }
    let lease_seconds = ctx.config().node_lease_duration_seconds;
    tasks.spawn("node reflector", follow_node.run());
    tasks.spawn("pod reflector", follow_pods.run());
    tasks.spawn("node reporter", reporter.run());
    tasks.spawn("lease", lease::keep(ctx.clone(), heartbeat, node.clone(), lease_seconds));
    tasks.spawn("API source", pods::feed(ctx.clone(), pods, node, inputs.sets));
    tasks.spawn("status writer", statuses.run());
    tasks.spawn("mirrors", mirrors.run());
    tasks.spawn("event writer", events.run(inputs.events));
}

/// Once every source has reported and what is on disk is known, volumes that no pod uses are not in use any more.
async fn forget_volumes(in_use: VolumesInUse, volumes: Volumes, mut sources: watch::Receiver<bool>) {
    if sources.wait_for(|is_complete| *is_complete).await.is_ok() {
        volumes.found().await;
        in_use.complete();
    }
}
