//! Time to a running container: raw CRI calls and manifests in turn, on one real containerd; then from process start.
//!
//! Both sides end at the time that the runtime itself records as the container's start, so no polling is measured, and the raw
//! calls request exactly what the kubelet requests. Between two measurements the runtime is emptied and left idle.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::CriRuntime;
use fakes::{FakeCri, FakeRuntime};
use harness::PrivateCgroup;
use harness::containerd::{BUSYBOX_IMAGE, Containerd};
use jiff::Timestamp;
use model::ContainerState;
use model::request::{ContainerRequest, SandboxRequest};
use ports::runtime::Scope;
use ports::{Clock, Runtime};

use crate::{BenchError, Effort, Outcome, failed};
use harness::node::{Node, sleeping_pod, until};

/// Between two polls for the log file of a starting container: a poll costs microseconds, and only the kubelet and the runtime
/// should be busy.
const POLL: Duration = Duration::from_millis(5);

/// After the kubelet was resumed, and after a pod was removed: due work is done, and the runtime is idle.
const SETTLE: Duration = Duration::from_millis(300);

/// Durations in milliseconds, in the order they were measured.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// RunPodSandbox, CreateContainer, StartContainer.
    pub(crate) raw: Vec<f64>,
    /// Manifest written to container started, each right after the raw calls of the same position.
    pub(crate) manifest: Vec<f64>,
    /// Manifest written to container started on a fake runtime that answers at once: the kubelet's own share.
    pub(crate) own: Vec<f64>,
    /// Process started to container started, with the manifest written before.
    pub(crate) process: Vec<f64>,
}

impl Latency {
    /// What the kubelet adds to the raw calls just before.
    pub(crate) fn added(&self) -> Vec<f64> {
        self.manifest.iter().zip(&self.raw).map(|(manifest, raw)| manifest - raw).collect()
    }
}

pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Latency> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let containerd = Containerd::start(&dir.path().join("containerd")).await;
    let containerd = containerd.map_err(failed("start containerd"))?;
    let runtime = CriRuntime::new(&containerd.endpoint(), "", Duration::from_secs(60));
    let runtime = runtime.map_err(failed("connect to containerd"))?;
    // For containerd, which removes it at its end; files of direct requests are there, too.
    let cgroup = PrivateCgroup::of(&dir.path().join("containerd"));
    let requests = Requests::record(program, &dir.path().join("recorded"), &cgroup).await?;
    let node = Node::new(&dir.path().join("node"), &containerd.endpoint(), &cgroup)?;
    let mut stand = Stand { node, requests, runtime };
    let mut latency = Latency {
        own: own_share(program, &dir.path().join("own"), &cgroup, effort).await?,
        ..Latency::default()
    };
    // The very first one pays for cold caches, which do not repeat.
    stand.raw().await?;
    for round in 0..effort.rounds {
        latency.process.push(stand.process(program, &format!("first-{round}")).await?);
        for pod in 0..effort.pods {
            // A running kubelet would treat raw pods as orphans and remove them.
            stand.node.pause()?;
            let raw = stand.raw().await;
            stand.node.resume()?;
            latency.raw.push(raw?);
            tokio::time::sleep(SETTLE).await;
            latency.manifest.push(stand.manifest(&format!("pod-{round}-{pod}")).await?);
        }
        stand.node.kill()?;
    }
    drop(stand);
    containerd.stop().map_err(failed("stop containerd"))?;
    Ok(latency)
}

async fn own_share(program: &Path, dir: &Path, cgroup: &PrivateCgroup, effort: Effort) -> Outcome<Vec<f64>> {
    let (fake, server, mut node) = fake_node(dir, cgroup)?;
    node.start(program)?;
    let mut own = Vec::new();
    for pod in 0..=effort.rounds * effort.pods {
        let name = format!("own-{pod}");
        let began = Timestamp::now();
        node.apply(&name, &sleeping_pod(&name, BUSYBOX_IMAGE))?;
        let poll = Duration::from_millis(1);
        let count = pod + 1;
        until(&node, "a fake pod", poll, async || Ok((fake.running().len() == count).then_some(()))).await?;
        // The first waits for the process to start.
        if pod > 0 {
            own.push(milliseconds(began, Some(Timestamp::now()))?);
        }
        tokio::time::sleep(SETTLE).await;
    }
    node.kill()?;
    server.stop().await;
    Ok(own)
}

/// A fake runtime behind a socket, and a node for it whose kubelet is not started yet.
fn fake_node(dir: &Path, cgroup: &PrivateCgroup) -> Outcome<(FakeRuntime, FakeCri, Node)> {
    std::fs::create_dir_all(dir).map_err(failed("make a directory"))?;
    let fake = FakeRuntime::with_clock(Clock::system());
    fake.image(BUSYBOX_IMAGE);
    let server = FakeCri::serve(Arc::new(fake.clone()), &dir.join("cri.sock"));
    let server = server.map_err(failed("serve a fake runtime"))?;
    let node = Node::new(dir, &server.endpoint(), cgroup)?;
    Ok((fake, server, node))
}

