//! What a kubelet costs as a member of a cluster: memory, processor time and requests to the API server with no pod, with many,
//! and after all of them are gone; the same after as many pods as a busy node has in a day; and the requests for the life of a pod.
//! The API server is `localapi` in this process, the runtime a fake behind a real socket, so only the kubelet's own cost is measured.
//! Each pod mounts the token of its service account.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::ApiHandle;
use fakes::{FakeCri, FakeRuntime};
use harness::PrivateCgroup;
use localapi::{LocalApi, Options};
use model::k8s::Pod;
use ports::Clock;
use ports::Cluster;
use ports::cluster::{Deletion, Selection};

use crate::{Effort, Outcome, failed};
use harness::api::{NAMESPACE, administrator, is_ready};
use harness::node::{Memory, NODE_NAME, Node, OwnCgroup, sleeping_pod, until};

/// Numbers of pods that are measured, each on a node of its own; the further ones in a full run only.
const COUNTS: [usize; 1] = [100];
const FURTHER_COUNTS: [usize; 4] = [30, 250, 500, 1000];
const IMAGE: &str = "localhost/idle:1";
/// With at most so many requests in that time, the statuses and events of the last change have all been sent: the node's lease is
/// renewed, and its status reported, from time to time.
const QUIET: (f64, Duration) = (2.0, Duration::from_secs(5));
/// After the last request: relists and inspections that follow from it are over, and free memory was returned.
const SETTLE: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(200);

/// One kubelet over its whole life.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) pods: usize,
    /// Before the first pod.
    pub(crate) empty: Stage,
    /// With all pods.
    pub(crate) full: Stage,
    /// After all pods were deleted.
    pub(crate) after: Stage,
    /// How often all pods were started and deleted again, and the stage after that.
    pub(crate) day: Option<(usize, Stage)>,
}

/// A time in which nothing changes.
#[derive(Debug)]
pub(crate) struct Stage {
    /// At its end.
    pub(crate) memory: Memory,
    pub(crate) cpu_seconds_per_minute: f64,
    pub(crate) requests_per_minute: f64,
    /// Requests to the API server from the start of the process to the beginning of this stage.
    requests_before: f64,
    /// The same to its end.
    requests_after: f64,
}

impl Member {
    /// Requests to the API server for the whole life of a pod, events included.
    pub(crate) fn requests_per_pod(&self) -> f64 {
        let created = self.full.requests_before - self.empty.requests_after;
        let deleted = self.after.requests_before - self.full.requests_after;
        (created + deleted) / self.pods as f64
    }
}

/// One after the other, because the fakes of large nodes need the processors, too.
pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Vec<Member>> {
    let further = if effort.with_all_counts { FURTHER_COUNTS.as_slice() } else { &[] };
    let mut members = Vec::new();
    for pods in COUNTS.iter().chain(further) {
        eprintln!("starting and deleting {pods} pods on a member of a cluster");
        let cycles = if *pods == COUNTS[0] { effort.cycles } else { 0 };
        members.push(measure_one(program, effort, *pods, cycles).await?);
    }
    Ok(members)
}

async fn measure_one(program: &Path, effort: Effort, pods: usize, cycles: usize) -> Outcome<Member> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let runtime = FakeRuntime::with_clock(Clock::system());
    runtime.write_logs().image(IMAGE);
    let server = FakeCri::serve(Arc::new(runtime.clone()), &dir.path().join("cri.sock"));
    let server = server.map_err(failed("serve a fake runtime"))?;
    let api = LocalApi::start(Options::default()).await.map_err(failed("start the API server"))?;
    let admin = administrator(&api)?;
    let cgroup = OwnCgroup(PrivateCgroup::of(dir.path()));
    let mut node = Node::new(dir.path(), &server.endpoint(), &cgroup.0)?;
    node.join(&api.node_kubeconfig(NODE_NAME).map_err(failed("make a kubeconfig"))?)?;
    node.start(program)?;
    let member = live(&node, &admin, &runtime, pods, cycles, effort).await;
    node.kill()?;
    server.stop().await;
    api.stop().await;
    member
}

/// No pod, many pods, no pod again; then the same several times.
async fn live(
    node: &Node,
    admin: &ApiHandle,
    runtime: &FakeRuntime,
    pods: usize,
    cycles: usize,
    effort: Effort,
) -> Outcome<Member> {
    until(node, "the node to be ready", POLL, async || is_ready(admin).await).await?;
    let empty = idle(node, effort).await?;
    create_all(node, admin, runtime, pods).await?;
    let full = idle_after(node, effort.settle, effort).await?;
    delete_all(node, admin, pods).await?;
    let after = idle_after(node, effort.settle_empty, effort).await?;
    for _ in 0..cycles {
        create_all(node, admin, runtime, pods).await?;
        delete_all(node, admin, pods).await?;
    }
    let day = match cycles {
        0 => None,
        cycles => Some((cycles, idle_after(node, effort.settle_empty, effort).await?)),
    };
    Ok(Member { pods, empty, full, after, day })
}

async fn create_all(node: &Node, admin: &ApiHandle, runtime: &FakeRuntime, pods: usize) -> Outcome<()> {
    for pod in 0..pods {
        let name = format!("member-{pod}");
        let mut manifest = sleeping_pod(&name, IMAGE);
        manifest["spec"]["nodeName"] = NODE_NAME.into();
        let pod: Pod = serde_json::from_value(manifest).map_err(failed("make a pod"))?;
        admin.pods().create(NAMESPACE, &pod).await.map_err(failed("create a pod"))?;
    }
    until(node, "all pods to run", POLL, async || Ok((runtime.running().len() == pods).then_some(()))).await
}

async fn delete_all(node: &Node, admin: &ApiHandle, pods: usize) -> Outcome<()> {
    for pod in 0..pods {
        let deleted = admin.pods().delete(NAMESPACE, &format!("member-{pod}"), &Deletion::default()).await;
        deleted.map_err(failed("delete a pod"))?;
    }
    until(node, "all pods to be gone", POLL, async || {
        let left = admin.pods().list(&Selection::default()).await.map_err(failed("list pods"))?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await
}

/// The same some time after the pods of the node have changed.
async fn idle_after(node: &Node, settle: Duration, effort: Effort) -> Outcome<Stage> {
    tokio::time::sleep(settle.saturating_sub(SETTLE)).await;
    idle(node, effort).await
}

/// Until the statuses and events of the last change have all been sent.
pub(crate) async fn until_quiet(node: &Node) -> Outcome<()> {
    let mut known = node.api_requests().await?;
    let (few, pause) = QUIET;
    until(node, "the last request to the API server", Duration::ZERO, async || {
        tokio::time::sleep(pause).await;
        let now = node.api_requests().await?;
        let is_quiet = now - known <= few && now > 0.0;
        known = now;
        Ok(is_quiet.then_some(()))
    })
    .await
}

/// What is used in a window in which nothing changes.
async fn idle(node: &Node, effort: Effort) -> Outcome<Stage> {
    until_quiet(node).await?;
    tokio::time::sleep(SETTLE).await;
    let (cpu, requests_before) = (node.cpu_seconds()?, node.api_requests().await?);
    tokio::time::sleep(effort.window).await;
    let cpu = node.cpu_seconds()? - cpu;
    let memory = node.exact_memory()?;
    let requests_after = node.api_requests().await?;
    let per_minute = 60.0 / effort.window.as_secs_f64();
    Ok(Stage {
        memory,
        cpu_seconds_per_minute: cpu * per_minute,
        requests_per_minute: (requests_after - requests_before) * per_minute,
        requests_before,
        requests_after,
    })
}
