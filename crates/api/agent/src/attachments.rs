//! Waits until the attach/detach controller and a driver have attached a volume to this node.
//!
//! Owns no state: the own Node is watched, and a VolumeAttachment is read only once the Node says that its volume is attached,
//! because a node may not watch VolumeAttachments. What they mean is decided in `volumes_core::attachment`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use model::k8s::{Node, VolumeAttachment};
use ports::Cluster;
use ports::cluster::ClusterError;
use tokio_util::sync::CancellationToken;
use volumes_core::attachment::{
    AttachState, attachment_delay, compute_attach_state, device_in_node_status, is_in_node_status,
    is_resource_exhausted,
};

use super::reflector::{Store, StoreReader, own_node};

/// How long the controller may take.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the VolumeAttachment may differ from the status of the Node.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(120);

/// The volume that is waited for.
#[derive(Clone, Debug)]
pub struct AttachWait {
    /// As in the status of the Node: `kubernetes.io/csi/<driver>^<handle>`.
    pub volume_unique_name: String,
    /// Of the VolumeAttachment: `volumes_core::attachment::attachment_name`.
    pub attachment_name: String,
    /// Cancelled when no pod needs the volume any more.
    pub terminating: CancellationToken,
}

/// Why a volume is not attached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    #[error("volume {volume} is not yet in node's status")]
    NotInNodeStatus { volume: String },
    #[error("volume {volume} has GET error for volume attachment {attachment}: {error}")]
    NotRead { volume: String, attachment: String, error: ClusterError },
    #[error("volume {volume} is not attached for volume attachment {attachment}")]
    NotAttached { volume: String, attachment: String },
    /// The text of the attacher, or that the volume is being detached.
    #[error("{0}")]
    Refused(String),
    #[error("attaching volumes from the kubelet is not supported")]
    NotByController,
    /// No pod needs the volume any more.
    #[error("volume {volume} is not needed any more")]
    Terminating { volume: String },
}

/// A handle; clones are the same.
#[derive(Clone, Debug)]
pub struct Attachments {
    ctx: Arc<Context>,
    cluster: Arc<dyn Cluster>,
    own_node: StoreReader<Node>,
}

impl Attachments {
    pub fn new(ctx: &Arc<Context>, cluster: &Arc<dyn Cluster>, own_node: StoreReader<Node>) -> Self {
        Self { ctx: ctx.clone(), cluster: cluster.clone(), own_node }
    }

    /// Waits until the volume is attached, and returns the metadata of its VolumeAttachment. Before, the volume must be in
    /// `volumesInUse` of the Node. Cancel safe.
    ///
    /// # Errors
    /// It is not attached after a limited time, or cannot be attached now.
    pub async fn attached(&self, wait: &AttachWait) -> Result<BTreeMap<String, String>, AttachError> {
        if !self.ctx.config().enable_controller_attach_detach {
            return Err(AttachError::NotByController);
        }
        tokio::select! {
            biased;
            () = wait.terminating.cancelled() => {
                Err(AttachError::Terminating { volume: wait.volume_unique_name.clone() })
            }
            attached = self.wait(wait) => attached,
        }
    }

    /// Waits until the controller has attached the volume, and returns its device as the Node says it; empty if it has none. Before,
    /// the volume must be in `volumesInUse` of the Node. Cancel safe.
    ///
    /// # Errors
    /// It is not attached after a limited time.
    pub async fn attached_device(
        &self,
        unique_name: &str,
        terminating: &CancellationToken,
    ) -> Result<String, AttachError> {
        if !self.ctx.config().enable_controller_attach_detach {
            return Err(AttachError::NotByController);
        }
        let device =
            |store: &Store<Node>| own_node(store).and_then(|node| device_in_node_status(&node, unique_name));
        let clock = self.ctx.clock;
        let mut seen = self.own_node.clone();
        tokio::select! {
            biased;
            () = terminating.cancelled() => Err(AttachError::Terminating { volume: unique_name.to_owned() }),
            Ok(store) = seen.wait_for(|store| device(store).is_some()) => Ok(device(&store).unwrap_or_default()),
            () = clock.sleep_until(clock.mono() + CONTROLLER_TIMEOUT) => {
                Err(AttachError::NotInNodeStatus { volume: unique_name.to_owned() })
            }
        }
    }

    /// Whether the driver refused the volume because the node has too many: its number in the CSINode is out of date.
    pub async fn is_node_full(&self, attachment_name: &str) -> bool {
        match self.get(attachment_name).await {
            Ok(attachment) => is_resource_exhausted(&attachment),
            Err(error) => {
                tracing::debug!(attachment = attachment_name, err = %error, "Failed to get volume attachment");
                false
            }
        }
    }

    async fn wait(&self, wait: &AttachWait) -> Result<BTreeMap<String, String>, AttachError> {
        let clock = self.ctx.clock;
        let mut seen = self.own_node.clone();
        let controller_until = clock.mono() + CONTROLLER_TIMEOUT;
        let mut driver_until = None;
        let mut reads = 0;
        loop {
            let is_listed = |store: &Store<Node>| {
                own_node(store).is_some_and(|node| is_in_node_status(&node, &wait.volume_unique_name))
            };
            tokio::select! {
                Ok(_) = seen.wait_for(is_listed) => {}
                () = clock.sleep_until(controller_until) => {
                    let volume = wait.volume_unique_name.clone();
                    return Err(AttachError::NotInNodeStatus { volume });
                }
            }
            match self.read(wait).await? {
                AttachState::Attached(metadata) => return Ok(metadata),
                AttachState::Refused(why) => return Err(AttachError::Refused(why)),
                AttachState::NotYet => {}
            }
            let now = clock.mono();
            if now >= *driver_until.get_or_insert(now + DRIVER_TIMEOUT) {
                return Err(AttachError::NotAttached {
                    volume: handle_of(wait),
                    attachment: wait.attachment_name.clone(),
                });
            }
            clock.sleep_until(now + attachment_delay(reads, self.ctx.rng.share())).await;
            reads = reads.saturating_add(1);
        }
    }

    async fn read(&self, wait: &AttachWait) -> Result<AttachState, AttachError> {
        match self.get(&wait.attachment_name).await {
            Ok(attachment) => Ok(compute_attach_state(&attachment)),
            Err(error) => Err(AttachError::NotRead {
                volume: handle_of(wait),
                attachment: wait.attachment_name.clone(),
                error,
            }),
        }
    }

    async fn get(&self, name: &str) -> Result<VolumeAttachment, ClusterError> {
        self.cluster.volume_attachments().get("", name).await
    }
}

/// The volume as its driver names it.
fn handle_of(wait: &AttachWait) -> String {
    let name = &wait.volume_unique_name;
    name.split_once('^').map_or(name.as_str(), |(_, handle)| handle).to_owned()
}
