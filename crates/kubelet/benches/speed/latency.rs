//! Time to a running container: raw CRI calls and manifests in turn, on one real containerd; then from process start.
//!
//! Both sides end at the moment that the runtime itself notes as the container's start, so nobody's polling is
//! measured. Between two measurements the runtime is emptied and left alone.

use std::path::Path;
use std::time::Duration;

use cri::CriRuntime;
use jiff::Timestamp;
use model::annotations as keys;
use model::observation::NamespaceMode;
use model::request::{
    ContainerRequest, ContainerSecurity, DnsRequest, LinuxResources, Namespaces, SandboxRequest,
    SandboxSecurity,
};
use model::{ContainerState, PodRef};
use ports::Runtime;
use ports::runtime::Scope;
use testing::containerd::{BUSYBOX_IMAGE, Containerd};

use crate::node::{Node, sleeping_command, sleeping_pod, until};
use crate::{BenchError, Effort, Outcome, failed};

/// Between two looks for the log file of a container that is to come: a look costs microseconds, and only the kubelet
/// and the runtime are to be busy.
const LOOK: Duration = Duration::from_millis(5);

/// Durations in milliseconds, in the order they were measured.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// RunPodSandbox, CreateContainer, StartContainer.
    pub(crate) raw: Vec<f64>,
    /// Manifest in place to container started.
    pub(crate) manifest: Vec<f64>,
    /// Process started to container started, with the manifest in place before.
    pub(crate) process: Vec<f64>,
}

pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Latency> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let containerd = Containerd::start(&dir.path().join("containerd")).await;
    let containerd = containerd.map_err(failed("start containerd"))?;
    let runtime = CriRuntime::new(&containerd.endpoint(), "", Duration::from_secs(60));
    let runtime = runtime.map_err(failed("connect to containerd"))?;
    let mut stand = Stand { node: Node::new(&dir.path().join("node"), &containerd.endpoint())?, runtime };
    let mut latency = Latency::default();
    // The first of all pays for cold caches, which is not what repeats.
    stand.raw("warm-up").await?;
    for round in 0..effort.rounds {
        for pod in 0..effort.pods {
            latency.raw.push(stand.raw(&format!("raw-{round}-{pod}")).await?);
        }
        latency.process.push(stand.process(program, &format!("first-{round}")).await?);
        for pod in 0..effort.pods {
            latency.manifest.push(stand.manifest(&format!("pod-{round}-{pod}")).await?);
        }
        // A kubelet would take raw pods for leftovers of its own and remove them.
        stand.node.kill()?;
    }
    drop(stand);
    containerd.stop().map_err(failed("stop containerd"))?;
    Ok(latency)
}

struct Stand {
    node: Node,
    runtime: CriRuntime,
}

impl Stand {
    /// One pod by the three calls alone.
    async fn raw(&self, name: &str) -> Outcome<f64> {
        let log_directory = self.node.dir.join("raw-logs").join(name);
        std::fs::create_dir_all(log_directory.join("main")).map_err(failed("make a log directory"))?;
        let sandbox_request = sandbox_request(name, &log_directory);
        let container_request = container_request(&sandbox_request);
        let began = Timestamp::now();
        let sandbox = self.runtime.run_sandbox(&sandbox_request).await.map_err(failed("raw"))?;
        let created = self.runtime.create_container(&sandbox, &container_request, &sandbox_request).await;
        let container = created.map_err(failed("raw"))?;
        self.runtime.start_container(&container).await.map_err(failed("raw"))?;
        let status = self.runtime.container_status(&container).await.map_err(failed("raw"))?;
        self.clear().await?;
        milliseconds(began, status.started_at)
    }

    /// One kubelet, from nothing to its first pod. It goes on running, without a pod.
    async fn process(&mut self, program: &Path, name: &str) -> Outcome<f64> {
        let root = self.node.dir.join("root");
        if root.exists() {
            std::fs::remove_dir_all(&root).map_err(failed(format!("remove {}", root.display())))?;
        }
        self.node.apply(name, &sleeping_pod(name, BUSYBOX_IMAGE))?;
        let began = Timestamp::now();
        self.node.start(program)?;
        let started_at = self.started_at(name).await?;
        self.take_down(name).await?;
        milliseconds(began, started_at)
    }

