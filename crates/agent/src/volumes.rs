//! The volumes of pods: made ready before their containers start, kept as the API's objects are, taken down after the last
//! container is gone.
//!
//! [`Volumes`] is the handle that pod workers have. One task behind it, `engine`, knows what is under way for which pod;
//! when what is made, waited for or tried again, `kubelet_core::volumes::engine` decides. Each type is one file here. What
//! exists is told by the pod's directory and the mount table only, so that a restarted kubelet goes on where the last one
//! stopped.

mod claims;
mod device;
mod empty_dir;
mod engine;
mod host_path;
mod local;
mod make;
mod mount_context;
mod nfs;
mod payload;
mod quota;
mod shared;
mod take_down;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::volumes::engine::ReadyVolume;
use model::PodUid;
use model::k8s::{Pod, VolumeMount};
use ports::host::ProgramCall;
use ports::{Files, HostError, Mounts};
use tokio::sync::{mpsc, oneshot};

use crate::api::objects::PodObjects;
use crate::error_chain::chain;
use crate::settings::Paths;

pub(crate) use engine::VolumeEngine;
pub(crate) use make::path_of;
pub(crate) use quota::counted;

/// Below a pod's directory: its volumes of type `emptyDir`.
const EMPTY_DIRS: &str = "volumes/kubernetes.io~empty-dir";
/// The directory of local volumes below `volumes` and `plugins` of a pod.
const LOCAL_PLUGIN: &str = "kubernetes.io~local-volume";

/// Requests that wait while the engine is busy starting others.
const QUEUE: usize = 64;

/// Why something about a volume did not happen. The text is what the event shows.
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
    #[error("failed to release the volumes of pod {pod}: {detail}")]
    Release { pod: PodUid, detail: String },
    #[error("the kubelet stops")]
    Stopping,
}

/// Where each volume of a pod is on this machine.
pub type ReadyVolumes = BTreeMap<String, ReadyVolume>;

/// Whose volumes, and what they are made from.
#[derive(Clone, Debug)]
pub struct VolumeOrder {
    pub pod: Arc<Pod>,
    pub objects: PodObjects,
}

enum Request {
    Mount { order: VolumeOrder, is_refresh: bool, answer: oneshot::Sender<Result<ReadyVolumes, VolumeError>> },
    Changed(PodUid),
    Release { uid: PodUid, answer: oneshot::Sender<Result<(), VolumeError>> },
}

/// The volumes of all pods; clones are the same.
#[derive(Clone, Debug)]
pub struct Volumes {
    requests: mpsc::Sender<Request>,
}

impl Volumes {
    /// The handle, and what the engine reads.
    pub(crate) fn new() -> (Self, Requests) {
        let (requests, received) = mpsc::channel(QUEUE);
        (Self { requests }, Requests(received))
    }

    /// Makes every volume of the pod ready, and waits for it: two minutes and three seconds at most. What failed is tried
    /// again meanwhile, and said in events. Who stops waiting stops the trying.
    ///
    /// # Errors
    /// What is missing after that time, or cannot be made out at all.
    pub async fn mount(&self, order: VolumeOrder) -> Result<ReadyVolumes, VolumeError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::Mount { order, is_refresh: false, answer }, answered).await?
    }

    /// Brings the volumes that are made of objects up to date, as far as that succeeds at once.
    pub async fn refresh(&self, order: VolumeOrder) {
        let (answer, answered) = oneshot::channel();
        // What failed was said in events, and goes on showing what it showed.
        let _ = self.ask(Request::Mount { order, is_refresh: true, answer }, answered).await;
    }

    /// What the pod's volumes are made from changed: one that failed may succeed now.
    pub fn changed(&self, uid: &PodUid) {
        // With so many requests waiting, the next try is not far anyway.
        let _ = self.requests.try_send(Request::Changed(uid.clone()));
    }

    /// Unmounts and removes the pod's volumes. Idempotent.
    ///
    /// # Errors
    /// Something is still in use, or the disk refused.
    pub async fn release(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::Release { uid: uid.clone(), answer }, answered).await?
    }

    async fn ask<T>(&self, request: Request, answered: oneshot::Receiver<T>) -> Result<T, VolumeError> {
        self.requests.send(request).await.map_err(|_| VolumeError::Stopping)?;
        answered.await.map_err(|_| VolumeError::Stopping)
    }
}

/// What workers ask for.
pub(crate) struct Requests(mpsc::Receiver<Request>);

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

/// Removes what is left of the pod's directory; its volumes must have been released. Idempotent.
///
/// # Errors
/// Something is mounted inside, or the disk refused.
pub async fn remove_pod_dir(files: &dyn Files, paths: &Paths, uid: &PodUid) -> Result<(), HostError> {
    files.remove_tree(&paths.pod(uid)).await
}

/// Binds the subPath of a mount to a place of its own that no later change inside the volume can redirect.
///
/// # Errors
/// The path leads outside the volume, or binding failed.
pub async fn ensure_sub_path(
    mounts: &dyn Mounts,
    pod_dir: &Path,
    container: &str,
    mount: (usize, &VolumeMount),
    volume: (&Path, &str),
) -> Result<PathBuf, VolumeError> {
    let (index, mount) = mount;
    let (volume_path, sub_path) = volume;
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

/// A call of a program of the machine, without input.
fn program(path: &str, args: Vec<String>, deadline: Duration) -> ProgramCall {
    ProgramCall { path: path.into(), args, env: Vec::new(), input: Vec::new(), deadline }
}
