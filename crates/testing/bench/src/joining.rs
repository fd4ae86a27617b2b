//! Time from the start of the process to its first container, for a kubelet that joins a cluster: with a bootstrap token, and
//! with a kubeconfig. The API server is `localapi` in this process, which signs certificates at once; the runtime is a real
//! containerd. The pod is bound to the node before the kubelet starts.

use std::path::Path;
use std::time::Duration;

use cri::CriRuntime;
use harness::PrivateCgroup;
use harness::containerd::{BUSYBOX_IMAGE, Containerd};
use jiff::Timestamp;
use localapi::{LocalApi, Options, Running};
use model::ContainerState;
use model::k8s::Pod;
use ports::runtime::Scope;
use ports::{Cluster, Runtime};

use crate::latency::{clear, milliseconds};
use crate::{Effort, Outcome, failed};
use harness::api::{NAMESPACE, administrator};
use harness::node::{NODE_NAME, Node, sleeping_pod, until};

const TOKEN: &str = "abcdef.0123456789abcdef";
const POLL: Duration = Duration::from_millis(5);

/// Durations in milliseconds, in the order they were measured.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    /// With a bootstrap token: the kubelet requests its certificate first.
    pub(crate) bootstrap: Vec<f64>,
    /// With a kubeconfig.
    pub(crate) kubeconfig: Vec<f64>,
}

#[derive(Clone, Copy)]
enum Way {
    Bootstrap,
    Kubeconfig,
}

pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Joining> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let containerd = Containerd::start(&dir.path().join("containerd")).await;
    let containerd = containerd.map_err(failed("start containerd"))?;
    let mut joining = Joining::default();
    for round in 0..effort.rounds {
        let home = dir.path().join(format!("bootstrap-{round}"));
        joining.bootstrap.push(join(program, &home, &containerd, Way::Bootstrap).await?);
        let home = dir.path().join(format!("kubeconfig-{round}"));
        joining.kubeconfig.push(join(program, &home, &containerd, Way::Kubeconfig).await?);
    }
    containerd.stop().map_err(failed("stop containerd"))?;
    Ok(joining)
}

/// One new cluster with one new node and one pod.
async fn join(program: &Path, dir: &Path, containerd: &Containerd, way: Way) -> Outcome<f64> {
    let api =
        LocalApi::start(Options { bootstrap_tokens: vec![TOKEN.to_owned()], ..Options::default() }).await;
    let api = api.map_err(failed("start the API server"))?;
    let runtime = CriRuntime::new(&containerd.endpoint(), "", Duration::from_secs(60));
    let runtime = runtime.map_err(failed("connect to containerd"))?;
    // For containerd, which removes it at its end.
    let containerd_dir = dir.with_file_name("containerd");
    let mut node = Node::new(dir, &containerd.endpoint(), &PrivateCgroup::of(&containerd_dir))?;
    match way {
        Way::Bootstrap => node.bootstrap(&api.token_kubeconfig(TOKEN))?,
        Way::Kubeconfig => {
            node.join(&api.node_kubeconfig(NODE_NAME).map_err(failed("make a kubeconfig"))?)?;
        }
    }
    create_pod(&api).await?;
    let began = Timestamp::now();
    node.start(program)?;
    let started_at = until(&node, "a running container", POLL, async || started_at(&runtime).await).await?;
    node.kill()?;
    clear(&runtime).await?;
    api.stop().await;
    milliseconds(began, started_at)
}

async fn create_pod(api: &Running) -> Outcome<()> {
    let mut manifest = sleeping_pod("first", BUSYBOX_IMAGE);
    manifest["spec"]["nodeName"] = NODE_NAME.into();
    let pod: Pod = serde_json::from_value(manifest).map_err(failed("make a pod"))?;
    administrator(api)?.pods().create(NAMESPACE, &pod).await.map_err(failed("create a pod"))?;
    Ok(())
}

/// When the runtime started the only container, once that runs.
async fn started_at(runtime: &CriRuntime) -> Outcome<Option<Option<Timestamp>>> {
    let containers = runtime.list_containers(&Scope::Node).await.map_err(failed("list containers"))?;
    let Some(running) = containers.iter().find(|one| one.state == ContainerState::Running) else {
        return Ok(None);
    };
    let status = runtime.container_status(&running.id).await.map_err(failed("get the container's status"))?;
    Ok(Some(status.started_at))
}
