//! The volumes of pods: mounted before their containers start, refreshed when their API objects change, torn down after the
//! last container ended.
//!
//! [`Volumes`] is the handle of the pod workers. The task behind it, `engine`, carries out what `volumes_core::engine`
//! decides: what is mounted, awaited or retried when. Each type of volume has a file in `mounters`. Only the pod's directory and
//! the mount table show what exists, so that a restarted kubelet continues where the last one stopped.
#![forbid(unsafe_code)]

mod attachment;
mod block_maps;
mod claims;
mod csi;
mod device;
mod engine;
mod fc;
mod flex;
mod found;
mod global_mounts;
mod indexed_pod;
mod iscsi;
mod marks;
pub mod metrics;
mod mount;
mod mount_context;
mod mounters;
mod ownership;
mod permits;
mod quota;
mod scsi;
mod shared;
mod tear_down;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::k8s::{Node, Pod, VolumeMount};
use model::{PodUid, SmallMap};
use ports::host::ProgramCall;
use ports::{Cluster, Files, HostError, Mounts};
use tokio::sync::{mpsc, oneshot, watch};
use volumes_core::engine::{ReadyVolume, VolumeReport};

use api_agent::node_allocatable::NodeAllocatable;
use api_agent::objects::PodObjects;
use api_agent::reflector::StoreReader;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::settings::Paths;

use engine::VolumeEngine;

pub use csi::{Csi, KIND as CSI_PLUGIN, csi_volume_at};
pub use marks::is_measured;
pub use mount::path_of;

pub use quota::counted;

/// Below a pod's directory: its volumes of type `emptyDir`.
const EMPTY_DIRS: &str = "volumes/kubernetes.io~empty-dir";
/// The directory of local volumes below `volumes` and `plugins` of a pod.
const LOCAL_PLUGIN: &str = "kubernetes.io~local-volume";

/// Requests that may wait while the engine starts others.
const QUEUE: usize = 64;

/// Why volumes could not be mounted or released. The text is that of the event.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The complete text.
    #[error("{0}")]
    Missing(String),
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    SubPath { volume: String, container: String },
    /// The complete text. The failures themselves had their events.
    #[error("{0}")]
    TimedOut(String),
    /// The volumes cannot be attached, because the node has too many of their driver. The complete text.
    #[error("{0}")]
    NodeIsFull(String),
    #[error("failed to release the volumes of pod {pod}: {detail}")]
    Release { pod: PodUid, detail: String },
    #[error("the kubelet stops")]
    Stopping,
}

/// Where each volume of a pod is on this node.
pub type ReadyVolumes = SmallMap<Box<str>, ReadyVolume>;

/// The pod whose volumes are mounted, and the API objects that they show.
#[derive(Clone, Debug)]
pub struct MountRequest {
    pub pod: Arc<Pod>,
    pub objects: PodObjects,
}

enum Request {
    Mount {
        request: MountRequest,
        is_refresh: bool,
        answer: oneshot::Sender<Result<ReadyVolumes, VolumeError>>,
    },
    Changed(PodUid),
    Release {
        uid: PodUid,
        answer: oneshot::Sender<Result<(), VolumeError>>,
    },
    Report(oneshot::Sender<VolumeReports>),
}

/// Volumes that are being mounted or unmounted, or wait for that, by pod. A pod whose volumes are all mounted, or all gone, has none.
pub type VolumeReports = BTreeMap<PodUid, PodVolumesReport>;

/// The volumes of one pod that are not settled.
#[derive(Clone, Debug, Default)]
pub struct PodVolumesReport {
    pub volumes: Vec<VolumeReport>,
    /// By volume: the VolumeAttachment that it waits for, and the driver.
    pub awaited: BTreeMap<String, (String, String)>,
    /// Why the volumes could not be unmounted the last time.
    pub stuck_on: String,
}

/// The volumes of all pods; clones are the same.
#[derive(Clone, Debug)]
pub struct Volumes {
    requests: mpsc::Sender<Request>,
    /// The volumes that an earlier kubelet left are reported in use.
    is_found: watch::Receiver<bool>,
    csi: Csi,
}

impl Volumes {
    /// Starts the engine. A standalone kubelet has no `cluster`.
    #[must_use]
    pub fn start(
        ctx: &Arc<Context>,
        cluster: Option<Arc<dyn Cluster>>,
        own_node: StoreReader<Node>,
        allocatable: NodeAllocatable,
        csi: Csi,
    ) -> Self {
        let (requests, received) = mpsc::channel(QUEUE);
        let found = watch::Sender::new(false);
        let volumes = Self { requests, is_found: found.subscribe(), csi: csi.clone() };
        let requests = Requests { received, found };
        let engine = VolumeEngine::new(ctx.clone(), cluster, own_node, allocatable, csi, requests);
        ctx.tasks.spawn("volumes", engine.run());
        volumes
    }

    /// The CSI drivers that are registered on this node.
    #[must_use]
    pub fn csi_drivers(&self) -> Vec<String> {
        self.csi.drivers.registered()
    }

