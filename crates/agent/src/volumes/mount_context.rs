//! What one volume of a pod is made with, and how making it can fail.

use std::path::PathBuf;

use jiff::Timestamp;
use kubelet_core::downward::DownwardFacts;
use model::PodRef;
use model::containers::spec_of;
use model::k8s::{Pod, Volume};
use ports::HostError;
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use crate::api::objects::PodObjects;
use crate::context::Context;
use crate::error_chain::chain;

/// A file of this name in the volume's directory below `plugins` says that the volume is ready.
pub(super) const MARK: &str = "ready";
const MARK_DIRECTORY_MODE: u32 = 0o750;
/// No volume's name is longer than this.
pub(super) const LONGEST_NAME: usize = 253;

/// What one volume of a pod is made with.
pub(super) struct MountContext<'a> {
    pub(super) ctx: &'a Context,
    pub(super) pod: &'a Pod,
    pub(super) volume: &'a Volume,
    pub(super) objects: &'a PodObjects,
    pub(super) facts: DownwardFacts<'a>,
    pub(super) now: Timestamp,
    pub(super) shared: &'a Shared,
    pub(super) leaving: &'a CancellationToken,
}

impl MountContext<'_> {
    pub(super) fn identity(&self) -> PodRef {
        PodRef::of(self.pod)
    }

    pub(super) fn pod_dir(&self) -> PathBuf {
        self.ctx.settings.paths.pod(&self.identity().uid)
    }

    /// Work that others answer for is given up when the pod goes.
    pub(super) async fn unless_leaving<T>(
        &self,
        work: impl Future<Output = Result<T, HostError>>,
    ) -> Result<T, HostError> {
        tokio::select! {
            done = work => done,
            () = self.leaving.cancelled() => Err(HostError::GivenUp("the pod goes before its volume is ready".to_owned())),
        }
    }

    /// A mark says that the volume is ready, and which of the pod's volumes a PersistentVolume is.
    pub(super) async fn is_marked(&self, plugin: &str, name: &str) -> bool {
        let mark = self.pod_dir().join("plugins").join(plugin).join(name).join(MARK);
        self.ctx.files.read_file(&mark, LONGEST_NAME, false).await.is_ok()
    }

    pub(super) async fn mark(&self, plugin: &str, name: &str) -> Result<(), HostError> {
        let directory = self.pod_dir().join("plugins").join(plugin).join(name);
        self.ctx.files.ensure_dir(&directory, MARK_DIRECTORY_MODE).await?;
        self.ctx.files.write_file(&directory.join(MARK), self.volume.name.as_bytes(), 0o644).await
    }

    /// The group that the pod's volumes are given to.
    pub(super) fn group(&self) -> Option<u32> {
        let group = spec_of(self.pod).security_context.as_ref().and_then(|context| context.fs_group);
        group.and_then(|gid| u32::try_from(gid).ok())
    }
}

/// What went wrong with a volume, and what follows.
#[derive(Debug)]
pub(super) enum MakeError {
    /// It did not happen, and is not going to.
    Failed(String),
    /// It was given up before it had ended.
    GivenUp(String),
    /// The device that pods share cannot be had.
    Device(String),
    /// Before anything was tried: the thing to mount is not there, or not of the right kind.
    Invalid(String),
}

impl From<HostError> for MakeError {
    fn from(error: HostError) -> Self {
        let text = chain(&error);
        match error {
            HostError::GivenUp(_) => Self::GivenUp(text),
            HostError::Io { .. } | HostError::Invalid(_) => Self::Failed(text),
        }
    }
}
