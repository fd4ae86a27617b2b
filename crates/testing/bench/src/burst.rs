//! Many pods at once on a real containerd: the time until all run, compared with the same CRI calls without a kubelet; and for
//! each pod the time to its start, until the API server shows it, and to its removal.
//!
//! The node is a member of a cluster, because the start of a standalone node's pods ends nowhere but in the runtime. Its kubelet is
//! stopped while the pods are created or deleted, so that it meets all of them at once. The API server (`localapi` in this process,
//! not optimised) and the proxy that records the calls compete with the kubelet for the processors; the report has the
//! processor time of both.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::ApiHandle;
use cri::CriRuntime;
use futures_util::StreamExt;
use futures_util::future::join_all;
use harness::PrivateCgroup;
use harness::containerd::{BUSYBOX_IMAGE, Containerd};
use jiff::Timestamp;
use localapi::{LocalApi, Options};
use model::ContainerState;
use model::k8s::Pod;
use parking_lot::Mutex;
use ports::cluster::{Change, Deletion, Selection};
use ports::runtime::Scope;
use ports::{Cluster, Runtime};
use tokio::task::JoinSet;

use crate::latency::milliseconds;
use crate::recording::{Call, Recorder};
use crate::replay::Plan;
use crate::{BenchError, Effort, Outcome, failed};
use harness::api::{NAMESPACE, administrator, is_ready};
use harness::node::{NODE_NAME, Node, cpu_seconds_in, sleeping_pod, until};

/// Pods of the first burst, which pays for cold caches and is not measured.
const WARM_UP: usize = 10;
/// Sandboxes that are removed at the same time between two measurements.
const CLEARED_AT_ONCE: usize = 8;
const POLL: Duration = Duration::from_millis(50);
/// Between two measurements: due work is done, and the runtime is idle.
const SETTLE: Duration = Duration::from_secs(2);

/// All bursts of a node.
#[derive(Debug)]
pub(crate) struct Burst {
    pub(crate) pods: usize,
    /// Each has a sample for every pod.
    pub(crate) starts: Vec<Start>,
    /// Of the calls of every second start.
    pub(crate) replays: Vec<Replay>,
    /// Milliseconds from the deletion of the pods to the end of each pod's object.
    pub(crate) removals: Vec<f64>,
}

/// All pods from nothing to running. Times are in milliseconds.
#[derive(Debug)]
pub(crate) struct Start {
    /// From the time the kubelet can see the pods to the start of the last container.
    pub(crate) all: f64,
    /// The same for each pod.
    pub(crate) to_runtime: Vec<f64>,
    /// To the phase `Running` in a watch of the API.
    pub(crate) to_api: Vec<f64>,
    /// From the start of the container to that phase.
    pub(crate) status: Vec<f64>,
    pub(crate) kubelet_cpu_seconds: f64,
    /// Of the API server and the recording proxy.
    pub(crate) bench_cpu_seconds: f64,
}

/// The recorded calls of one start, made again without the kubelet.
#[derive(Debug)]
pub(crate) struct Replay {
    /// From the first call to the start of the last container, in milliseconds, as in the next two.
    pub(crate) all: f64,
    /// The same for only those calls without which no pod runs.
    pub(crate) required: f64,
    /// What the kubelet needed with these calls.
    pub(crate) with_kubelet: f64,
    /// By method.
    pub(crate) calls: BTreeMap<String, usize>,
    /// The most calls for pods at the same time.
    pub(crate) concurrency: usize,
}

impl Burst {
    /// What the kubelet adds to the calls alone, in percent, for each replay.
    pub(crate) fn added_percent(&self) -> Vec<f64> {
        self.replays.iter().map(|replay| 100.0 * (replay.with_kubelet / replay.all - 1.0)).collect()
    }
}

pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Burst> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let containerd = Containerd::start(&dir.path().join("containerd")).await;
    let containerd = containerd.map_err(failed("start containerd"))?;
    let recorder = Recorder::serve(&dir.path().join("recorder.sock"), &containerd.socket());
    let recorder = recorder.map_err(failed("serve a recording proxy"))?;
    let api = LocalApi::start(Options::default()).await.map_err(failed("start the API server"))?;
    // For containerd, which removes it at its end.
    let cgroup = PrivateCgroup::of(&dir.path().join("containerd"));
    let mut node = Node::new(&dir.path().join("node"), &recorder.endpoint(), &cgroup)?;
    node.join(&api.node_kubeconfig(NODE_NAME).map_err(failed("make a kubeconfig"))?)?;
    node.start(program)?;
    let runtime = CriRuntime::new(&containerd.endpoint(), "", Duration::from_secs(60));
    let runtime = runtime.map_err(failed("connect to containerd"))?;
    let admin = administrator(&api)?;
    until(&node, "the node to be ready", POLL, async || is_ready(&admin).await).await?;
    let observer = Observer::start(administrator(&api)?).await?;
    let mut stand = Stand { node, admin, runtime, recorder, observer };
    let burst = stand.measure(effort).await;
    stand.node.kill()?;
    drop(stand);
    api.stop().await;
    containerd.stop().map_err(failed("stop containerd"))?;
    burst
}