    /// The volumes of the pod that wait to be attached to this node.
    #[must_use]
    pub fn unattached(&self, pod: &PodUid) -> Vec<String> {
        self.csi.awaited.of(pod).into_keys().collect()
    }

    /// Waits until the volumes that an earlier kubelet left are known, and reported in use.
    pub async fn found(&self) {
        // Without the engine nothing is ever found.
        let _ = self.is_found.clone().wait_for(|is_found| *is_found).await;
    }

    /// Mounts every volume of the pod and waits for them, two minutes and three seconds at most. Failures become events and are
    /// retried meanwhile, as long as the future is not dropped.
    ///
    /// # Errors
    /// Volumes are missing after that time, or cannot be planned.
    pub async fn mount(&self, request: MountRequest) -> Result<ReadyVolumes, VolumeError> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Mount { request, is_refresh: false, answer }, answered).await?
    }

    /// Refreshes the volumes that show API objects; each is tried once.
    pub async fn refresh(&self, request: MountRequest) {
        let (answer, answered) = oneshot::channel();
        // A volume whose refresh failed has an event, and keeps its files.
        let _ = self.send(Request::Mount { request, is_refresh: true, answer }, answered).await;
    }

    /// API objects of the pod's volumes changed: one that failed may succeed now.
    pub fn changed(&self, uid: &PodUid) {
        // If the queue is full, the next attempt comes soon anyway.
        let _ = self.requests.try_send(Request::Changed(uid.clone()));
    }

    /// Unmounts and removes the pod's volumes. Idempotent.
    ///
    /// # Errors
    /// Something is still in use, or the disk refused.
    pub async fn release(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Release { uid: uid.clone(), answer }, answered).await?
    }

    /// How volumes are that are not settled.
    ///
    /// # Errors
    /// The kubelet stops.
    pub async fn report(&self) -> Result<VolumeReports, VolumeError> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Report(answer), answered).await
    }

    async fn send<T>(&self, request: Request, answered: oneshot::Receiver<T>) -> Result<T, VolumeError> {
        self.requests.send(request).await.map_err(|_| VolumeError::Stopping)?;
        answered.await.map_err(|_| VolumeError::Stopping)
    }
}

/// The requests of the pod workers.
struct Requests {
    received: mpsc::Receiver<Request>,
    found: watch::Sender<bool>,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

/// Removes the rest of the pod's directory; its volumes must have been released. Idempotent.
///
/// # Errors
/// Something is mounted inside, or the disk refused.
pub async fn remove_pod_dir(files: &dyn Files, paths: &Paths, uid: &PodUid) -> Result<(), HostError> {
    files.remove_tree(&paths.pod(uid)).await
}

/// Binds the subPath of a mount to a directory of its own, which no later change inside the volume can redirect.
///
/// # Errors
/// The path leads outside the volume, or binding failed.
pub async fn ensure_sub_path(
    mounts: &dyn Mounts,
    pod_dir: &Path,
    container: &str,
    index: usize,
    mount: &VolumeMount,
    volume_path: &Path,
    sub_path: &str,
) -> Result<PathBuf, VolumeError> {
    let target = pod_dir.join("volume-subpaths").join(&mount.name).join(container).join(index.to_string());
    mounts.bind_sub_path(volume_path, sub_path, &target).await.map_err(|error| {
        let (target, err) = (target.display().to_string(), chain(&error));
        tracing::error!(
            containerName = container,
            volume = mount.name,
            target,
            err,
            "failed to bind subPath"
        );
        VolumeError::SubPath { volume: mount.name.clone(), container: container.to_owned() }
    })?;
    Ok(target)
}

/// Removes `dir`, which the driver of a volume has unmounted, or has unmounted `inside`. The driver was to remove what it mounted on, too;
/// files in there are not the kubelet's to delete.
async fn remove_empty(ctx: &Context, dir: &Path, inside: Option<&str>) -> Result<(), HostError> {
    let target = &inside.map_or_else(|| dir.to_owned(), |name| dir.join(name));
    if ctx.mounts.is_mount_point(target).await? {
        return Err(HostError::Invalid(format!("{} is still mounted", target.display())));
    }
    match ctx.files.list_names(target).await {
        Ok(names) if !names.is_empty() => {
            Err(HostError::Invalid(format!("{} is not empty", target.display())))
        }
        Ok(_) => ctx.files.remove_tree(dir).await,
        // What is not a directory is the driver's as well, and nothing that a pod wrote.
        Err(HostError::Io { source, .. }) if source.kind() == ErrorKind::NotADirectory => {
            ctx.files.remove_tree(dir).await
        }
        Err(error) => Err(error),
    }
}

/// Whether a directory has an entry of that name.
async fn exists(ctx: &Context, path: &Path) -> Result<bool, HostError> {
    let names = ctx.files.list_names(path.parent().unwrap_or(path)).await?;
    let name = path.file_name().unwrap_or_default();
    Ok(names.iter().any(|known| known.as_str() == name))
}

/// A call of a program of the node, without input.
fn program(path: &str, args: Vec<String>, deadline: Duration) -> ProgramCall {
    ProgramCall { path: path.into(), args, env: Vec::new(), input: Vec::new(), deadline }
}
