//! What a mounter needs to set up one volume of a pod, and how that can fail.

use std::path::PathBuf;

use api_agent::attachments::AttachError;
use api_agent::objects::PodObjects;
use api_agent::reflector::own_node;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_core::downward::DownwardFacts;
use jiff::Timestamp;
use model::PodRef;
use model::containers::spec_of;
use model::k8s::VolumeNodeAffinity;
use ports::HostError;
use tokio_util::sync::CancellationToken;
use volumes_core::node_affinity::check_node_affinity;
use volumes_core::types::{VolumePlan, volume_dir};

use super::claims::BoundClaim;
use super::indexed_pod::IndexedPod;
use super::marks::{MEASURED, MIGRATED};
use super::shared::Shared;

/// The name of the mark in the volume's directory below `plugins`.
pub(super) const MARK: &str = "ready";
const MARK_DIRECTORY_MODE: u32 = 0o750;
/// No volume's name is longer than this.
pub(super) const LONGEST_NAME: usize = 253;

/// What a mounter needs to set up one volume of a pod.
pub(super) struct MountContext<'a> {
    pub ctx: &'a Context,
    pub pod: &'a IndexedPod,
    /// The name of the volume in the pod's spec.
    pub volume: &'a str,
    pub plan: &'a VolumePlan,
    /// Of a volume with a claim.
    pub claim: Option<&'a BoundClaim>,
    /// The nodes that may mount its PersistentVolume.
    pub(super) node_affinity: Option<&'a VolumeNodeAffinity>,
    pub objects: &'a PodObjects,
    pub facts: DownwardFacts<'a>,
    pub now: Timestamp,
    pub shared: &'a Shared,
    pub terminating: &'a CancellationToken,
}

impl MountContext<'_> {
    pub(crate) fn identity(&self) -> &PodRef {
        self.pod.identity()
    }

    pub(crate) fn pod_dir(&self) -> PathBuf {
        self.ctx.settings.paths.pod(&self.identity().uid)
    }

    /// Gives up work that may wait for a device or a server when the pod is deleted.
    pub(super) async fn unless_leaving<T>(
        &self,
        work: impl Future<Output = Result<T, HostError>>,
    ) -> Result<T, HostError> {
        tokio::select! {
            done = work => done,
            () = self.terminating.cancelled() => Err(HostError::NotFinished("pod deleted while its volume was being mounted".to_owned())),
        }
    }

    /// Where the volume appears, in the pod's directory.
    pub(crate) fn volume_dir(&self) -> PathBuf {
        volume_dir(&self.pod_dir(), &self.plan.plugin_dir(), &self.plan.name)
    }

    fn mark_dir(&self) -> PathBuf {
        self.pod_dir().join("plugins").join(&*self.plan.plugin_dir()).join(&self.plan.name)
    }

    /// A mark records that the volume is ready, and which volume of the pod's spec a PersistentVolume is.
    pub(super) async fn is_marked(&self) -> bool {
        self.ctx.files.read_file(&self.mark_dir().join(MARK), LONGEST_NAME, false).await.is_ok()
    }

    pub(super) async fn ensure_mark_dir(&self) -> Result<(), HostError> {
        self.ctx.files.ensure_dir(&self.mark_dir(), MARK_DIRECTORY_MODE).await
    }

    pub(crate) async fn mark(&self) -> Result<(), HostError> {
        self.ensure_mark_dir().await?;
        if self.plan.is_migrated() {
            self.ctx.files.write_file(&self.mark_dir().join(MIGRATED), b"", 0o644).await?;
        }
        self.ctx.files.write_file(&self.mark_dir().join(MARK), self.volume.as_bytes(), 0o644).await
    }

    /// Records whether a FlexVolume is measured for statistics.
    pub(super) async fn set_measured(&self, is_measured: bool) -> Result<(), HostError> {
        let path = self.mark_dir().join(MEASURED);
        match is_measured {
            true => self.ctx.files.write_file(&path, b"", 0o644).await,
            false => self.ctx.files.remove_file(&path).await,
        }
    }

    /// Refuses a PersistentVolume of other nodes. One that is mounted already stays, whatever became of the labels.
    pub(crate) async fn check_node(&self) -> Result<(), MountError> {
        let node = self.node_affinity.and_then(|_| own_node(&self.shared.own_node.borrow()));
        let labels = node.as_ref().map(|node| node.metadata.labels.clone().unwrap_or_default());
        let checked = check_node_affinity(self.node_affinity, &self.ctx.settings.node_name, labels.as_ref());
        match checked {
            Err(why) if !self.is_marked().await => Err(MountError::OtherNodes(why)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The volume has to be set up again, from the beginning.
    pub(super) async fn unmark(&self) -> Result<(), HostError> {
        self.ctx.files.remove_file(&self.mark_dir().join(MARK)).await
    }

    /// The group that owns the pod's volumes: `fsGroup`.
    pub(crate) fn group(&self) -> Option<u32> {
        let group = spec_of(self.pod.get()).security_context.as_ref().and_then(|context| context.fs_group);
        group.and_then(|gid| u32::try_from(gid).ok())
    }
}

/// Why a volume could not be set up, and what follows.
#[derive(Debug)]
pub(super) enum MountError {
    /// It did not happen, and is not going to happen later.
    Failed(String),
    /// It was cancelled before its end.
    Unknown(String),
    /// The volume is not attached to this node.
    Attach(String),
    /// With `enableControllerAttachDetach: false` this kubelet would have to attach the volume, and cannot.
    AttachByKubelet(String),
    /// The device that pods share could not be mounted.
    Device(String),
    /// Mounting the device that pods share was cancelled before its end.
    DeviceUnknown(String),
    /// A device could not be mapped for the pod, in that step.
    Map { step: &'static str, why: String },
    /// It was mounted, but not expanded to its new size.
    Expansion(String),
    /// The pod cannot use the volume as it is now. The text is complete.
    Refused(String),
    /// The PersistentVolume may not be mounted on this node.
    OtherNodes(String),
    /// What is to be mounted does not exist or is not of the right kind; nothing was tried.
    Invalid(String),
    /// The node has nothing that mounts volumes of this type. The text is complete.
    NoPlugin(String),
}

impl From<AttachError> for MountError {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Terminating { .. } => Self::Unknown(error.to_string()),
            AttachError::NotInNodeStatus { .. }
            | AttachError::NotRead { .. }
            | AttachError::NotAttached { .. }
            | AttachError::Refused(_) => Self::Attach(error.to_string()),
            AttachError::NotByController => Self::AttachByKubelet(error.to_string()),
        }
    }
}

impl From<HostError> for MountError {
    fn from(error: HostError) -> Self {
        let text = chain(&error);
        match error {
            HostError::NotFinished(_) => Self::Unknown(text),
            HostError::Io { .. } | HostError::Invalid(_) => Self::Failed(text),
        }
    }
}
