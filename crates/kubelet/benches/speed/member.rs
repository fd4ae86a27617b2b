//! What an idle kubelet costs as a member of a cluster: resident memory and processor time with no pod, with many, and
//! after all of them are gone. The API server is `localapi` in this process, the runtime a fake behind a real socket, so
//! only the kubelet's own cost is measured. Each pod mounts the token of its service account.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::ApiHandle;
use localapi::{LocalApi, Options};
use model::k8s::Pod;
use ports::Clock;
use ports::Cluster;
use ports::cluster::{Deletion, Selection};
use testing::{FakeCri, FakeRuntime, PrivateCgroup};

use crate::api::{NAMESPACE, administrator, is_ready};
use crate::node::{NODE_NAME, Node, OwnCgroup, sleeping_pod, until};
use crate::{Effort, Outcome, failed};

/// Number of pods that are measured.
pub(crate) const PODS: usize = 100;
const IMAGE: &str = "localhost/idle:1";
/// After the last change: the relists, status patches and events that follow from it are over.
const SETTLE: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(200);

/// One kubelet over its whole life.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) empty_bytes: u64,
    pub(crate) full_bytes: u64,
    /// After all pods were deleted.
    pub(crate) after_bytes: u64,
    pub(crate) empty_cpu_seconds_per_minute: f64,
    pub(crate) full_cpu_seconds_per_minute: f64,
}

pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Member> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let runtime = FakeRuntime::with_clock(Clock::system());
    runtime.image(IMAGE);
    let server = FakeCri::serve(Arc::new(runtime.clone()), &dir.path().join("cri.sock"));
    let server = server.map_err(failed("serve a fake runtime"))?;
    let api = LocalApi::start(Options::default()).await.map_err(failed("start the API server"))?;
    let admin = administrator(&api)?;
    let cgroup = OwnCgroup(PrivateCgroup::of(dir.path()));
    let mut node = Node::new(dir.path(), &server.endpoint(), &cgroup.0)?;
    node.join(&api.node_kubeconfig(NODE_NAME).map_err(failed("make a kubeconfig"))?)?;
    node.start(program)?;
    let member = live(&node, &admin, &runtime, effort).await;
    node.kill()?;
    server.stop().await;
    api.stop().await;
    member
}

/// No pod, many pods, no pod again.
async fn live(node: &Node, admin: &ApiHandle, runtime: &FakeRuntime, effort: Effort) -> Outcome<Member> {
    until(node, "the node to be ready", POLL, async || is_ready(admin).await).await?;
    let (empty_bytes, empty_cpu_seconds_per_minute) = idle(node, effort).await?;
    for pod in 0..PODS {
        let name = format!("member-{pod}");
        let mut manifest = sleeping_pod(&name, IMAGE);
        manifest["spec"]["nodeName"] = NODE_NAME.into();
        let pod: Pod = serde_json::from_value(manifest).map_err(failed("make a pod"))?;
        admin.pods().create(NAMESPACE, &pod).await.map_err(failed("create a pod"))?;
    }
    until(node, "all pods to run", POLL, async || Ok((runtime.running().len() == PODS).then_some(())))
        .await?;
    let (full_bytes, full_cpu_seconds_per_minute) = idle(node, effort).await?;
    for pod in 0..PODS {
        let deleted = admin.pods().delete(NAMESPACE, &format!("member-{pod}"), &Deletion::default()).await;
        deleted.map_err(failed("delete a pod"))?;
    }
    until(node, "all pods to be gone", POLL, async || {
        let left = admin.pods().list(&Selection::default()).await.map_err(failed("list pods"))?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await?;
    let (after_bytes, _) = idle(node, effort).await?;
    Ok(Member {
        empty_bytes,
        full_bytes,
        after_bytes,
        empty_cpu_seconds_per_minute,
        full_cpu_seconds_per_minute,
    })
}

/// Resident memory at the end of a window in which nothing changes, and the processor time used in it.
async fn idle(node: &Node, effort: Effort) -> Outcome<(u64, f64)> {
    tokio::time::sleep(SETTLE).await;
    let before = node.cpu_seconds()?;
    tokio::time::sleep(effort.window).await;
    let used = node.cpu_seconds()? - before;
    Ok((node.resident_bytes()?, used * 60.0 / effort.window.as_secs_f64()))
}
