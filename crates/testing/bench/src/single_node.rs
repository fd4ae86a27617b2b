//! What `kubelet --single-node` costs more than a kubelet without an API: private memory of the kubelet and its API server together, wake-ups
//! and processor time at rest, each with no pod and with many; and the time to a running container, from a request to the API and from a
//! manifest in turn. The standalone kubelet runs at the same time. The runtimes are fakes behind real sockets, so that only the cost of the
//! two programs is measured; the database is on the disk of the temporary directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::ApiHandle;
use fakes::{FakeCri, FakeRuntime};
use harness::PrivateCgroup;
use jiff::Timestamp;
use model::k8s::Pod;
use ports::Clock;
use ports::Cluster;
use ports::cluster::{Deletion, Selection};

use crate::latency::milliseconds;
use crate::member::until_quiet;
use crate::usage::{Usage, child_with_argument};
use crate::{BenchError, Effort, Outcome, failed};
use harness::api::{NAMESPACE, administrator_of, is_ready};
use harness::node::{Node, OwnCgroup, sleeping_pod, until};

pub(crate) const PODS: usize = 100;
const IMAGE: &str = "localhost/idle:1";
/// The first argument of the process that serves the API.
const API_SERVER: &str = "api-server";
const ADMIN_KUBECONFIG: &str = "admin.conf";
const POLL: Duration = Duration::from_millis(200);
/// Between two polls for a container of the fake runtime.
const FAST_POLL: Duration = Duration::from_millis(1);
/// After a pod was removed: due work is done.
const PAUSE: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(crate) struct SingleNode {
    pub(crate) empty: Rest,
    /// With [`PODS`] pods.
    pub(crate) full: Rest,
    /// Manifest written to container started by the standalone kubelet, in milliseconds.
    pub(crate) manifest: Vec<f64>,
    /// Request that creates a pod to container started on the single node, each right after the manifest of the same position.
    pub(crate) request: Vec<f64>,
}

impl SingleNode {
    /// What the API adds to the manifest just before.
    pub(crate) fn added(&self) -> Vec<f64> {
        self.request.iter().zip(&self.manifest).map(|(request, manifest)| request - manifest).collect()
    }
}

/// A time in which nothing changes.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) standalone: Use,
    pub(crate) kubelet: Use,
    pub(crate) api_server: Use,
}

/// What one process uses at rest; the memory is that at the end.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) private_bytes: u64,
    pub(crate) cpu_seconds_per_minute: f64,
    pub(crate) wake_ups_per_minute: f64,
}

pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<SingleNode> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let mut standalone = Stand::new(&dir.path().join("standalone"))?;
    let mut single = Stand::new(&dir.path().join("single"))?;
    single.node.flags = flags(&single.node)?;
    standalone.node.start(program)?;
    single.node.start(program)?;
    let both = Both { admin: administrator(&single).await?, standalone, single };
    let measured = both.measure(effort).await;
    both.stop().await?;
    measured
}

fn flags(node: &Node) -> Outcome<Vec<String>> {
    let port = harness::free_port().ok_or_else(|| BenchError("every port is taken".to_owned()))?;
    Ok(vec![
        "--single-node".to_owned(),
        format!("--single-node-port={port}"),
        format!("--admin-kubeconfig={}", node.dir.join(ADMIN_KUBECONFIG).display()),
        format!("--single-node-key={}", node.dir.join("single-node.key").display()),
    ])
}

/// Once the node is ready.
async fn administrator(single: &Stand) -> Outcome<ApiHandle> {
    let path = single.node.dir.join(ADMIN_KUBECONFIG);
    let kubeconfig = until(&single.node, "the kubeconfig of the administrator", POLL, async || {
        Ok(std::fs::read_to_string(&path).ok())
    })
    .await?;
    let admin = administrator_of(&kubeconfig)?;
    until(&single.node, "the node to be ready", POLL, async || is_ready(&admin).await).await?;
    Ok(admin)
}

/// A node on a fake runtime.
struct Stand {
    node: Node,
    runtime: FakeRuntime,
    server: FakeCri,
    /// Removed after the node has ended.
    _cgroup: OwnCgroup,
}

impl Stand {
    fn new(dir: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(dir).map_err(failed("make a directory"))?;
        let runtime = FakeRuntime::with_clock(Clock::system());
        runtime.write_logs().image(IMAGE);
        let server = FakeCri::serve(Arc::new(runtime.clone()), &dir.join("cri.sock"));
        let server = server.map_err(failed("serve a fake runtime"))?;
        let cgroup = OwnCgroup(PrivateCgroup::of(dir));
        let node = Node::new(dir, &server.endpoint(), &cgroup.0)?;
        Ok(Self { node, runtime, server, _cgroup: cgroup })
    }

    async fn until_running(&self, count: usize, pause: Duration) -> Outcome<()> {
        until(&self.node, "the pods that should run", pause, async || {
            Ok((self.runtime.running().len() == count).then_some(()))
        })
        .await
    }