struct Stand {
    node: Node,
    admin: ApiHandle,
    runtime: CriRuntime,
    recorder: Recorder,
    observer: Observer,
}

impl Stand {
    async fn measure(&mut self, effort: Effort) -> Outcome<Burst> {
        let pods = effort.burst_pods;
        self.start("warm-up", WARM_UP).await?;
        self.remove("warm-up", WARM_UP).await?;
        let mut burst = Burst { pods, starts: Vec::new(), replays: Vec::new(), removals: Vec::new() };
        for round in 0..effort.bursts {
            let name = format!("burst-{round}");
            burst.starts.push(self.start(&name, pods).await?);
            burst.removals.extend(self.remove(&name, pods).await?);
            let name = format!("replayed-{round}");
            self.recorder.start();
            let start = self.start(&name, pods).await?;
            let calls = self.recorder.stop();
            burst.replays.push(self.replay(&calls, pods, start.all).await?);
            burst.starts.push(start);
            self.remove(&name, pods).await?;
        }
        Ok(burst)
    }

    /// Starts pods on an empty node.
    async fn start(&self, name: &str, pods: usize) -> Outcome<Start> {
        self.node.pause()?;
        let created = self.create(name, pods).await;
        let cpu = (self.node.cpu_seconds()?, own_cpu_seconds()?);
        let began = Timestamp::now();
        self.node.resume()?;
        created?;
        until(&self.node, "all pods to run", POLL, async || {
            Ok((self.observer.running() == pods).then_some(()))
        })
        .await?;
        let kubelet_cpu_seconds = self.node.cpu_seconds()? - cpu.0;
        let bench_cpu_seconds = own_cpu_seconds()? - cpu.1;
        let started = self.started().await?;
        let seen = self.observer.pods.lock().clone();
        let mut start = Start {
            all: milliseconds(began, started.values().max().copied())?,
            to_runtime: Vec::new(),
            to_api: Vec::new(),
            status: Vec::new(),
            kubelet_cpu_seconds,
            bench_cpu_seconds,
        };
        for (pod, started) in started {
            let shown = seen.get(&pod).and_then(|seen| seen.running);
            start.to_runtime.push(milliseconds(began, Some(started))?);
            start.to_api.push(milliseconds(began, shown)?);
            start.status.push(milliseconds(started, shown)?);
        }
        tokio::time::sleep(SETTLE).await;
        Ok(start)
    }

    async fn create(&self, name: &str, pods: usize) -> Outcome<()> {
        for pod in 0..pods {
            let mut manifest = sleeping_pod(&format!("{name}-{pod}"), BUSYBOX_IMAGE);
            manifest["spec"]["nodeName"] = NODE_NAME.into();
            let pod: Pod = serde_json::from_value(manifest).map_err(failed("make a pod"))?;
            self.admin.pods().create(NAMESPACE, &pod).await.map_err(failed("create a pod"))?;
        }
        Ok(())
    }

    /// When the runtime started the container of each pod.
    async fn started(&self) -> Outcome<BTreeMap<String, Timestamp>> {
        let sandboxes = self.runtime.list_sandboxes(&Scope::Node).await.map_err(failed("list sandboxes"))?;
        let pods: BTreeMap<_, _> =
            sandboxes.into_iter().map(|sandbox| (sandbox.id, sandbox.pod.name.to_string())).collect();
        let listed = self.runtime.list_containers(&Scope::Node).await.map_err(failed("list containers"))?;
        let mut started = BTreeMap::new();
        for container in listed.iter().filter(|container| container.state == ContainerState::Running) {
            let status = self.runtime.container_status(&container.id).await;
            let status = status.map_err(failed("get the container's status"))?;
            if let (Some(pod), Some(at)) = (pods.get(&container.sandbox_id), status.started_at) {
                started.insert(pod.clone(), at);
            }
        }
        Ok(started)
    }

    /// The same calls without the kubelet, which is stopped meanwhile: it would remove the containers as orphans.
    async fn replay(&self, calls: &[Call], pods: usize, with_kubelet: f64) -> Outcome<Replay> {
        let (plan, required) = (Plan::of(calls), Plan::of_required(calls));
        self.node.pause()?;
        // The kubelet must run again whatever happens.
        let all = self.replay_alone(&plan, pods).await;
        let all_required = self.replay_alone(&required, pods).await;
        self.node.resume()?;
        let (all, required) = (all?, all_required?);
        Ok(Replay { all, required, with_kubelet, calls: plan.calls(), concurrency: plan.concurrency })
    }

