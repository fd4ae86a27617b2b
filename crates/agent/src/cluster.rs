//! The node as a member of a cluster: everything that talks to the Kubernetes API.
//!
//! Owns the connections' use, and nothing about pods: pods come in as one more source of the sync loop, and their status
//! goes out from [`crate::pods_view::PodsView`]. A kubelet that stands alone starts none of this.

mod events;
mod facts;
mod lease;
mod mirrors;
mod node;
pub mod objects;
mod pods;
pub mod reflector;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::Metadata;
use kubelet_core::reflector::ObjectKey;
use model::k8s::{Node, ObjectMeta, Pod};
use model::{PodSource, annotations};
use ports::Cluster;
use ports::cluster::Selection;
use tokio::sync::{mpsc, watch};

use self::events::EventWriter;
pub(crate) use self::facts::machine;
use self::mirrors::Mirrors;
use self::node::NodeReporter;
use self::reflector::{Of, Reflector, Store};
use self::status::StatusWriter;
use crate::engine::Engine;
use crate::sources::SourceSet;

/// The ways to the API server. Each has a budget of its own, so that no kind of traffic waits behind another.
#[derive(Clone, Debug)]
pub struct ApiClients {
    /// Reads and watches, registration, mirror pods, tokens.
    pub general: Arc<dyn Cluster>,
    /// The status of pods, and the deletion of those that are done.
    pub status: Arc<dyn Cluster>,
    pub events: Arc<dyn Cluster>,
    /// The status of the node, and its lease.
    pub heartbeat: Arc<dyn Cluster>,
}

/// What the tasks of the cluster share with the rest of the agent.
pub(crate) struct LoopSide {
    /// Where everybody looks for this node.
    pub(crate) own_node: watch::Sender<Store<Node>>,
    /// Where everybody looks for what the API has of this node's pods.
    pub(crate) pods: watch::Sender<Store<Pod>>,
    /// Takes the pods of the API.
    pub(crate) sets: mpsc::Sender<SourceSet>,
    /// The static pods that some source wants.
    pub(crate) wanted: watch::Receiver<BTreeSet<ObjectKey>>,
    /// All sources have reported, and left nothing out.
    pub(crate) sources: watch::Receiver<bool>,
}

/// Starts every task that talks to the API.
pub(crate) async fn start(engine: &Arc<Engine>, clients: &ApiClients, side: LoopSide) {
    let Some(settings) = &engine.settings.node else { return };
    let tasks = &engine.tasks;
    let name = &engine.settings.node_name;
    let node = engine.own_node.clone();
    let pods = engine.pods_in_api.clone();
    let only_this = Selection { fields: Some(format!("metadata.name={name}")), ..Selection::default() };
    let nodes: Of<Node> = |cluster| cluster.nodes();
    let follow_node = Reflector::new(engine, &clients.general, (nodes, "Node"), only_this, side.own_node);
    let bound: Of<Pod> = |cluster| cluster.pods();
    let follow_pods =
        Reflector::new(engine, &clients.general, (bound, "Pod"), pods::on_node(name), side.pods);
    let heartbeat = clients.heartbeat.clone();
    let reporter = NodeReporter::new(engine.clone(), heartbeat.clone(), settings.clone(), node.clone()).await;
    let statuses = StatusWriter::new(engine.clone(), clients.status.clone(), pods.clone());
    let events = EventWriter::new(engine.clone(), clients.events.clone(), node.clone());
    let mirrors = Mirrors {
        engine: engine.clone(),
        cluster: clients.general.clone(),
        in_api: pods.clone(),
        node: node.clone(),
        wanted: side.wanted,
        sources: side.sources,
    };
    if let Some(objects) = &engine.objects {
        objects.start(engine);
    }
    let lease_seconds = settings.config.node_lease_duration_seconds;
    tasks.spawn("node reflector", follow_node.run());
    tasks.spawn("pod reflector", follow_pods.run());
    tasks.spawn("node reporter", reporter.run());
    tasks.spawn("lease", lease::keep(engine.clone(), heartbeat, node.clone(), lease_seconds));
    tasks.spawn("API source", pods::feed(pods, node, side.sets));
    tasks.spawn("status writer", statuses.run());
    tasks.spawn("mirrors", mirrors.run());
    tasks.spawn("event writer", events.run(engine.recorder.write_to()));
}

/// The Node, of a copy that holds no other.
pub(crate) fn own_node(seen: &Store<Node>) -> Option<Arc<Node>> {
    seen.objects.values().next().cloned()
}

/// The answer to a call of ours is newer than what the watch has shown: the same object, further on. Versions of one
/// object compare as numbers; one that is none has been overtaken.
fn is_newer<K: Metadata<Ty = ObjectMeta>>(answer: &K, seen: &K) -> bool {
    let number = |object| version_of::<K>(object).parse::<u64>().ok();
    answer.metadata().uid == seen.metadata().uid && number(answer) > number(seen)
}

/// The pod comes from this machine, and the API only shows it.
fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotations::CONFIG_SOURCE));
    source.is_some_and(|source| source != PodSource::Api.as_str())
}

/// What the API calls the object.
pub(crate) fn key_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> ObjectKey {
    let meta = object.metadata();
    ObjectKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// Empty for an object that the API has not seen.
fn version_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> &str {
    object.metadata().resource_version.as_deref().unwrap_or_default()
}
