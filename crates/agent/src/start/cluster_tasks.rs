//! Starts the tasks that use the API server. A standalone kubelet starts none of them.

use std::sync::Arc;

use api_agent::csi::CsiApi;
use api_agent::events::EventWriter;
use api_agent::mirrors::Mirrors;
use api_agent::reflector::{CollectionOf, Keep, Reflector, UidOf, keep_pod};
use api_agent::status::StatusWriter;
use api_agent::volumes_in_use::VolumesInUse;
use api_agent::{ApiClients, pods};
use base_agent::context::Context;
use base_agent::events::Queued;
use model::k8s::{Node, Pod};
use ports::cluster::Selection;
use sources_agent::SourceSet;
use sources_core::ApiPod;
use tokio::sync::{mpsc, watch};
use volumes_agent::Volumes;

use crate::node::facts::NodeSources;
use crate::node::lease;
use crate::node::status::NodeReporter;
use crate::pods::handles::PodHandles;
use crate::pods::sync_loop::SourcesReadiness;

use super::Stores;

/// What these tasks share with the rest of the agent.
pub(super) struct ClusterTasks<'a> {
    pub(super) handles: &'a PodHandles,
    pub(super) clients: &'a ApiClients,
    pub(super) csi: &'a CsiApi,
    pub(super) readiness: &'a SourcesReadiness,
    pub(super) stores: Stores,
}

impl ClusterTasks<'_> {
    /// Starts every task that uses the API server. `sets` goes to the sync loop, and `events` comes from the recorder.
    pub(super) async fn start(self, sets: mpsc::Sender<SourceSet>, events: mpsc::Receiver<Queued>) {
        let Self { handles, clients, csi, readiness, stores } = self;
        let PodHandles { ctx, pods: views, volumes, .. } = handles;
        let (node, pods) = (stores.own_node.subscribe(), stores.pods.subscribe());
        start_reflectors(ctx, clients, stores);
        let (heartbeat, addresses) = (clients.heartbeat.clone(), handles.node.addresses.clone());
        let sources = node_sources(handles, csi);
        let reporter =
            NodeReporter::new(ctx.clone(), sources, addresses, heartbeat.clone(), node.clone()).await;
        let statuses = StatusWriter::new(ctx.clone(), views.clone(), clients.status.clone(), pods.clone());
        let writer = EventWriter::new(ctx.clone(), views.clone(), clients.events.clone(), node.clone());
        let mirrors = Mirrors {
            ctx: ctx.clone(),
            pods: views.clone(),
            cluster: clients.general.clone(),
            in_api: pods.clone(),
            node: node.clone(),
            wanted: readiness.static_pods.subscribe(),
            sources: readiness.complete.subscribe(),
        };
        let tasks = &ctx.tasks;
        let forget = forget_volumes(csi.in_use.clone(), volumes.clone(), readiness.complete.subscribe());
        tasks.spawn("volumes of an earlier run", forget);
        if let Some(objects) = &handles.objects {
            objects.start(ctx);
        }
        let lease_seconds = ctx.config().node_lease_duration_seconds;
        tasks.spawn("node reporter", reporter.run());
        let lease_view = handles.node.lease.clone();
        tasks.spawn("lease", lease::keep(ctx.clone(), heartbeat, node.clone(), lease_seconds, lease_view));
        tasks.spawn("API source", pods::feed(ctx.clone(), pods, node, sets));
        tasks.spawn("status writer", statuses.run());
        tasks.spawn("mirrors", mirrors.run());
        tasks.spawn("event writer", writer.run(events));
    }
}

/// Starts the tasks that follow this node and its pods in the API.
fn start_reflectors(ctx: &Arc<Context>, clients: &ApiClients, stores: Stores) {
    let name = &ctx.settings.node_name;
    let only_this = Selection { fields: Some(format!("metadata.name={name}")), ..Selection::default() };
    let nodes: CollectionOf<Node> = |cluster| cluster.nodes();
    let follow_node = Reflector::new(ctx, &clients.general, nodes, "Node", only_this, stores.own_node);
    let bound: CollectionOf<Pod> = |cluster| cluster.pods();
    let uid_of: UidOf<ApiPod> = |pod| pod.version().uid;
    let keep: Keep<Pod, ApiPod> = keep_pod;
    let on_node = pods::on_node(name);
    let follow_pods =
        Reflector::keeping(ctx, &clients.general, bound, "Pod", on_node, keep, uid_of, stores.pods);
    ctx.tasks.spawn("node reflector", follow_node.run());
    ctx.tasks.spawn("pod reflector", follow_pods.run());
}

fn node_sources(handles: &PodHandles, csi: &CsiApi) -> NodeSources {
    NodeSources {
        node: handles.node.clone(),
        pleg: handles.pleg.clone(),
        devices: handles.resources.devices.clone(),
        volumes_in_use: csi.in_use.clone(),
        csi_node: csi.nodes.problem(),
    }
}

/// Once every source has reported and what is on disk is known, volumes that no pod uses are not in use any more.
async fn forget_volumes(in_use: VolumesInUse, volumes: Volumes, mut sources: watch::Receiver<bool>) {
    if sources.wait_for(|is_complete| *is_complete).await.is_ok() {
        volumes.found().await;
        in_use.complete();
    }
}