    async fn replay_alone(&self, plan: &Plan, pods: usize) -> Outcome<f64> {
        self.clear().await?;
        tokio::time::sleep(SETTLE).await;
        // Through the proxy, like the calls of the kubelet.
        let client = self.recorder.client().map_err(failed("connect to the recording proxy"))?;
        let began = Timestamp::now();
        plan.run(&client).await?;
        let started = self.started().await?;
        self.clear().await?;
        if started.len() != pods {
            return Err(BenchError(format!("the repeated calls started {} of {pods} pods", started.len())));
        }
        milliseconds(began, started.values().max().copied())
    }

    /// Deletes all pods, and returns how long each took in milliseconds.
    async fn remove(&self, name: &str, pods: usize) -> Outcome<Vec<f64>> {
        self.node.pause()?;
        let deleted = self.delete(name, pods).await;
        let began = Timestamp::now();
        self.node.resume()?;
        deleted?;
        until(&self.node, "all pods to be gone", POLL, async || {
            Ok((self.observer.gone() == pods).then_some(()))
        })
        .await?;
        until(&self.node, "an empty runtime", POLL, async || {
            let left = self.runtime.list_sandboxes(&Scope::Node).await.map_err(failed("list sandboxes"))?;
            Ok(left.is_empty().then_some(()))
        })
        .await?;
        tokio::time::sleep(SETTLE).await;
        let seen = std::mem::take(&mut *self.observer.pods.lock());
        seen.values().map(|seen| milliseconds(began, seen.gone)).collect()
    }

    async fn delete(&self, name: &str, pods: usize) -> Outcome<()> {
        for pod in 0..pods {
            let name = format!("{name}-{pod}");
            let deleted = self.admin.pods().delete(NAMESPACE, &name, &Deletion::default()).await;
            deleted.map_err(failed("delete a pod"))?;
        }
        Ok(())
    }

    /// Leaves the runtime without pods.
    async fn clear(&self) -> Outcome<()> {
        let sandboxes = self.runtime.list_sandboxes(&Scope::Node).await.map_err(failed("list sandboxes"))?;
        for some in sandboxes.chunks(CLEARED_AT_ONCE) {
            let removed = some.iter().map(async |sandbox| {
                self.runtime.stop_sandbox(&sandbox.id).await.map_err(failed("stop a sandbox"))?;
                self.runtime.remove_sandbox(&sandbox.id).await.map_err(failed("remove a sandbox"))
            });
            join_all(removed).await.into_iter().collect::<Outcome<Vec<()>>>()?;
        }
        Ok(())
    }
}

/// When a pod changed in the API.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    running: Option<Timestamp>,
    gone: Option<Timestamp>,
}

/// A watch of all pods; it ends when this is dropped.
struct Observer {
    pods: Arc<Mutex<BTreeMap<String, Seen>>>,
    _watching: JoinSet<()>,
}

impl Observer {
    async fn start(admin: ApiHandle) -> Outcome<Self> {
        let selection = Selection::default();
        let listed = admin.pods().list(&selection).await.map_err(failed("list pods"))?;
        let pods: Arc<Mutex<BTreeMap<String, Seen>>> = Arc::default();
        let seen = Arc::clone(&pods);
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            let mut since = listed.resource_version;
            // The server ends a watch every few minutes.
            while let Ok(mut changes) = admin.pods().watch(&selection, &since).await {
                while let Some(Ok(change)) = changes.next().await {
                    observe(&mut seen.lock(), change, &mut since);
                }
            }
        });
        Ok(Self { pods, _watching: watching })
    }

    fn running(&self) -> usize {
        self.pods.lock().values().filter(|seen| seen.running.is_some()).count()
    }

    fn gone(&self) -> usize {
        self.pods.lock().values().filter(|seen| seen.gone.is_some()).count()
    }
}

fn observe(pods: &mut BTreeMap<String, Seen>, change: Change<Pod>, since: &mut String) {
    let (pod, is_gone) = match change {
        Change::Added(pod) | Change::Modified(pod) => (pod, false),
        Change::Deleted(pod) => (pod, true),
        Change::Bookmark { resource_version } => {
            *since = resource_version;
            return;
        }
        Change::Malformed { .. } => return,
    };
    let seen = pods.entry(pod.metadata.name.unwrap_or_default()).or_default();
    if is_gone {
        seen.gone = Some(Timestamp::now());
    } else if seen.running.is_none()
        && pod.status.and_then(|status| status.phase).as_deref() == Some("Running")
    {
        seen.running = Some(Timestamp::now());
    }
    *since = pod.metadata.resource_version.unwrap_or_default();
}

fn own_cpu_seconds() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(failed("read /proc/self/stat"))?;
    cpu_seconds_in(&stat)
}
