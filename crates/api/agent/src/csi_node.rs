//! The CSINode of this node, and the annotation and labels of CSI drivers on its Node.
//!
//! Owns the writes under way, one after the other, and why the node is not ready before the CSINode exists. What to write, and
//! how often it is tried, is decided in `api_core::csi_node`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api_core::csi_node::{
    CsiNodeWrite, INIT_RETRIES, NOT_INITIALIZED, NodeRef, Retries, WRITE_RETRIES, check_driver_count,
    check_node_info, compute_allocatable_update, compute_initialization, compute_install,
    compute_node_install, compute_node_uninstall, compute_uninstall, timed_out,
};
use api_core::retry::compute_retry_delay;
use base_agent::context::Context;
use model::csi::NodeInfo;
use model::k8s::{CSINode, Node};
use ports::Cluster;
use ports::cluster::{ClusterError, Deletion, Part, Patch};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::reflector::{StoreReader, own_node};

/// How often the API server is called until it answers, or has the Node.
const CONNECT_PERIOD: Duration = Duration::from_secs(1);
/// Drivers that may wait while another one is written.
const QUEUE: usize = 64;

/// A handle; clones are the same.
#[derive(Clone, Debug)]
pub struct CsiNode {
    requests: mpsc::Sender<Request>,
    problem: watch::Receiver<Option<String>>,
    installed: watch::Receiver<BTreeSet<String>>,
}

#[derive(Debug)]
struct Request {
    work: Work,
    answer: oneshot::Sender<Result<(), String>>,
}

#[derive(Debug)]
enum Work {
    Install { driver: String, info: NodeInfo },
    UpdateAllocatable { driver: String, max_volumes: i64 },
    Uninstall { driver: String },
}

impl CsiNode {
    /// The handle, and its tasks. `own_node` is the store of this node.
    pub fn new(
        ctx: &Arc<Context>,
        cluster: &Arc<dyn Cluster>,
        own_node: StoreReader<Node>,
    ) -> (Self, CsiNodeTasks) {
        let (requests, received) = mpsc::channel(QUEUE);
        let problem = watch::Sender::new(Some(NOT_INITIALIZED.to_owned()));
        let installed = watch::Sender::new(BTreeSet::new());
        let node = Self { requests, problem: problem.subscribe(), installed: installed.subscribe() };
        let writer = Writer { ctx: ctx.clone(), cluster: cluster.clone() };
        (node, CsiNodeTasks { writer, own_node, requests: received, problem, installed })
    }

    /// Why the node is not ready; `None` once its CSINode exists.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.clone()
    }

    /// The drivers that were installed in this run of the kubelet.
    pub fn installed(&self) -> watch::Receiver<BTreeSet<String>> {
        self.installed.clone()
    }

    /// Records in the API what the driver says about this node. Writes nothing that is there already.
    ///
    /// # Errors
    /// The driver says what it must not, or the API refused it or did not answer. What is written may be a part of it: call
    /// [`CsiNode::uninstall`]. A driver with another node ID or other topology keys than it has in the CSINode is refused until
    /// then.
    pub async fn install(&self, driver: &str, info: &NodeInfo) -> Result<(), String> {
        self.request(Work::Install { driver: driver.to_owned(), info: info.clone() }).await
    }

    /// Changes how many volumes of an installed driver this node may have.
    ///
    /// # Errors
    /// The API refused it or did not answer.
    pub async fn update_allocatable(&self, driver: &str, max_volumes: i64) -> Result<(), String> {
        self.request(Work::UpdateAllocatable { driver: driver.to_owned(), max_volumes }).await
    }

    /// Removes the driver from the CSINode and its node ID from the Node; topology labels stay. Idempotent.
    ///
    /// # Errors
    /// The API refused it or did not answer.
    pub async fn uninstall(&self, driver: &str) -> Result<(), String> {
        self.request(Work::Uninstall { driver: driver.to_owned() }).await
    }

    async fn request(&self, work: Work) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let stops = || "the kubelet stops".to_owned();
        self.requests.send(Request { work, answer }).await.map_err(|_| stops())?;
        answered.await.map_err(|_| stops())?
    }
}

/// What runs behind the handle.
#[derive(Debug)]
pub struct CsiNodeTasks {
    writer: Writer,
    own_node: StoreReader<Node>,
    requests: mpsc::Receiver<Request>,
    problem: watch::Sender<Option<String>>,
    installed: watch::Sender<BTreeSet<String>>,
}

impl CsiNodeTasks {
    /// `must_exit` is cancelled if the CSINode cannot be written: the process ends and the next one tries again, as with the Go
    /// kubelet.
    pub fn start(self, must_exit: CancellationToken) {
        let Self { writer, own_node, requests, problem, installed } = self;
        let tasks = writer.ctx.tasks.clone();
        let initialization = Initialization { writer: writer.clone(), own_node, problem, must_exit };
        tasks.spawn("CSINode initialization", initialization.run());
        tasks.spawn("CSINode", serve(writer, requests, installed));
    }
}

