//! Everything that a soak runs on: a containerd, the proxy in front of it, an API server, a CSI driver, a DNS server, a small disk
//! below the kubelet's root directory, and the kubelet.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::pods::{CLAIMS, CONFIG_MAP, CSI_DRIVER, OTHER_IMAGE, SECRET, Surroundings, claim_name};
use cluster::ApiHandle;
use cri::CriRuntime;
use fakes::TestCsiDriver;
use harness::{Containerd, NameServer, PrivateCgroup, RuntimeProxy};
use localapi::{LocalApi, Options, Running, State};
use model::k8s::{CSIDriver, ConfigMap, Secret};
use ports::Cluster;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::run::clock::WallClock;
use crate::run::{Arguments, BenchError, Outcome, failed};
use harness::api::{NAMESPACE, administrator, is_ready};
use harness::node::{NODE_NAME, Node, until};
use harness::small_disk::SmallDisk;

const DISK_MEBIBYTES: u64 = 128;
const DISK_INODES: u64 = 20_000;
/// Calls to the runtime that the soak itself makes.
const OWN_CALLS: Duration = Duration::from_secs(20);
/// Replaces the machine's resolver in the kubelet's mount namespace. Its root directory stays shared with the machine.
const WITH_RESOLVER: &str = "mount --make-slave /; mount --make-slave /etc/resolv.conf 2>/dev/null; \
                             mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";

/// Dropped in this order.
pub(crate) struct Stand {
    pub(crate) node: Node,
    pub(crate) driver: TestCsiDriver,
    pub(crate) proxy: RuntimeProxy,
    pub(crate) containerd: Containerd,
    pub(crate) disk: SmallDisk,
    pub(crate) names: NameServer,
    pub(crate) clock: WallClock,
    /// `None` during an outage.
    pub(crate) api: Option<Running>,
    /// What the API server left at the beginning of the outage.
    pub(crate) api_state: Option<State>,
    pub(crate) admin: ApiHandle,
    /// Without the proxy.
    pub(crate) runtime: CriRuntime,
    pub(crate) cgroup: PrivateCgroup,
    pub(crate) kubelet: PathBuf,
    pub(crate) api_options: Options,
    probed: Probed,
    kubectl: Kubectl,
    dir: tempfile::TempDir,
}

impl Stand {
    /// With a running kubelet that is ready.
    pub(crate) async fn start(arguments: &Arguments) -> Outcome<Self> {
        let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
        let (home, containerd_dir) = (dir.path().join("node"), dir.path().join("containerd"));
        for below in [home.join("root"), dir.path().join("host")] {
            std::fs::create_dir_all(below).map_err(failed("make a directory"))?;
        }
        let containerd = Containerd::start(&containerd_dir).await.map_err(failed("start containerd"))?;
        containerd.import_image(OTHER_IMAGE, 1).await.map_err(failed("import an image"))?;
        let runtime = CriRuntime::new(&containerd.endpoint(), &containerd.endpoint(), OWN_CALLS);
        let runtime = runtime.map_err(failed("connect to containerd"))?;
        let proxy = RuntimeProxy::serve(&dir.path().join("proxy.sock"), &containerd.socket(), arguments.seed);
        let proxy = proxy.map_err(failed("serve the proxy"))?;
        let names = NameServer::start().map_err(failed("start a DNS server"))?;
        let api = LocalApi::start(Options::default()).await.map_err(failed("start the API server"))?;
        let admin = administrator(&api)?;
        let kubectl = Kubectl::new(dir.path(), &api)?;
        let disk = SmallDisk::at(home.join("root"), DISK_MEBIBYTES, DISK_INODES);
        run(Command::new("mount").arg("--make-shared").arg(home.join("root")))?;
        let driver = TestCsiDriver::serve(&home.join("root"), CSI_DRIVER, &dir.path().join("storage"));
        let cgroup = PrivateCgroup::of(&containerd_dir);
        let mut node = Node::new(&home, &proxy.endpoint(), &cgroup)?;
        let clock = WallClock::new(&arguments.clock, &dir.path().join("clock-offset"))?;
        configure(&mut node, &api, &names, &clock, dir.path())?;
        let options = Options { listen: api.address(), ..Options::default() };
        node.start(&arguments.kubelet)?;
        let mut stand = Self {
            node,
            driver,
            proxy,
            containerd,
            disk,
            names,
            clock,
            api: Some(api),
            api_state: None,
            admin,
            runtime,
            cgroup,
            kubelet: arguments.kubelet.clone(),
            api_options: options,
            probed: Probed::start().await?,
            kubectl,
            dir,
        };
        stand.prepare().await?;
        Ok(stand)
    }

