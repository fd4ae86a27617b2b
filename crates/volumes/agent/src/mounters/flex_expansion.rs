//! Expands volumes of FlexVolume drivers: the driver, or what it does not support, the kubelet.

use async_trait::async_trait;
use model::Amount;
use model::k8s::PersistentVolumeClaim;
use tokio::sync::OwnedSemaphorePermit;
use volumes_core::csi::expansion::{FailureKind, Known};
use volumes_core::flex::{CallError, Command, check_device, expand_args};

use super::super::device;
use super::super::flex::FlexDriver;
use super::super::mount_context::MountContext;
use super::expansion::{Expander, Failure};

/// A volume of a driver.
pub(super) struct FlexExpander<'a> {
    pub(super) mount_context: &'a MountContext<'a>,
    pub driver: &'a FlexDriver<'a>,
    pub unique_name: String,
    /// What the driver gets: JSON of the options of the volume.
    pub options: String,
    /// Empty if it has none.
    pub device: String,
}

#[async_trait]
impl Expander for FlexExpander<'_> {
    fn known(&self, claim: &PersistentVolumeClaim) -> Known {
        self.mount_context.shared.flex.known(&self.unique_name, claim)
    }

    fn change(&self, change: &dyn Fn(&mut Known)) {
        self.mount_context.shared.flex.change(&self.unique_name, change);
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.mount_context.shared.devices.acquire(&self.unique_name).await.ok()
    }

    async fn expand(&self, size: Amount, old_size: Amount) -> Result<(), Failure> {
        let target = self.mount_context.volume_dir();
        let args = expand_args(&self.options, &self.device, &target, size, old_size);
        match self.driver.call(Command::ExpandFs, args).await {
            Ok(_) => Ok(()),
            Err(CallError::NotSupported) => {
                if !self.device.is_empty() {
                    check_device(&self.device)
                        .map_err(|message| Failure { kind: FailureKind::Final, message })?;
                }
                let resized = device::resize(self.mount_context, &self.device, &target).await;
                resized.map_err(|message| Failure { kind: FailureKind::Final, message })
            }
            Err(CallError::Failed(message)) => Err(Failure { kind: FailureKind::Final, message }),
            Err(CallError::NotFinished(message)) => Err(Failure { kind: FailureKind::Transient, message }),
        }
    }
}
