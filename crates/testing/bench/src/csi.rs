//! What volumes of a CSI driver cost on a member of a cluster: the time that two of them add to the start of a pod, less the time that
//! the driver itself takes, and the memory that a registered driver adds to an idle kubelet.
//!
//! The driver makes real mounts and records when it works. The runtime is a fake at no cost, and the API server is `localapi` in this
//! process. Each pod with volumes follows one without, and only such pairs are compared.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::ApiHandle;
use fakes::{FakeCri, FakeRuntime, TestCsiDriver};
use harness::PrivateCgroup;
use jiff::Timestamp;
use localapi::{LocalApi, Options, Running, State};
use model::MonoTime;
use model::k8s::{CSIDriver, Pod};
use ports::Clock;
use ports::Cluster;
use ports::cluster::Deletion;
use serde_json::{Value, json};

use crate::latency::milliseconds;
use crate::{BenchError, Effort, Outcome, failed};
use harness::api::{NAMESPACE, administrator, is_ready};
use harness::node::{Memory, NODE_NAME, Node, OwnCgroup, sleeping_pod, until};

const DRIVER: &str = "bench.csi.example";
const IMAGE: &str = "localhost/idle:1";
/// Each a claim with its volume.
const VOLUMES: [&str; 2] = ["first", "second"];
const POLL: Duration = Duration::from_millis(1);
/// After a pod is gone: what follows from that is over.
const SETTLE: Duration = Duration::from_millis(300);
/// Before memory is measured: the start of the kubelet, or the registration, is over.
const REST: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Csi {
    /// Milliseconds from the creation of a pod without volumes to its container.
    pub(crate) plain: Vec<f64>,
    /// The same for the pod with two volumes after it.
    pub(crate) with_volumes: Vec<f64>,
    /// Milliseconds of these in which the driver worked.
    pub(crate) driver: Vec<f64>,
    /// Resident bytes that a registered driver adds, in a process each: the code that runs for the first time is most of them.
    pub(crate) registered_bytes: Vec<f64>,
    /// Those of them that are no part of a file.
    pub(crate) registered_anonymous_bytes: Vec<f64>,
}

impl Csi {
    /// What two volumes add to the driver's own time.
    pub(crate) fn added(&self) -> Vec<f64> {
        let pairs = self.with_volumes.iter().zip(&self.plain).zip(&self.driver);
        pairs.map(|((with, without), driver)| with - without - driver).collect()
    }
}

pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Csi> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let (registered_bytes, registered_anonymous_bytes) =
        memory(program, dir.path(), effort).await?.into_iter().unzip();
    let mut stand = Stand::start(program, &dir.path().join("latency")).await?;
    stand.register().await?;
    let mut csi = Csi { registered_bytes, registered_anonymous_bytes, ..Csi::default() };
    for pair in 0..=effort.rounds * effort.pods {
        let plain = stand.pod(&format!("plain-{pair}"), &[]).await?;
        let with_volumes = stand.pod(&format!("volumes-{pair}"), &VOLUMES).await?;
        // The first pods pay for cold caches, and the volumes for the list of drivers, which do not repeat.
        if pair > 0 {
            csi.plain.push(plain.took);
            csi.with_volumes.push(with_volumes.took);
            csi.driver.push(with_volumes.driver);
        }
    }
    stand.stop().await?;
    Ok(csi)
}

/// All kubelets at the same time: each is a process of its own, and idle.
async fn memory(program: &Path, dir: &Path, effort: Effort) -> Outcome<Vec<(f64, f64)>> {
    let rounds = (0..effort.rounds).map(|round| dir.join(format!("memory-{round}")));
    let mut added = Vec::new();
    let measured = rounds.map(|dir| added_memory(program, dir));
    for one in futures_util::future::join_all(measured).await {
        added.push(one?);
    }
    Ok(added)
}

/// What a registration adds to the resident and to the anonymous memory of one kubelet, less what time adds to another.
async fn added_memory(program: &Path, dir: std::path::PathBuf) -> Outcome<(f64, f64)> {
    let (with, without) = (dir.join("with"), dir.join("without"));
    let (mut with, without) =
        tokio::try_join!(Stand::start(program, &with), Stand::start(program, &without))?;
    tokio::time::sleep(REST).await;
    let before = (with.node.exact_memory()?, without.node.exact_memory()?);
    with.register().await?;
    tokio::time::sleep(REST).await;
    let after = (with.node.exact_memory()?, without.node.exact_memory()?);
    with.stop().await?;
    without.stop().await?;
    let added = |of: fn(&Memory) -> u64| {
        difference(of(&after.0), of(&before.0)) - difference(of(&after.1), of(&before.1))
    };
    Ok((added(|memory| memory.resident), added(|memory| memory.anonymous)))
}

#[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
fn difference(after: u64, before: u64) -> f64 {
    after as f64 - before as f64
}

/// How long a pod took to run, in milliseconds.
struct Started {
    took: f64,
    /// How much of it the driver worked.
    driver: f64,
}

/// A node of a cluster with a driver that is not registered at first. The driver is dropped first.
struct Stand {
    driver: TestCsiDriver,
    node: Node,
    runtime: FakeRuntime,
    server: FakeCri,
    admin: ApiHandle,
    api: Running,
    _cgroup: OwnCgroup,
}

