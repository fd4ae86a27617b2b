//! The node of the scenarios as a member of a cluster: what its users and controllers do, and what the API shows.

use std::sync::Arc;

use api_agent::ApiClients;
use fakes::FakeCluster;
use model::k8s::{Event, Node, NodeCondition, Pod, PodStatus};
use ports::Cluster;

use crate::pods::Manifest;
use crate::world::World;

/// All clients reach the same cluster.
pub(crate) fn ports_to(cluster: &FakeCluster) -> ApiClients {
    let client: Arc<dyn Cluster> = Arc::new(cluster.clone());
    ApiClients { general: client.clone(), status: client.clone(), events: client.clone(), heartbeat: client }
}

impl World {
    /// A node of a cluster, without an agent.
    pub(crate) fn of_cluster() -> Self {
        let mut world = Self::new();
        world.cluster = Some(FakeCluster::with_clock(world.clock));
        world.settings.flags.kubeconfig = "/etc/kubernetes/kubelet.conf".to_owned();
        world
    }

    /// A node that has joined and is ready.
    pub(crate) async fn joined() -> Self {
        let mut world = Self::of_cluster();
        world.start().await;
        world.until("the node is ready", Self::is_node_ready).await;
        world
    }

    pub(crate) fn api(&self) -> &FakeCluster {
        self.cluster.as_ref().unwrap()
    }

    // ---- the node ----

    pub(crate) fn node(&self) -> Option<Node> {
        self.api().object("", "node")
    }

    pub(crate) fn node_condition(&self, kind: &str) -> Option<NodeCondition> {
        let conditions = self.node()?.status?.conditions?;
        conditions.into_iter().find(|condition| condition.type_ == kind)
    }

    pub(crate) fn is_node_ready(&self) -> bool {
        self.node_condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    // ---- its pods ----

    /// A user creates the pod, bound to this node.
    pub(crate) fn create(&self, pod: &Manifest) -> Pod {
        self.api().put(&pod.object())
    }

    /// A user deletes the pod, with its own grace period or that many seconds.
    pub(crate) fn delete(&self, name: &str, grace_seconds: Option<i64>) {
        assert!(
            self.api().remove::<Pod>("default", name, grace_seconds),
            "{name} does not exist and cannot be deleted"
        );
    }

    pub(crate) fn in_api(&self, name: &str) -> Option<Pod> {
        self.api().object("default", name)
    }

    /// The pod's status in the API.
    pub(crate) fn api_status(&self, name: &str) -> PodStatus {
        self.in_api(name).and_then(|pod| pod.status).unwrap_or_default()
    }

    pub(crate) fn api_phase(&self, name: &str) -> String {
        self.api_status(name).phase.unwrap_or_default()
    }

    pub(crate) fn is_ready_in_api(&self, name: &str) -> bool {
        self.api_status(name).conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
    }

    // ---- events ----

    /// `Warning Failed web: message`, each with its count.
    pub(crate) fn api_events(&self, reason: &str) -> Vec<Event> {
        let all = self.api().all::<Event>();
        all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).collect()
    }

    /// Events of that reason that this agent recorded, whether or not they reached the API.
    pub(crate) fn recorded(&self, reason: &str) -> usize {
        let latest = self.agent.iter().flat_map(|agent| agent.recorder().latest());
        latest.filter(|event| event.reason == reason).count()
    }

    /// How often that call was made: `patch nodes/status node`.
    pub(crate) fn api_calls(&self, line: &str) -> usize {
        self.api().call_lines().iter().filter(|call| *call == line).count()
    }

    /// A description of the cluster, for failures.
    pub(crate) fn describe_cluster(&self) -> String {
        let Some(cluster) = &self.cluster else { return String::new() };
        let brief = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            format!("{:?} {:?} {phase:?}", pod.metadata.name, pod.metadata.uid)
        };
        let pods: Vec<String> = cluster.all::<Pod>().iter().map(brief).collect();
        let calls = cluster.call_lines();
        let from = calls.len().saturating_sub(40);
        format!("in the API: {pods:#?}\nlast calls to it: {:#?}\n", &calls[from..])
    }
}