    fn pid(&self) -> Outcome<u32> {
        self.node.pid().ok_or_else(|| BenchError("no kubelet runs".to_owned()))
    }
}

struct Both {
    standalone: Stand,
    single: Stand,
    admin: ApiHandle,
}

impl Both {
    async fn measure(&self, effort: Effort) -> Outcome<SingleNode> {
        let empty = self.rest(effort).await?;
        for pod in 0..PODS {
            let name = format!("single-{pod}");
            self.standalone.node.apply(&name, &sleeping_pod(&name, IMAGE))?;
            self.create(&name).await?;
        }
        self.until_running(PODS).await?;
        let full = self.rest(effort).await?;
        for pod in 0..PODS {
            let name = format!("single-{pod}");
            self.standalone.node.delete(&name)?;
            self.delete(&name).await?;
        }
        self.until_running(0).await?;
        self.until_the_api_has_no_pod().await?;
        let (mut manifest, mut request) = (Vec::new(), Vec::new());
        for number in 0..=effort.rounds * effort.pods {
            let (by_manifest, by_request) = self.pair(&format!("pair-{number}")).await?;
            // The first ones pay for cold caches.
            if number > 0 {
                manifest.push(by_manifest);
                request.push(by_request);
            }
        }
        Ok(SingleNode { empty, full, manifest, request })
    }

    async fn until_running(&self, count: usize) -> Outcome<()> {
        self.standalone.until_running(count, POLL).await?;
        self.single.until_running(count, POLL).await
    }

    /// The same pod by a manifest and by a request, one after the other.
    async fn pair(&self, name: &str) -> Outcome<(f64, f64)> {
        let began = Timestamp::now();
        self.standalone.node.apply(name, &sleeping_pod(name, IMAGE))?;
        self.standalone.until_running(1, FAST_POLL).await?;
        let manifest = milliseconds(began, Some(Timestamp::now()))?;
        self.standalone.node.delete(name)?;
        self.standalone.until_running(0, POLL).await?;
        tokio::time::sleep(PAUSE).await;
        let began = Timestamp::now();
        self.create(name).await?;
        self.single.until_running(1, FAST_POLL).await?;
        let request = milliseconds(began, Some(Timestamp::now()))?;
        self.delete(name).await?;
        self.until_the_api_has_no_pod().await?;
        tokio::time::sleep(PAUSE).await;
        Ok((manifest, request))
    }

    /// As a user does: without a node.
    async fn create(&self, name: &str) -> Outcome<()> {
        let pod: Pod = serde_json::from_value(sleeping_pod(name, IMAGE)).map_err(failed("make a pod"))?;
        self.admin.pods().create(NAMESPACE, &pod).await.map_err(failed("create a pod"))?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Outcome<()> {
        let deleted = self.admin.pods().delete(NAMESPACE, name, &Deletion::default()).await;
        deleted.map_err(failed("delete a pod"))?;
        Ok(())
    }

    async fn until_the_api_has_no_pod(&self) -> Outcome<()> {
        until(&self.single.node, "all pods to be gone", POLL, async || {
            let left = self.admin.pods().list(&Selection::default()).await.map_err(failed("list pods"))?;
            Ok(left.items.is_empty().then_some(()))
        })
        .await
    }

    /// What is used in a window in which nothing changes, some time after the last change.
    async fn rest(&self, effort: Effort) -> Outcome<Rest> {
        until_quiet(&self.single.node).await?;
        tokio::time::sleep(effort.settle).await;
        let single = self.single.pid()?;
        let pids = [self.standalone.pid()?, single, child_with_argument(single, API_SERVER)?];
        let [before_standalone, before_kubelet, before_api_server] = usages(pids)?;
        tokio::time::sleep(effort.window).await;
        let [standalone, kubelet, api_server] = usages(pids)?;
        Ok(Rest {
            standalone: Use::between(&before_standalone, &standalone, effort.window),
            kubelet: Use::between(&before_kubelet, &kubelet, effort.window),
            api_server: Use::between(&before_api_server, &api_server, effort.window),
        })
    }

    async fn stop(self) -> Outcome<()> {
        for mut stand in [self.standalone, self.single] {
            stand.node.kill()?;
            stand.server.stop().await;
        }
        Ok(())
    }
}

fn usages([standalone, kubelet, api_server]: [u32; 3]) -> Outcome<[Usage; 3]> {
    Ok([Usage::of(standalone)?, Usage::of(kubelet)?, Usage::of(api_server)?])
}

impl Use {
    fn between(before: &Usage, after: &Usage, window: Duration) -> Self {
        let per_minute = 60.0 / window.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a count far below 2^52")]
        let wake_ups = after.wake_ups_since(before) as f64;
        Self {
            private_bytes: after.private_bytes,
            cpu_seconds_per_minute: (after.cpu_seconds - before.cpu_seconds) * per_minute,
            wake_ups_per_minute: wake_ups * per_minute,
        }
    }
}