/// Writes for one driver after the other, because each write is based on the one before.
async fn serve(
    writer: Writer,
    mut requests: mpsc::Receiver<Request>,
    installed: watch::Sender<BTreeSet<String>>,
) {
    while let Some(Request { work, answer }) = requests.recv().await {
        let done = match &work {
            Work::Install { driver, info } => writer.install(driver, info).await,
            Work::UpdateAllocatable { driver, max_volumes } => writer.update(driver, *max_volumes).await,
            Work::Uninstall { driver } => writer.uninstall(driver).await,
        };
        installed.send_if_modified(|installed| match &work {
            Work::Install { driver, .. } => done.is_ok() && installed.insert(driver.clone()),
            Work::UpdateAllocatable { .. } => false,
            Work::Uninstall { driver } => installed.remove(driver),
        });
        // The caller may no longer wait.
        let _ = answer.send(done);
    }
}

/// Creates the CSINode at the start of the kubelet.
struct Initialization {
    writer: Writer,
    own_node: StoreReader<Node>,
    problem: watch::Sender<Option<String>>,
    must_exit: CancellationToken,
}

impl Initialization {
    async fn run(mut self) {
        let mut found = Some(self.connect().await.map(Box::new));
        let uid = self.wait_for_node().await;
        let mut failed = 0;
        loop {
            let stage = Stage::Initialize { uid: &uid, found: found.take() };
            let Err(error) = self.writer.retried("error updating CSINode annotation", stage).await else {
                self.problem.send_replace(None);
                return tracing::info!("Initialized CSINode");
            };
            tracing::error!(err = error, "Failed to initialize CSINode");
            self.problem.send_replace(Some(format!("failed to initialize CSINode: {error}")));
            failed += 1;
            if !self.writer.pause(INIT_RETRIES, failed, None).await {
                tracing::error!(err = error, "Failed to initialize CSINode after retrying, exiting");
                return self.must_exit.cancel();
            }
        }
    }

    /// Waits until the API server answers a read of the CSINode: it can be reached, and the kubelet has its permissions.
    async fn connect(&self) -> Option<CSINode> {
        let clock = self.writer.ctx.clock;
        loop {
            let error = match self.writer.read().await {
                Ok(found) => return found,
                Err(error) => error,
            };
            tracing::debug!(err = %error, "Failed to contact API server when waiting for CSINode publishing");
            let random = self.writer.ctx.rng.share();
            let delay = compute_retry_delay(CONNECT_PERIOD, error.retry_after(), random);
            clock.sleep_until(clock.mono() + delay).await;
        }
    }

    /// The UID of the Node, once it is registered. Its watch shows that first, unless the watch waits after an error.
    async fn wait_for_node(&mut self) -> String {
        let clock = self.writer.ctx.clock;
        loop {
            let deadline = clock.mono() + CONNECT_PERIOD;
            tokio::select! {
                Ok(seen) = self.own_node.wait_for(|seen| own_node(seen).is_some()) => {
                    return own_node(&seen).and_then(|node| node.metadata.uid.clone()).unwrap_or_default();
                }
                () = clock.sleep_until(deadline) => {}
            }
            if let Ok(uid) = self.writer.uid().await {
                return uid;
            }
        }
    }
}

/// One write: it reads the object and changes it.
#[derive(Debug)]
enum Stage<'a> {
    /// `found` is the first read, if there was one.
    Initialize {
        uid: &'a str,
        found: Option<Option<Box<CSINode>>>,
    },
    InstallInNode {
        driver: &'a str,
        info: &'a NodeInfo,
    },
    InstallInCsiNode {
        driver: &'a str,
        info: &'a NodeInfo,
    },
    UpdateAllocatable {
        driver: &'a str,
        max_volumes: i64,
    },
    UninstallFromCsiNode {
        driver: &'a str,
    },
    UninstallFromNode {
        driver: &'a str,
    },
}

#[derive(Clone, Debug)]
struct Writer {
    ctx: Arc<Context>,
    cluster: Arc<dyn Cluster>,
}

impl Writer {
    async fn install(&self, driver: &str, info: &NodeInfo) -> Result<(), String> {
        check_node_info(driver, info)?;
        if info.max_volumes_per_node < 0 {
            let limit = info.max_volumes_per_node;
            tracing::error!(driver, limit, "Invalid attach limit value cannot be added to CSINode object");
        }
        let stage = Stage::InstallInNode { driver, info };
        let done = self.retried("error updating node", stage).await;
        done.map_err(|error| format!("error updating Node object with CSI driver node info: {error}"))?;
        let stage = Stage::InstallInCsiNode { driver, info };
        self.retried("error updating CSINode", stage).await.map_err(|error| csi_node_error(&error))
    }

    async fn update(&self, driver: &str, max_volumes: i64) -> Result<(), String> {
        let stage = Stage::UpdateAllocatable { driver, max_volumes };
        self.retried("error updating CSINode", stage).await.map_err(|error| csi_node_error(&error))
    }

