//! What sets up and tears down the volumes of each type: one file for each implements [`Mounter`] for the plans of
//! `volumes_core::types`, where everything is decided that needs no I/O.

mod csi;
mod csi_expansion;
mod csi_label;
mod disk;
mod empty_dir;
mod expansion;
mod fc;
mod flex;
mod flex_expansion;
mod host_path;
mod iscsi;
mod local;
mod nfs;
mod payload;

use std::path::PathBuf;

use async_trait::async_trait;
use base_agent::context::Context;
use model::PodUid;
use ports::HostError;
use volumes_core::engine::ReadyVolume;
use volumes_core::types::VolumeSource;

use super::csi::PodVolume;
use super::mount_context::{MountContext, MountError};
use super::shared::Shared;

/// Where all mounters are registered: a source without a mounter does not compile.
pub(super) fn mounter(source: &VolumeSource) -> &dyn Mounter {
    match source {
        VolumeSource::EmptyDir(plan) => plan,
        VolumeSource::HostPath(plan) => plan,
        VolumeSource::Payload(plan) => plan,
        VolumeSource::LocalFiles(plan) => plan,
        VolumeSource::LocalDevice(plan) => plan,
        VolumeSource::Nfs(plan) => plan,
        VolumeSource::Csi(plan) => &**plan,
        VolumeSource::Flex(plan) => &**plan,
        VolumeSource::Iscsi(plan) => &**plan,
        VolumeSource::Fc(plan) => &**plan,
    }
}

/// Where the types are registered whose volumes need more than unmounting when their pod's volumes are torn down.
pub(super) static TEAR_DOWNS: [&dyn TearDown; 5] = [
    &local::ReleaseDevices,
    &csi::Unpublish,
    &flex::Unmount,
    &disk::Detach(iscsi::IscsiDisks),
    &disk::Detach(fc::FcDisks),
];

/// What a type does when the volumes of a pod are torn down, as the disk shows them. Idempotent.
#[async_trait]
pub(super) trait TearDown: Sync {
    /// The volumes in that directory in `volumes` of the pod are of the type. None is unmounted while [`Self::before_unmount`] fails.
    fn holds(&self, plugin_dir: &str) -> bool;
    /// Takes away what others mounted.
    async fn before_unmount(
        &self,
        _ctx: &Context,
        _shared: &Shared,
        _terminating: &TerminatingPod<'_>,
    ) -> Result<(), String> {
        Ok(())
    }
    /// The pod has nothing of the type mounted any more; its directories still show what it used.
    async fn after_unmount(&self, _ctx: &Context, _shared: &Shared, _uid: &PodUid) -> Result<(), String> {
        Ok(())
    }
    /// The directories of the pod's volumes are gone.
    fn after_removal(&self, _shared: &Shared, _uid: &PodUid) {}
    /// The attached volumes of the type that are mounted for all pods, as the disk shows them.
    async fn find_attached(&self, _ctx: &Context) -> Vec<Attached> {
        Vec::new()
    }
}

/// The pod whose volumes are torn down.
#[derive(Debug)]
pub(super) struct TerminatingPod<'a> {
    pub uid: &'a PodUid,
    /// Its CSI volumes, which are read once.
    pub csi: Result<Vec<PodVolume>, String>,
}

/// A volume that the attach/detach controller attached.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Where it is mounted for all pods.
    pub dir: PathBuf,
    /// The name of its permit.
    pub permit: String,
    /// The names that it may have in `volumesInUse` of the node.
    pub(super) unique_names: Vec<String>,
}

/// Sets up volumes of one type.
#[async_trait]
pub(super) trait Mounter: Send + Sync {
    /// The names of its steps in events and metrics.
    fn steps(&self) -> &'static Steps {
        &MOUNT_VOLUME
    }
    /// The volume, if it is ready and nothing is to be done that counts as an operation in metrics.
    async fn find(&self, _mount_context: &MountContext<'_>) -> Option<Result<ReadyVolume, MountError>> {
        None
    }
    /// Makes the volume ready, or finds that it is. Idempotent.
    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError>;
    /// Removes what an attempt to set it up may have mounted that was cancelled before its end.
    async fn tear_down(&self, _mount_context: &MountContext<'_>) -> Result<(), HostError> {
        Ok(())
    }
}

/// How the Go kubelet names the steps of setting up a volume.
#[derive(Debug)]
pub(super) struct Steps {
    /// The reason of events about failures.
    pub reason: &'static str,
    pub(super) set_up: &'static str,
    pub initialization: &'static str,
    /// That the volume is not attached to this node.
    pub(super) wait_for_attach: &'static str,
    /// Whether its PersistentVolume is one of this node.
    pub(super) node_check: &'static str,
    /// That it failed to expand a volume that it had set up.
    pub expansion: &'static str,
    /// The label `operation_name` of metrics.
    pub operation: &'static str,
}

static MOUNT_VOLUME: Steps = Steps {
    reason: "FailedMount",
    set_up: "MountVolume.SetUp",
    initialization: "MountVolume.NewMounter",
    wait_for_attach: "MountVolume.WaitForAttach",
    node_check: "MountVolume.NodeAffinity check",
    expansion: "MountVolume.Setup failed while expanding volume",
    operation: "volume_mount",
};

static MAP_VOLUME: Steps = Steps {
    reason: "FailedMapVolume",
    set_up: "MapVolume.SetUpDevice",
    initialization: "MapVolume.NewBlockVolumeMapper",
    wait_for_attach: "MapVolume.WaitForAttach",
    node_check: "MapVolume.NodeAffinity check",
    expansion: "MapVolume.MarkVolumeAsMounted failed while expanding volume",
    operation: "map_volume",
};