impl Stand {
    async fn start(program: &Path, dir: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(dir).map_err(failed("make a directory"))?;
        let runtime = FakeRuntime::with_clock(Clock::system());
        runtime.image(IMAGE);
        let server = FakeCri::serve(Arc::new(runtime.clone()), &dir.join("cri.sock"));
        let server = server.map_err(failed("serve a fake runtime"))?;
        let api = api_with_claims().await?;
        let admin = administrator(&api)?;
        let cgroup = OwnCgroup(PrivateCgroup::of(dir));
        let mut node = Node::new(dir, &server.endpoint(), &cgroup.0)?;
        node.join(&api.node_kubeconfig(NODE_NAME).map_err(failed("make a kubeconfig"))?)?;
        node.start(program)?;
        until(&node, "the node to be ready", Duration::from_millis(200), async || is_ready(&admin).await)
            .await?;
        let driver = TestCsiDriver::serve(&dir.join("root"), DRIVER, &dir.join("storage"));
        Ok(Self { driver, node, runtime, server, admin, api, _cgroup: cgroup })
    }

    async fn register(&mut self) -> Outcome<()> {
        let object = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
        let object: CSIDriver = serde_json::from_value(object).map_err(failed("make a CSIDriver"))?;
        self.admin.csi_drivers().create("", &object).await.map_err(failed("create a CSIDriver"))?;
        self.driver.register();
        until(&self.node, "the driver to be registered", Duration::from_millis(50), async || {
            let Ok(node) = self.admin.csi_nodes().get("", NODE_NAME).await else { return Ok(None) };
            Ok((!node.spec.drivers.is_empty()).then_some(()))
        })
        .await
    }

    /// One pod with these claims, from its creation to its end.
    async fn pod(&self, name: &str, claims: &[&str]) -> Outcome<Started> {
        let pod = pod_with(name, claims)?;
        let calls = self.driver.call_times().len();
        let began = Timestamp::now();
        self.admin.pods().create(NAMESPACE, &pod).await.map_err(failed("create a pod"))?;
        until(
            &self.node,
            "a fake pod",
            POLL,
            async || Ok((!self.runtime.running().is_empty()).then_some(())),
        )
        .await?;
        let took = milliseconds(began, Some(Timestamp::now()))?;
        let driver = busy_milliseconds(self.driver.call_times().split_off(calls));
        let deleted = self.admin.pods().delete(NAMESPACE, name, &Deletion::default()).await;
        deleted.map_err(failed("delete a pod"))?;
        until(&self.node, "the pod's end", Duration::from_millis(20), async || {
            let is_gone = self.admin.pods().get(NAMESPACE, name).await.is_err();
            Ok((is_gone && self.runtime.running().is_empty() && self.driver.staged().is_empty())
                .then_some(()))
        })
        .await?;
        tokio::time::sleep(SETTLE).await;
        Ok(Started { took, driver })
    }

    async fn stop(self) -> Outcome<()> {
        let Self { driver, mut node, server, api, .. } = self;
        let violations = driver.violations();
        drop(driver);
        node.kill()?;
        server.stop().await;
        api.stop().await;
        if violations.is_empty() { Ok(()) } else { Err(BenchError(format!("{violations:?}"))) }
    }
}

fn pod_with(name: &str, claims: &[&str]) -> Outcome<Pod> {
    let mut manifest = sleeping_pod(name, IMAGE);
    let volumes =
        claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
    let mounts = claims.iter().map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")}));
    manifest["spec"]["nodeName"] = NODE_NAME.into();
    manifest["spec"]["volumes"] = volumes.collect();
    manifest["spec"]["containers"][0]["volumeMounts"] = mounts.collect();
    serde_json::from_value(manifest).map_err(failed("make a pod"))
}

/// The time in which at least one of these calls was under way.
fn busy_milliseconds(mut calls: Vec<(MonoTime, MonoTime)>) -> f64 {
    calls.sort_unstable();
    let (mut busy, mut until) = (Duration::ZERO, MonoTime::ZERO);
    for (began, ended) in calls {
        busy += ended.saturating_since(began.max(until));
        until = until.max(ended);
    }
    busy.as_secs_f64() * 1000.0
}

/// An API server with the claims, bound to volumes of the driver as the controllers of a real cluster do.
async fn api_with_claims() -> Outcome<Running> {
    let api = LocalApi::start(Options::default()).await.map_err(failed("start the API server"))?;
    let state = api.stop().await.to_json();
    let mut state: Value =
        serde_json::from_str(&state).map_err(failed("read the state of the API server"))?;
    let objects = state.pointer_mut("/store/objects").and_then(Value::as_array_mut);
    let objects =
        objects.ok_or_else(|| BenchError("the state of the API server has no objects".to_owned()))?;
    for volume in VOLUMES {
        let metadata = |uid: &str| json!({"uid": uid, "resourceVersion": "1", "creationTimestamp": "2020-01-01T00:00:00Z"});
        let (storage, modes) = (json!({"storage": "1Gi"}), json!(["ReadWriteOnce"]));
        let (name, uid) = (format!("pv-{volume}"), format!("uid-{volume}"));
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(&uid),
            "spec": {"accessModes": modes, "volumeName": name, "resources": {"requests": storage}},
            "status": {"phase": "Bound", "accessModes": modes, "capacity": storage},
        });
        claim["metadata"]["name"] = volume.into();
        claim["metadata"]["namespace"] = NAMESPACE.into();
        let mut bound = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata(&name),
            "spec": {
                "capacity": storage, "accessModes": modes, "csi": {"driver": DRIVER, "volumeHandle": volume},
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": volume, "uid": uid},
            },
            "status": {"phase": "Bound"},
        });
        bound["metadata"]["name"] = name.into();
        objects.push(json!({"resource": "persistentvolumeclaims", "object": claim}));
        objects.push(json!({"resource": "persistentvolumes", "object": bound}));
    }
    let options = Options::default();
    let state = State::from_json(&state.to_string(), options.history);
    let state = state.map_err(failed("restore the state of the API server"))?;
    LocalApi::start(Options { state: Some(state), ..options }).await.map_err(failed("start the API server"))
}