    async fn uninstall(&self, driver: &str) -> Result<(), String> {
        let stage = Stage::UninstallFromCsiNode { driver };
        let done = self.retried("error updating CSINode", stage).await;
        done.map_err(|error| format!("error uninstalling CSI driver from CSINode object {error}"))?;
        let done = self.retried("error updating node", Stage::UninstallFromNode { driver }).await;
        done.map_err(|error| format!("error removing CSI driver node info from Node object {error}"))
    }

    /// Tries the write until it succeeds or [`WRITE_RETRIES`] are over.
    async fn retried(&self, what: &str, mut stage: Stage<'_>) -> Result<(), String> {
        let mut failures = Vec::new();
        loop {
            let Failure { text, retry_after } = match self.attempt(&mut stage).await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            failures.push(text);
            let failed = u32::try_from(failures.len()).unwrap_or(u32::MAX);
            if !self.pause(WRITE_RETRIES, failed, retry_after).await {
                return Err(timed_out(what, &failures));
            }
        }
    }

    /// Waits before the next attempt, also for what an overloaded API server asked; `false` if there is none.
    async fn pause(&self, retries: Retries, failed: u32, requested: Option<Duration>) -> bool {
        let Some(delay) = retries.delay(failed, self.ctx.rng.share()) else { return false };
        let delay = match requested {
            Some(_) => compute_retry_delay(delay, requested, self.ctx.rng.share()),
            None => delay,
        };
        self.ctx.clock.sleep_until(self.ctx.clock.mono() + delay).await;
        true
    }

    async fn attempt(&self, stage: &mut Stage<'_>) -> Result<(), Failure> {
        let name = &self.ctx.settings.node_name;
        match stage {
            Stage::Initialize { uid, found } => {
                let found = match found.take() {
                    Some(found) => found,
                    None => self.read().await?.map(Box::new),
                };
                self.write(compute_initialization(found.as_deref(), NodeRef { name, uid })).await
            }
            Stage::InstallInNode { driver, info } => {
                let node = self.read_node().await?;
                self.patch_node(compute_node_install(&node, driver, info)?).await
            }
            Stage::InstallInCsiNode { driver, info } => {
                let uid = self.uid().await?;
                let found = self.read().await?;
                check_driver_count(found.as_ref(), driver)?;
                let node = NodeRef { name, uid: &uid };
                self.write(compute_install(found.as_ref(), node, driver, info)).await
            }
            Stage::UpdateAllocatable { driver, max_volumes } => {
                let uid = self.uid().await?;
                let found = self.read().await?;
                let node = NodeRef { name, uid: &uid };
                self.write(compute_allocatable_update(found.as_ref(), node, driver, *max_volumes)).await
            }
            Stage::UninstallFromCsiNode { driver } => {
                let found = self.read().await?;
                self.write(compute_uninstall(found.as_ref(), driver)).await
            }
            Stage::UninstallFromNode { driver } => match self.cluster.nodes().get("", name).await {
                Ok(node) => self.patch_node(compute_node_uninstall(&node, driver)?).await,
                Err(error) => Err(error.into()),
            },
        }
    }

    async fn read_node(&self) -> Result<Node, Failure> {
        self.cluster.nodes().get("", &self.ctx.settings.node_name).await.map_err(Failure::from)
    }

    async fn uid(&self) -> Result<String, Failure> {
        Ok(self.read_node().await?.metadata.uid.unwrap_or_default())
    }

    /// `None` if there is no CSINode.
    async fn read(&self) -> Result<Option<CSINode>, ClusterError> {
        match self.cluster.csi_nodes().get("", &self.ctx.settings.node_name).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, write: CsiNodeWrite) -> Result<(), Failure> {
        let nodes = self.cluster.csi_nodes();
        match write {
            CsiNodeWrite::Nothing => Ok(()),
            CsiNodeWrite::Create(node) => nodes.create("", &node).await.map(drop).map_err(Failure::from),
            CsiNodeWrite::Update(node) => nodes.update("", &node).await.map(drop).map_err(Failure::from),
            CsiNodeWrite::Delete { why } => {
                let name = &self.ctx.settings.node_name;
                match nodes.delete("", name, &Deletion::default()).await {
                    Ok(()) => Err(why.into()),
                    Err(error) => {
                        let text = format!("error deleting existing CSINode {name:?}: {error}");
                        Err(Failure { text, retry_after: error.retry_after() })
                    }
                }
            }
        }
    }

    /// The status subresource of a Node takes labels and annotations, too.
    async fn patch_node(&self, patch: Option<Value>) -> Result<(), Failure> {
        let Some(patch) = patch else { return Ok(()) };
        let name = &self.ctx.settings.node_name;
        let patched = self.cluster.nodes().patch("", name, Part::Status, &Patch::Strategic(patch)).await;
        patched.map(drop).map_err(Failure::from)
    }
}

fn csi_node_error(error: &str) -> String {
    format!("error updating CSINode object with CSI driver node info: {error}")
}

/// Why an attempt failed.
#[derive(Debug)]
struct Failure {
    text: String,
    /// How long an overloaded API server asks to wait.
    retry_after: Option<Duration>,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { text, retry_after: None }
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self { text: error.to_string(), retry_after: error.retry_after() }
    }
}