    /// What pods refer to.
    async fn prepare(&mut self) -> Outcome<()> {
        let pause = Duration::from_millis(100);
        until(&self.node, "the node to be ready", pause, async || is_ready(&self.admin).await).await?;
        let config = json!({"metadata": {"name": CONFIG_MAP}, "data": {"version": "1"}});
        let config: ConfigMap = serde_json::from_value(config).map_err(failed("make a ConfigMap"))?;
        self.admin.config_maps().create(NAMESPACE, &config).await.map_err(failed("create a ConfigMap"))?;
        let secret = json!({"metadata": {"name": SECRET}, "stringData": {"word": "secret"}});
        let secret: Secret = serde_json::from_value(secret).map_err(failed("make a Secret"))?;
        self.admin.secrets().create(NAMESPACE, &secret).await.map_err(failed("create a Secret"))?;
        let spec = json!({"attachRequired": false});
        let driver = json!({"metadata": {"name": CSI_DRIVER}, "spec": spec});
        let driver: CSIDriver = serde_json::from_value(driver).map_err(failed("make a CSIDriver"))?;
        self.admin.csi_drivers().create("", &driver).await.map_err(failed("create a CSIDriver"))?;
        for number in 0..CLAIMS {
            self.claim(&claim_name(number))?;
        }
        self.driver.register();
        until(&self.node, "the driver to be registered", pause, async || {
            let Ok(node) = self.admin.csi_nodes().get("", NODE_NAME).await else { return Ok(None) };
            Ok((!node.spec.drivers.is_empty()).then_some(()))
        })
        .await
    }

    /// A claim and its volume, bound as a controller does.
    fn claim(&self, name: &str) -> Outcome<()> {
        let capacity = json!({"storage": "1Gi"});
        let volume_name = format!("pv-{name}");
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteMany"], "volumeName": volume_name, "resources": {"requests": capacity}},
        });
        self.kubectl.run(&["create", "-f", "-"], &claim.to_string())?;
        let uid = self.kubectl.run(&["get", "pvc", name, "-o", "jsonpath={.metadata.uid}"], "")?;
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume_name},
            "spec": {
                "capacity": capacity, "accessModes": ["ReadWriteMany"],
                "csi": {"driver": CSI_DRIVER, "volumeHandle": name},
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": name, "uid": uid},
            },
        });
        self.kubectl.run(&["create", "-f", "-"], &volume.to_string())?;
        let status =
            json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": capacity}});
        let patch =
            ["patch", "pvc", name, "--subresource", "status", "--type", "merge", "-p", &status.to_string()];
        self.kubectl.run(&patch, "")?;
        Ok(())
    }

    pub(crate) fn resize(&self, pod: &str, resources: &Value) -> Outcome<()> {
        let patch = json!({"spec": {"containers": [{"name": "main", "resources": resources}]}}).to_string();
        self.kubectl.run(&["patch", "pod", pod, "--subresource", "resize", "-p", &patch], "")?;
        Ok(())
    }

    pub(crate) fn surroundings(&self) -> Surroundings {
        Surroundings {
            node_name: NODE_NAME.to_owned(),
            host_dir: self.dir.path().join("host"),
            probed_port: self.probed.port,
        }
    }

    /// Requests of all readiness probes that look up a host name.
    pub(crate) fn probes(&self) -> u64 {
        self.probed.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn containerd_dir(&self) -> PathBuf {
        self.dir.path().join("containerd")
    }

    pub(crate) fn kubelet_log(&self) -> String {
        std::fs::read_to_string(self.node.dir.join("kubelet.log")).unwrap_or_default()
    }

    /// Ends everything; returns what could not be removed.
    pub(crate) async fn stop(self) -> Vec<String> {
        let Self { mut node, driver, proxy, containerd, disk, api, dir, .. } = self;
        let mut left = Vec::new();
        left.extend(node.terminate(Duration::from_secs(30)).await.err().map(|error| error.to_string()));
        drop(driver);
        drop(node);
        drop(proxy);
        let containerd_dir = dir.path().join("containerd");
        left.extend(containerd.stop().err().map(|error| error.to_string()));
        left.extend(harness::containerd::leftovers(&containerd_dir));
        drop(disk);
        if let Some(api) = api {
            api.stop().await;
        }
        left
    }
}