struct Stand {
    node: Node,
    requests: Requests,
    runtime: CriRuntime,
}

impl Stand {
    /// One pod by the three calls alone.
    async fn raw(&self) -> Outcome<f64> {
        let Requests { sandbox: sandbox_request, container: container_request } = &self.requests;
        let began = Timestamp::now();
        let sandbox = self.runtime.run_sandbox(sandbox_request).await.map_err(failed("raw"))?;
        let created = self.runtime.create_container(&sandbox, container_request, sandbox_request).await;
        let container = created.map_err(failed("raw"))?;
        self.runtime.start_container(&container).await.map_err(failed("raw"))?;
        let status = self.runtime.container_status(&container).await.map_err(failed("raw"))?;
        clear(&self.runtime).await?;
        milliseconds(began, status.started_at)
    }

    /// One kubelet, from its start to its first pod. It keeps running, without a pod.
    async fn process(&mut self, program: &Path, name: &str) -> Outcome<f64> {
        let root = self.node.dir.join("root");
        if root.exists() {
            self.node.unmount_root();
            std::fs::remove_dir_all(&root).map_err(failed(format!("remove {}", root.display())))?;
        }
        self.node.apply(name, &sleeping_pod(name, BUSYBOX_IMAGE))?;
        let began = Timestamp::now();
        self.node.start(program)?;
        let started_at = self.started_at(name).await?;
        self.remove(name).await?;
        milliseconds(began, started_at)
    }

    /// One pod by its manifest.
    async fn manifest(&self, name: &str) -> Outcome<f64> {
        let began = Timestamp::now();
        self.node.apply(name, &sleeping_pod(name, BUSYBOX_IMAGE))?;
        let started_at = self.started_at(name).await?;
        self.remove(name).await?;
        milliseconds(began, started_at)
    }

    async fn remove(&self, name: &str) -> Outcome<()> {
        self.node.delete(name)?;
        until(&self.node, "the pod's end", Duration::from_millis(50), async || {
            let left = self.runtime.list_sandboxes(&Scope::Node).await.map_err(failed("list sandboxes"))?;
            Ok(left.is_empty().then_some(()))
        })
        .await?;
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// When the runtime started the pod's container.
    async fn started_at(&self, name: &str) -> Outcome<Option<Timestamp>> {
        until(&self.node, "a container's log", POLL, async || Ok(self.node.has_log(name).then_some(())))
            .await?;
        until(&self.node, "a running container", POLL, async || {
            let listed =
                self.runtime.list_containers(&Scope::Node).await.map_err(failed("list containers"))?;
            let Some(running) = listed.iter().find(|c| c.state == ContainerState::Running) else {
                return Ok(None);
            };
            let status = self
                .runtime
                .container_status(&running.id)
                .await
                .map_err(failed("get the container's status"))?;
            Ok(Some(status.started_at))
        })
        .await
    }
}

/// Leaves the runtime without pods.
pub(crate) async fn clear(runtime: &CriRuntime) -> Outcome<()> {
    let sandboxes = runtime.list_sandboxes(&Scope::Node).await.map_err(failed("list sandboxes"))?;
    for sandbox in sandboxes {
        runtime.stop_sandbox(&sandbox.id).await.map_err(failed("stop a sandbox"))?;
        runtime.remove_sandbox(&sandbox.id).await.map_err(failed("remove a sandbox"))?;
    }
    Ok(())
}

pub(crate) fn milliseconds(began: Timestamp, ended: Option<Timestamp>) -> Outcome<f64> {
    let ended = ended
        .ok_or_else(|| BenchError("the runtime does not report when it started the container".to_owned()))?;
    Ok(ended.duration_since(began).as_secs_f64() * 1000.0)
}

/// The requests of a kubelet for one pod, so that the raw calls request exactly the same.
#[derive(Debug)]
struct Requests {
    sandbox: SandboxRequest,
    container: ContainerRequest,
}

impl Requests {
    /// Lets the kubelet start a pod on a fake runtime, and returns its requests. The files it made for the pod stay below `dir`,
    /// where the requests point to them.
    async fn record(program: &Path, dir: &Path, cgroup: &PrivateCgroup) -> Outcome<Self> {
        let (fake, server, mut node) = fake_node(dir, cgroup)?;
        node.apply("raw", &sleeping_pod("raw", BUSYBOX_IMAGE))?;
        node.start(program)?;
        until(&node, "the fake pod", POLL, async || Ok((!fake.running().is_empty()).then_some(()))).await?;
        node.kill()?;
        server.stop().await;
        let sandbox = fake.sandbox_request("raw-bench");
        let container = fake.container_request("raw-bench", "main");
        let (Some(sandbox), Some(container)) = (sandbox, container) else {
            return Err(BenchError("the fake runtime has no request for the running pod".to_owned()));
        };
        // The fake has invented an id for the image.
        let container = ContainerRequest { image: BUSYBOX_IMAGE.to_owned(), ..container };
        Ok(Self { sandbox, container })
    }
}