    /// One pod by its manifest.
    async fn manifest(&self, name: &str) -> Outcome<f64> {
        let began = Timestamp::now();
        self.node.apply(name, &sleeping_pod(name, BUSYBOX_IMAGE))?;
        let started_at = self.started_at(name).await?;
        self.take_down(name).await?;
        milliseconds(began, started_at)
    }

    async fn take_down(&self, name: &str) -> Outcome<()> {
        self.node.delete(name)?;
        until(&self.node, "the pod's end", Duration::from_millis(50), async || {
            let left = self.runtime.list_sandboxes(&Scope::Node).await.map_err(failed("list sandboxes"))?;
            Ok(left.is_empty().then_some(()))
        })
        .await
    }

    /// When the runtime started the pod's container.
    async fn started_at(&self, name: &str) -> Outcome<Option<Timestamp>> {
        until(&self.node, "a container's log", LOOK, async || Ok(self.node.has_log(name).then_some(())))
            .await?;
        until(&self.node, "a running container", LOOK, async || {
            let listed =
                self.runtime.list_containers(&Scope::Node).await.map_err(failed("list containers"))?;
            let Some(running) = listed.iter().find(|c| c.state == ContainerState::Running) else {
                return Ok(None);
            };
            let status = self.runtime.container_status(&running.id).await.map_err(failed("ask for it"))?;
            Ok(Some(status.started_at))
        })
        .await
    }

    /// Leaves the runtime without pods.
    async fn clear(&self) -> Outcome<()> {
        let sandboxes = self.runtime.list_sandboxes(&Scope::Node).await.map_err(failed("list sandboxes"))?;
        for sandbox in sandboxes {
            self.runtime.stop_sandbox(&sandbox.id).await.map_err(failed("stop a sandbox"))?;
            self.runtime.remove_sandbox(&sandbox.id).await.map_err(failed("remove a sandbox"))?;
        }
        Ok(())
    }
}

fn milliseconds(began: Timestamp, ended: Option<Timestamp>) -> Outcome<f64> {
    let ended =
        ended.ok_or_else(|| BenchError("the runtime says not when it started the container".to_owned()))?;
    Ok(ended.duration_since(began).as_secs_f64() * 1000.0)
}

fn sandbox_request(name: &str, log_directory: &Path) -> SandboxRequest {
    let pod = PodRef::new("default", name, format!("uid-of-{name}"));
    SandboxRequest {
        attempt: 0,
        hostname: name.to_owned(),
        log_directory: log_directory.display().to_string(),
        dns: DnsRequest { servers: vec!["192.0.2.1".to_owned()], ..DnsRequest::default() },
        port_mappings: Vec::new(),
        labels: [
            (keys::POD_NAME_LABEL, &*pod.name),
            (keys::POD_NAMESPACE_LABEL, &*pod.namespace),
            (keys::POD_UID_LABEL, pod.uid.as_str()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        annotations: [].into(),
        cgroup_parent: String::new(),
        sysctls: [].into(),
        security: SandboxSecurity { namespaces: namespaces(), ..SandboxSecurity::default() },
        overhead: None,
        resources: None,
        runtime_handler: String::new(),
        pod,
    }
}

fn container_request(sandbox: &SandboxRequest) -> ContainerRequest {
    let mut labels = sandbox.labels.clone();
    labels.insert(keys::CONTAINER_NAME_LABEL.to_owned(), "main".to_owned());
    ContainerRequest {
        name: "main".to_owned(),
        attempt: 0,
        image: BUSYBOX_IMAGE.to_owned(),
        user_specified_image: BUSYBOX_IMAGE.to_owned(),
        runtime_handler: String::new(),
        command: sleeping_command(),
        args: Vec::new(),
        working_dir: String::new(),
        env: Vec::new(),
        mounts: Vec::new(),
        devices: Vec::new(),
        labels,
        annotations: [].into(),
        log_path: "main/0.log".to_owned(),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: LinuxResources::default(),
        security: ContainerSecurity { namespaces: namespaces(), ..ContainerSecurity::default() },
        stop_signal: None,
    }
}

fn namespaces() -> Namespaces {
    Namespaces { pid: NamespaceMode::Container, ..Namespaces::default() }
}