fn configure(
    node: &mut Node,
    api: &Running,
    names: &NameServer,
    clock: &WallClock,
    dir: &Path,
) -> Outcome<()> {
    node.join(&api.node_kubeconfig(NODE_NAME).map_err(failed("make a kubeconfig"))?)?;
    node.configure(&json!({
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"},
    }))?;
    let resolver = dir.join("resolv.conf");
    std::fs::write(&resolver, names.resolv_conf()).map_err(failed("write resolv.conf"))?;
    let start = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", WITH_RESOLVER];
    node.wrapper = start.map(str::to_owned).to_vec();
    node.wrapper.push(resolver.display().to_string());
    node.wrapper.extend(clock.wrapper());
    Ok(())
}

pub(crate) fn run(command: &mut Command) -> Outcome<String> {
    let what = format!("{command:?}");
    let output = command.output().map_err(failed(&what))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(BenchError(format!("{what}: {}", String::from_utf8_lossy(&output.stderr))))
    }
}

/// For what the port to the API does not have: claims, volumes and resizes.
struct Kubectl {
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    fn new(dir: &Path, api: &Running) -> Outcome<Self> {
        let (kubeconfig, home) = (dir.join("admin.kubeconfig"), dir.join("home"));
        let config = api.kubeconfig("admin", Some("system:masters")).map_err(failed("make a kubeconfig"))?;
        std::fs::write(&kubeconfig, config).map_err(failed("write a kubeconfig"))?;
        Ok(Self { kubeconfig, home })
    }

    fn run(&self, arguments: &[&str], input: &str) -> Outcome<String> {
        let file = self.home.with_file_name("kubectl-input");
        std::fs::write(&file, input).map_err(failed("write the input of kubectl"))?;
        let stdin = std::fs::File::open(&file).map_err(failed("open the input of kubectl"))?;
        let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "/usr/bin/kubectl".into());
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig);
        command.args(arguments).stdin(Stdio::from(stdin));
        tokio::task::block_in_place(|| run(&mut command))
    }
}

/// An HTTP server that accepts every request, and counts them.
struct Probed {
    port: u16,
    requests: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Probed {
    async fn start() -> Outcome<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed("listen"))?;
        let port = listener.local_addr().map_err(failed("listen"))?.port();
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        #[expect(clippy::disallowed_methods, reason = "its handle is kept, and ends it")]
        let task = tokio::spawn(async move {
            loop {
                let Ok((mut client, _)) = listener.accept().await else { continue };
                counted.fetch_add(1, Ordering::Relaxed);
                // A probe that is gone fails by itself.
                let _ = client.read(&mut [0; 1024]).await;
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = client.write_all(answer).await;
            }
        });
        Ok(Self { port, requests, task })
    }
}

impl Drop for Probed {
    fn drop(&mut self) {
        self.task.abort();
    }
}
