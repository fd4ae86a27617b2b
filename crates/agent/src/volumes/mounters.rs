//! What sets up and tears down the volumes of each type: one file for each implements [`Mounter`] for the plans of
//! `kubelet_core::volumes::types`, where everything is decided that needs no I/O.

mod empty_dir;
mod host_path;
mod local;
mod nfs;
mod payload;

use async_trait::async_trait;
use kubelet_core::volumes::engine::ReadyVolume;
use kubelet_core::volumes::types::VolumeSource;
use ports::HostError;

use super::mount_context::{MountContext, MountError};

/// Where all mounters are registered: a source without a mounter does not compile.
pub(super) fn mounter(source: &VolumeSource) -> &dyn Mounter {
    match source {
        VolumeSource::EmptyDir(plan) => plan,
        VolumeSource::HostPath(plan) => plan,
        VolumeSource::Payload(plan) => plan,
        VolumeSource::LocalFiles(plan) => plan,
        VolumeSource::LocalDevice(plan) => plan,
        VolumeSource::Nfs(plan) => plan,
    }
}

/// Sets up and tears down volumes of one type.
#[async_trait]
pub(super) trait Mounter: Send + Sync {
    /// The names of its steps in events and metrics.
    fn steps(&self) -> &'static Steps {
        &MOUNT_VOLUME
    }
    /// Makes the volume ready, or finds that it is. Idempotent.
    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError>;
    /// Removes what an attempt to set it up may have mounted that was given up before its end.
    async fn tear_down(&self, _mount_context: &MountContext<'_>) -> Result<(), HostError> {
        Ok(())
    }
}

/// How the Go kubelet names the steps of setting up a volume.
#[derive(Debug)]
pub(super) struct Steps {
    /// The reason of events about failures.
    pub(super) reason: &'static str,
    pub(super) set_up: &'static str,
    pub(super) initialization: &'static str,
    /// The label `operation_name` of metrics.
    pub(super) operation: &'static str,
}

static MOUNT_VOLUME: Steps = Steps {
    reason: "FailedMount",
    set_up: "MountVolume.SetUp",
    initialization: "MountVolume.NewMounter",
    operation: "volume_mount",
};

static MAP_VOLUME: Steps = Steps {
    reason: "FailedMapVolume",
    set_up: "MapVolume.SetUpDevice",
    initialization: "MapVolume.NewBlockVolumeMapper",
    operation: "map_volume",
};
